"""`fwbench compare` as a shell sees it: its exit code, what it prints, and what it refuses in a sentence."""

import dataclasses
import json

import pytest

from fwbench.commands.cli import main
from tests.unit.recorded import MACHINE, failed, journal, measured, plain, saved, write
from tests.unit.test_evidence import HEADER, runs


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, which has no A/A record."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def several(factor=1.0, **fields):
    return measured(processes=tuple({"latency": factor * x} for x in (0.99, 1.0, 1.01, 0.995, 1.005)), **fields)


def compare(*arguments):
    return main(["compare", *map(str, arguments)])


@pytest.mark.parametrize(
    ("base", "head", "exit_code", "said"),
    [
        ([several()], [several()], 0, "1 benchmark: 1 unchanged"),
        ([several()], [several(0.5)], 0, "1 benchmark: 1 improved"),
        ([several()], [several(2.0)], 1, "1 benchmark: 1 regressed"),
        ([several(), several(lane="jax")], [several()], 1, "2 benchmarks: 1 missing, 1 unchanged"),
        ([several()], [several(), failed()], 1, "2 benchmarks: 1 failed, 1 unchanged"),
        ([several()], [several(settings={"x": 1})], 4, "1 benchmark: 1 not comparable"),
        ([several()], [several(precision="tf32")], 4, "nothing was compared"),
        ([measured()], [measured()], 0, "1 benchmark: 1 unchanged"),
        ([measured()], [measured(samples=(0.25, 0.3, 0.3))], 0, "1 benchmark: 1 inconclusive"),
        ([measured()], [measured(samples=(2.5, 2.5, 2.5))], 1, "1 benchmark: 1 regressed"),
    ],
)
def test_the_exit_code_is_the_comparisons(folder, capsys, base, head, exit_code, said):
    files = write(folder / "a.json", saved(*base)), write(folder / "b.json", saved(*head))
    assert compare(*files) == exit_code
    shown = capsys.readouterr()
    assert shown.out.splitlines()[0] == f"{files[1]}, against {files[0]}"
    assert shown.out.splitlines()[-1] == said
    assert shown.err == ""


@pytest.mark.parametrize("damaged", [0, 1])
def test_a_damaged_benchmark_is_never_passed_over(folder, capsys, damaged):
    """Nor is it new, or missing: nobody can tell."""
    records = [saved(several(), several(lane="jax")) for _ in range(2)]
    records[damaged]["benchmarks"][1]["extra_info"]["parity"]["proof"] = [1]
    files = [write(folder / f"{number}.json", record) for number, record in enumerate(records)]
    assert compare(*files) == 4
    side = ("the baseline", "this run")[damaged]
    lines = capsys.readouterr().out.splitlines()
    fault = "benchmark 2: parity.proof: expected `object | null`, got `array`"
    assert f"jax-mlp-inference-b1: not comparable: {side} holds it, but damaged: {fault}" in lines
    assert lines[-1] == "2 benchmarks: 1 not comparable, 1 unchanged"


def test_a_plain_benchmark_that_comes_twice_is_never_passed_over(folder, capsys):
    files = (
        write(folder / "a.json", saved(benchmarks=[plain(), plain(mean=0.003), plain("y.py::b")])),
        folder / "b.json",
    )
    write(files[1], saved(benchmarks=[plain(), plain("y.py::b")]))
    assert compare(*files) == 4
    assert "2 benchmarks: 1 not comparable, 1 unchanged" in capsys.readouterr().out


def test_a_record_of_nothing_but_damage_says_so(folder, capsys):
    record = saved(several())
    record["benchmarks"][0]["extra_info"]["workload"]["seed"] = [1]
    path = write(folder / "a.json", record)
    assert compare(path, write(folder / "b.json", saved(several()))) == 4
    assert main(["report", str(path)]) == 4
    assert "workload.seed: expected `int`, got `array`" in capsys.readouterr().err


def test_a_threshold_can_be_asked_for(folder):
    files = write(folder / "a.json", saved(several())), write(folder / "b.json", saved(several(1.3)))
    assert compare(*files) == 1
    assert compare(*files, "--fail", "latency:50%") == 0
    assert compare(*files, "--fail", "energy:1%,latency:15%+1s") == 0


