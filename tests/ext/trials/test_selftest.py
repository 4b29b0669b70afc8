"""`fwbench selftest` over suites that take no time."""

import json
from collections import Counter

import pytest

from fwbench.commands.cli import main
from fwbench.ext.trials import selftest
from fwbench.ext.trials.selftest import schedule, workloads


@pytest.fixture
def suites(monkeypatch):
    """The suites that were run, in order; the third one is interrupted."""
    ran = []

    def run(suite, benchmarks, machine):
        ran.append(suite)
        if len(ran) == 3:
            raise KeyboardInterrupt
        unchanged = {"planted": 0.0, "kind": "unchanged", "seconds": [1.0, 0]}
        unchanged["rounds"] = [{"base": [1.0, 1.1], "head": [1.0, 1.1]}]
        told = {"slowdown": suite.slowdown, "loaded": suite.loaded, "number": suite.number}
        return {**told, "benchmarks": [{"id": benchmark.id, **unchanged} for benchmark in benchmarks]}

    monkeypatch.setattr(selftest, "run", run)
    return ran


def test_it_goes_on_where_it_was_stopped(suites, tmp_path, capsys):
    path = tmp_path / "folder" / "suites.jsonl"
    assert main(["selftest", "--suites=4", f"--out={path}"]) == 130
    assert main(["selftest", "--suites=4", f"--out={path}"]) == 0
    assert suites[:2] + suites[3:] == schedule(4)
    assert len(path.read_text().splitlines()) == 1 + len(schedule(4))
    assert "| duet | all | 0/4 " in capsys.readouterr().out
    assert main(["selftest", "--suites=4", f"--out={path}"]) == 0
    assert len(suites) == 1 + len(schedule(4))


def test_another_machines_suites_are_shown_but_not_gone_on_with(suites, tmp_path, capsys):
    path = tmp_path / "suites.jsonl"
    main(["selftest", "--suites=1", f"--out={path}"])
    header, *rest = path.read_text().splitlines()
    other = json.loads(header)
    other["machine"]["cpu"] = "another"
    path.write_text("\n".join([json.dumps(other), *rest]) + "\n")
    assert main(["selftest", "--suites=1", f"--out={path}"]) == 0
    assert main(["selftest", "--suites=2", f"--out={path}"]) == 4
    assert "another machine or another procedure" in capsys.readouterr().err
    assert len(suites) == 1


def test_half_of_each_kind_is_loaded():
    counted = Counter((suite.slowdown, suite.loaded) for suite in schedule(40))
    assert counted[0.0, True] == counted[0.0, False] == 20
    assert counted[0.05, True] == counted[0.05, False] == 5
    assert sum(counted.values()) == 60
    assert len({(suite.slowdown, suite.number) for suite in schedule(40)}) == 60


def test_at_least_five_benchmarks_in_both_frameworks():
    lanes = Counter(workload.lane for workload in workloads("cpu"))
    assert lanes == {"torch": 3, "jax": 3}
