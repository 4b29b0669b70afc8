"""Partial runs: the report is right about what there is and says what is missing."""

import dataclasses
import re
from pathlib import Path

import pytest

from fwbench.commands.cli import main
from fwbench.compare.cases import settings
from fwbench.meters.imported import with_others
from fwbench.record.measurement import Metric
from fwbench.record.reading import read
from fwbench.report.answers import answers
from tests.unit.recorded import MACHINE, failed, fitted, journal, measured, metric, plain, saved, write
from tests.unit.report import parsing
from tests.unit.report.conftest import few_pdfs

KEPT = Path(__file__).parents[3] / ".benchmarks" / "0001_readme.json"


def text(folder):
    return (folder / "report.html").read_text()


def tables(folder):
    return parsing.csv_files(folder / "tables")


def test_one_framework_and_one_batch_size(report):
    out = report(saved(measured("jax", throughput=50.0)))
    assert tables(out)["inference"].dicts()[0]["throughput/s [1/s]"] == "50.0"
    assert "answers" not in tables(out)
    for sentence in (
        "One lane only (jax): nothing to compare it with.",
        "One batch size of inference only (1)",
        "No training steps measured",
        "No epochs of training (mode fit) measured",
        "No energy: no counter here.",
        "No workload was measured in two lanes",
    ):
        assert sentence in text(out)
        assert sentence in parsing.unescaped((out / "tables.md").read_text())
        if parsing.LATEX:
            assert sentence.partition("(")[0] in (out / "tables.tex").read_text()
    assert tables(out)["inference"].dicts()[0]["speed-up"] == ""


def test_a_run_that_timed_nothing(report):
    untimed = [dataclasses.replace(measured(lane), samples=(), metrics={}) for lane in ("torch", "jax")]
    out = report([*journal(*untimed)])
    assert [row["throughput/s [1/s]"] for row in tables(out)["inference"].dicts()] == ["", ""]
    assert "There is nothing to draw." in text(out)


def test_failures_alone_are_a_report_too(report):
    out = report(saved(failed("out_of_memory", "XLA ran out of memory"), failed("unavailable", "no GPU", "torch")))
    kinds = [row["kind"] for row in tables(out)["failures"].dicts()]
    assert kinds == ["out_of_memory", "unavailable"]
    assert [row["failure"] for row in tables(out)["inference"].dicts()] == kinds
    assert "2 of 2 workloads have no numbers" in text(out)
    assert "There is nothing to draw." in text(out)


def test_a_failure_does_not_touch_the_others(report):
    out = report(saved(measured("torch"), failed(), measured("jax", batch_size=8), measured("torch", batch_size=8)))
    rows = [(row["lane"], row["batch"], row["failure"]) for row in tables(out)["inference"].dicts()]
    assert rows == [("torch", "1", ""), ("jax", "8", ""), ("torch", "8", ""), ("jax", "1", "crashed")]
    assert parsing.markdown(out / "tables.md")["Table II: inference"].rows[3][4:7] == ["crashed", "", ""]
    assert "1 of 4 workloads have no numbers" in text(out)


def test_a_run_saved_without_its_rounds(report):
    out = report(saved(measured("torch"), measured("jax"), data=False))
    assert len(tables(out)["inference"].rows) == 2
    assert not list((out / "figures").glob("latency*"))


def test_a_journal_cut_off_says_what_it_lost(tmp_path, report, capsys):
    path = write(tmp_path / "x.jsonl", journal(measured("torch"), measured("jax")))
    path.write_text(path.read_text()[:-50])
    assert main(["report", str(path), "--out", str(tmp_path / "out")]) == 0
    assert "cut off" in text(tmp_path / "out")
    assert len(tables(tmp_path / "out")["inference"].rows) == 1


def test_several_machines_stand_apart(report):
    other = dataclasses.replace(MACHINE, cpu="Another CPU")
    out = report(saved(measured(throughput=1.0)), saved(measured(throughput=9.0), machine=other))
    speeds = [tables(out / f"setting-{n}")["inference"].dicts()[0]["throughput/s [1/s]"] for n in (1, 2)]
    assert speeds == ["1.0", "9.0"]
    assert "2 different settings" in text(out)
    assert text(out).count("Another CPU, 2 threads, quick profile") >= 2
    if parsing.LATEX:
        latex = (out / "tables.tex").read_text()
        assert r"\input{setting-1/tables/inference}" in latex
        assert r"\input{setting-2/tables/inference}" in latex


