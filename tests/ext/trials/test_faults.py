"""Faults around `fwbench selftest`."""

import statistics
import subprocess
import sys

import pytest

from fwbench.commands.cli import main
from fwbench.compare import evidence
from fwbench.ext.trials import selftest
from tests.unit.processes import children, gone


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_load_of_a_killed_selftest_ends_with_it():
    code = (
        "import random, time; from fwbench.ext.trials.selftest import _load\n"
        "with _load(True, random.Random(0)):\n    print(flush=True)\n    time.sleep(3600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    process.stdout.readline()
    pids = children(process.pid)
    process.kill()
    process.communicate()
    assert len(pids) == 2
    assert gone(pids)


def test_two_selftests_do_not_write_into_one_file(tmp_path, monkeypatch, capsys):
    path = tmp_path / "suites.jsonl"

    def meanwhile(*_):
        monkeypatch.setattr(selftest, "run", lambda *_: pytest.fail("a suite was run"))
        assert main(["selftest", "--suites=1", f"--output={path}"]) == 4
        return {"slowdown": 0.0, "loaded": False, "number": 0, "benchmarks": []}

    monkeypatch.setattr(selftest, "run", meanwhile)
    # Its report wants benchmarks.
    with pytest.raises(statistics.StatisticsError):
        main(["selftest", "--suites=1", f"--output={path}"])
    assert f"another `fwbench selftest` writes into {path}: give --output another file." in capsys.readouterr().err
    assert [suite["number"] for suite in evidence.read(path).suites] == [0]