def test_another_machine_is_refused_unless_it_is_allowed(folder, capsys):
    other = saved(several(2.0), machine=dataclasses.replace(MACHINE, cpu="Another CPU"))
    files = write(folder / "a.json", saved(several())), write(folder / "b.json", other)
    assert compare(*files) == 4
    assert "cpu differs: Some CPU in the baseline, Another CPU here" in capsys.readouterr().out
    assert compare(*files, "--allow-mismatch") == 1


def test_journals_and_folders_are_records_too(folder):
    write(folder / "a.jsonl", journal(several()))
    (folder / "runs").mkdir()
    for name, factor, day in (("z", 1.0, 21), ("y", 2.0, 22)):
        record = saved(several(factor), datetime=f"2026-11-{day}T09:10:10+00:00")
        write(folder / "runs" / f"{name}.json", record)
    assert compare("a.jsonl", "runs") == 1
    assert compare("runs", "a.jsonl") == 0


def test_this_machines_own_record_counts(folder):
    files = write(folder / "a.json", saved(several())), write(folder / "b.json", saved(several(1.3)))
    assert compare(*files) == 1
    (folder / ".benchmarks").mkdir()
    write(folder / ".benchmarks" / "selftest.jsonl", [HEADER, *runs([1.0, 1.5] * 5)])
    assert compare(*files) == 0


def test_files_of_foreign_suites_are_read(folder, capsys):
    foreign = {"machine_info": {"node": "vm"}, "datetime": "2026-11-21T09:10:10"}
    files = [
        write(folder / name, {**foreign, "benchmarks": [plain(median=median), plain("y.py::test_a|b")]})
        for name, median in (("a.json", 0.002), ("b.json", 0.003))
    ]
    assert compare(*files) == 0
    assert "2 benchmarks: 1 inconclusive, 1 unchanged" in capsys.readouterr().out
    files[1].write_text(json.dumps({**foreign, "benchmarks": [plain()]}))
    assert compare(*files) == 1


def test_the_summary_is_written_with_names_that_mean_nothing_to_markdown(folder):
    foreign = {"machine_info": {}, "datetime": "2026-11-21T09:10:10"}
    files = [
        write(folder / name, {**foreign, "benchmarks": [plain("y.py::test[<b>|x]", median=median)]})
        for name, median in (("a.json", 0.002), ("b.json", 0.005))
    ]
    assert compare(*files, "--summary", "out.md") == 1
    text = (folder / "out.md").read_text()
    assert text.startswith("**fwbench: 1 benchmark: 1 regressed**")
    assert r"| y.py::test\[&lt;b&gt;&#124;x\] | latency | 2.00 ms | 5.00 ms |" in text


def test_a_summary_is_written_of_a_refusal_too(folder):
    files = write(folder / "a.json", saved(several())), write(folder / "b.json", saved())
    assert compare(*files, "--summary", "out.md") == 4
    assert "this run holds no measured benchmark" in (folder / "out.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["none.json", "good.json"], "none.json does not exist"),
        (["good.json", "empty"], "empty holds no records"),
        (["good.json", "broken.json"], "broken.json is not JSON (line 1"),
        (["good.json", "list.json"], "list.json is JSON, but no record"),
        (["good.json", "good.json", "--fail", "mean:5%"], "unknown metric 'mean' in --fail: choose from"),
        (["good.json", "good.json", "--fail", "latency"], "--fail 'latency' is not METRIC:PERCENT%"),
        (["good.json", "good.json", "--fail", "cpu_time:9%"], "records do not hold cpu_time, which --fail names"),
        (["good.json", "good.json", "--summary", "none/x.md"], "none/x.md cannot be written (No such file"),
        (["good.json", "good.json", "--summary", "empty"], "empty cannot be written (Is a directory): choose"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_4(folder, capsys, arguments, fault):
    write(folder / "good.json", saved(several()))
    (folder / "broken.json").write_text('{"benchmarks": [')
    (folder / "list.json").write_text("[1]")
    (folder / "empty").mkdir()
    assert compare(*arguments) == 4
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"fwbench: {fault}")


def test_its_help_says_what_it_returns(capsys):
    with pytest.raises(SystemExit):
        main(["compare", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "Exit code: 0 nothing worse, 1 something worse, missing or failed, 4 not comparable." in shown
    assert "latency:5% or peak_memory:2%+1MiB" in shown