def test_settings_of_one_machine_say_in_their_headings_what_separates_them(report):
    out = report(*(saved(measured(versions={"torch": version}, overhead_s=1.0)) for version in ("2.14", "2.15")))
    headings = [f"{n}. Some CPU, 2 threads, quick profile, torch 2.1{n + 3}" for n in (1, 2)]
    assert [f"## {heading}" in parsing.unescaped((out / "tables.md").read_text()) for heading in headings] == [True] * 2
    assert all(f"<h2>{heading}</h2>" in text(out) for heading in headings)


def test_runs_of_one_machine_stand_together_as_medians(report):
    out = report(*(saved(measured(throughput=speed, overhead_s=speed)) for speed in (1.0, 9.0, 4.0)))
    (row,) = tables(out)["inference"].dicts()
    assert row["throughput/s [1/s]"] == "4.0"
    assert len(tables(out)["records"].rows) == 3
    assert "Runs of 2 commits stand together" not in text(out)


def test_runs_of_several_commits_are_told_apart_in_words(report):
    other = {"id": "beef", "branch": "main", "dirty": False}
    out = report(saved(measured(overhead_s=1.0)), saved(measured(overhead_s=2.0), commit_info=other))
    assert "Runs of 2 commits stand together" in text(out)


def test_numbers_that_other_load_disturbed_are_called_so(report):
    out = report(saved(measured(metrics={"other_load": metric(0.5)}), measured("jax")))
    assert "other processes used the CPUs while 1 of 2 were measured" in text(out)


def test_somebody_elses_benchmarks_are_listed_apart(report):
    record = saved(measured("torch"))
    record["benchmarks"].append(plain(median=0.25))
    out = report(record)
    (row,) = tables(out)["other-benchmarks"].dicts()
    assert (row["benchmark"], row["median [s]"], row["rounds"]) == ("tests/y.py::test_sort", "0.25", "2")
    assert "250 ms" in text(out)


def test_a_gpu_shows_its_own_memory(report):
    memory = {"device_peak_memory": metric(7.0), "host_peak_memory": metric(3.0)}
    out = report(saved(measured("torch", device="gpu", metrics=memory)), formats="csv")
    assert tables(out)["inference"].dicts()[0]["memory [B]"] == "7.0"


def test_a_peak_that_is_at_most_so_much_is_shown_so_and_ranked_with_no_other(report):
    def gpu(lane, peak, at_most=False):
        latency = metric(1.0 if lane == "torch" else 2.5)
        peaks = {"device_peak_memory": Metric(peak, "a test", at_most=at_most), "latency_p50": latency}
        return measured(lane, device="gpu", metrics=peaks)

    out = report(saved(gpu("torch", 3 * 2**30), gpu("jax", 2**31, at_most=True)))
    assert "&lt;= 2.00 GiB" in text(out)
    (answer,) = tables(out)["answers"].dicts()
    assert (answer["least memory"], answer["least latency"]) == ("", "torch")
    out = report(saved(gpu("torch", 3 * 2**30), gpu("jax", 2**31)), formats="csv")
    assert tables(out)["answers"].dicts()[0]["least memory"] == "jax"


def test_a_process_that_holds_another_framework_has_not_the_least_memory_nor_has_any_other(report):
    """The lane that a stray import makes the larger one."""

    def lane(name, peak, others=()):
        metrics = {"host_peak_memory": metric(peak), "latency_p50": metric(1.0)}
        return measured(name, metrics=with_others(metrics, others) if others else metrics)

    for others, least in (((), "torch"), (("torch",), "")):
        out = report(saved(lane("torch", 2**30), lane("jax", 2**31, others)))
        assert tables(out)["answers"].dicts()[0]["least memory"] == least
    assert "&lt;= 2.00 GiB" in text(out)


def test_the_start_stands_beside_the_compile_time(report):
    start = {"trace_time": metric(1.0), "compile_time": metric(2.0), "time_to_steady": metric(4.5)}
    (row,) = tables(report(saved(measured("torch", metrics=start)), formats="csv"))["inference"].dicts()
    assert (row["compile [s]"], row["to steady [s]"]) == ("3.0", "4.5")


def test_a_lane_and_a_model_that_this_fwbench_does_not_know(report):
    out = report(saved(measured("mxnet", "my_model"), measured("torch", "my_model", throughput=300.0)))
    assert tables(out)["answers"].dicts()[0]["second"] == "mxnet"
    assert "mxnet" in text(out)


@pytest.mark.parametrize(
    ("formats", "suffixes"),
    [
        *(("csv", ".csv"), ("markdown", ".md"), ("html", ".html .svg")),
        pytest.param("markdown,latex", ".md .pdf .tex", marks=parsing.needs_latex),
    ],
)
def test_formats_are_written_as_asked(report, formats, suffixes):
    out = report(saved(measured(), measured("jax")), formats=formats)
    assert sorted({path.suffix for path in out.rglob("*") if path.is_file()}) == suffixes.split()


def test_the_same_records_write_the_same_bytes(tmp_path, report, monkeypatch):
    out = report(saved(measured("torch"), measured("jax"), fitted()), pdfs=1)
    path = tmp_path / "0.json"
    with few_pdfs(1):
        assert main(["report", str(path), "--out", str(tmp_path / "again")]) == 0
    for file in sorted(path for path in out.rglob("*") if path.is_file()):
        assert (tmp_path / "again" / file.relative_to(out)).read_bytes() == file.read_bytes(), file


def test_a_mode_that_this_fwbench_does_not_know_is_no_price_of_the_harness(report):
    lanes = [measured(lane, mode="serve", throughput=speed) for lane, speed in (("torch", 100.0), ("jax", 200.0))]
    found = tables(report(saved(*lanes), formats="csv"))
    assert [row["speed-up"] for row in found["other-modes"].dicts()] == ["1.0", "2.0"]
    assert "harness" not in found
    assert found["answers"].dicts()[0]["mode"] == "serve"


def test_workloads_that_a_file_holds_twice_are_processes_of_its_run_and_named(report):
    speeds = {"torch": (100.0, 100.0), "jax": (150.0, 200.0)}
    given = [
        measured(lane, throughput=speed, stages={"latency": 1.0 + n})
        for lane, of in speeds.items()
        for n, speed in enumerate(of)
    ]
    out = report(saved(*given))
    (row,) = tables(out)["ratios"].dicts()
    assert (row["pairs"], float(row["from"]), float(row["to"])) == ("2", 1.5, 2.0)
    assert tables(out)["inference"].dicts()[1]["n"] == "2"
    for lane in speeds:
        assert f"0.json: holds {lane}-mlp-inference-b1 2 times, which count as processes of its run." in text(out)


def test_a_lane_that_a_file_holds_twice_makes_one_pair_with_one_that_it_holds_once(report):
    given = [measured("jax", throughput=speed, overhead_s=speed) for speed in (250.0, 300.0)]
    (row,) = tables(report(saved(measured("torch"), *given), formats="csv"))["answers"].dicts()
    assert row["which rests on"] == "one process each; beyond 2x"


@parsing.needs_latex
def test_two_settings_define_each_label_once(report):
    out = report(saved(measured(), measured("jax")), saved(measured(), machine=dataclasses.replace(MACHINE, threads=1)))
    labels = [line for path in out.rglob("*.tex") for line in re.findall(r"\\label\{.*?\}", path.read_text())]
    assert len(labels) == len(set(labels))
    assert r"\label{tab:setting-2-inference}" in labels


def test_a_metric_that_a_run_of_this_fwbench_holds_is_known_to_it(tmp_path):
    assert main(["report", str(KEPT), "--out", str(tmp_path), "--format", "csv"]) == 0
    rows = tables(tmp_path)["sources"].dicts()
    assert {"bare_loop_ratio", "throughput"} <= {row["metric"] for row in rows}
    assert not [row for row in rows if row["what"] == "unknown to this fwbench"]


def test_answers_csv_holds_the_numbers_of_a_records_answers(tmp_path):
    assert main(["report", str(KEPT), "--out", str(tmp_path), "--format", "csv"]) == 0
    rows = tables(tmp_path)["answers"].dicts()
    (setting,) = settings([read(KEPT)])
    found = answers(setting.cases)
    assert len(rows) == len(found) == 15
    for row, answer in zip(rows, found, strict=True):
        workload, reach = answer.workload, answer.weighed.reach
        assert (row["model"], row["mode"], int(row["batch"])) == (workload.model, workload.mode, workload.batch_size)
        assert (row["first"], row["second"]) == (answer.fastest, answer.second)
        assert [float(row[name]) for name in ("ratio", "low", "high")] == [answer.weighed.ratio, reach.low, reach.high]
        assert float(row["level"] or 0) == reach.level
        assert (row["answer"], row["evidence"]) == (answer.confidence, answer.evidence)
    assert {row["level"] for row in rows} == {"0.99", ""}


def test_a_cpu_stands_beside_no_gpus_published_calls(report):
    out = report(saved(measured("jax", "resnet50", batch_size=8)), formats="csv")
    assert not [key for key in tables(out) if "published" in key]
