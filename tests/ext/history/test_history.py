"""`fwbench history`: series of crafted runs, what is found in them, and the page; nothing is measured."""

import dataclasses
import json
import math
import re
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from fwbench.commands.cli import main
from fwbench.compare.differences import Difference
from fwbench.ext.history.page import drawings
from fwbench.ext.history.trends import histories
from fwbench.record.reading import series
from tests.unit.recorded import MACHINE, QUICK, failed, journal, measured, metric, saved, write

BEGUN = datetime(2026, 9, 1, 12, tzinfo=UTC)


def commit(number):
    """A commit's id, which tells its number."""
    return f"{number:04d}" + "c" * 36


def run(number, *measurements, **top):
    """What the run of this number leaves: a day after the one before, of a commit of its own."""
    info = {"id": commit(number), "branch": "main", "dirty": False}
    # Its stages are no other run's.
    own = [m if m.failure else dataclasses.replace(m, stages={"latency": float(number)}) for m in measurements]
    made = (BEGUN + timedelta(days=number)).isoformat()
    return saved(*own, **{"datetime": made, "commit_info": info, **top})


def timed(seconds, load=0.0, lane="torch", **fields):
    """A measurement whose median call takes so long, beside so much other load."""
    metrics = {"other_load": metric(load), **fields.pop("metrics", {})}
    return measured(lane, throughput=1 / seconds, samples=(seconds,) * 3, metrics=metrics, **fields)


@pytest.fixture
def storage(tmp_path):
    """Writes runs into a storage folder, by number where they are not told apart; returns the folder."""

    def make(runs):
        folder = tmp_path / ".benchmarks" / "Linux-CPython-3.13-64bit"
        folder.mkdir(parents=True, exist_ok=True)
        for number, record in dict(runs).items():
            write(folder / f"{number:04d}_run.json{'l' * isinstance(record, list)}", record)
        return folder.parent

    return make


@pytest.fixture
def history(tmp_path, capsys):
    """Runs the command; returns its exit code, what it printed, what it complained of, and the page's text."""

    def go(folder):
        out = tmp_path / "out" / "history.html"
        code = main(["history", str(folder), "--output", str(out)])
        said = capsys.readouterr()
        return code, said.out, said.err, out.read_text() if out.exists() else ""

    return go


@pytest.fixture
def latencies(storage):
    """The series of latencies of runs, each one measurement, or a run as JSON."""

    def make(measurements):
        runs = {number: m if isinstance(m, dict) else run(number, m) for number, m in enumerate(measurements)}
        records, faults = series(storage(runs), journals=True)
        assert faults == []
        return [one for of in histories(records) for one in of.series if one.metric == "latency"]

    return make


def noisy(count, scale=0.01, seed=0):
    return np.exp(np.random.default_rng(seed).normal(0, scale, count))


def sixty():
    """Seconds of sixty runs: three steps, and then a slow drift."""
    place = np.arange(60)
    logarithms = 0.2 * (place >= 12) - 0.12 * (place >= 24) + 0.1 * (place >= 34) + 0.01 * np.clip(place - 41, 0, 15)
    return 0.02 * np.exp(logarithms) * noisy(60)


# What is found


def test_three_changes_and_a_slow_drift_in_sixty_runs(storage, history):
    folder = storage({number: run(number, timed(float(value))) for number, value in enumerate(sixty())})
    code, out, err, page = history(folder)
    assert (code, err) == (0, "")
    rows = [line.split() for line in out.splitlines() if line.startswith("torch-mlp-inference-b1  latency")]
    drift, *steps = rows
    assert drift[6:8] == ["drift", "over"]
    # Oldest last.
    assert [(row[6], row[7], row[10]) for row in steps] == [
        ("step", f"{commit(at - 1)[:10]},", f"{commit(at)[:10]},") for at in (34, 24, 12)
    ]
    sizes = [float(row[2].rstrip("%")) for row in rows]
    assert sizes == pytest.approx([100 * np.expm1(size) for size in (0.15, 0.1, -0.12, 0.2)], abs=3)
    assert "8 change points, 6 for the worse, in 2 series of 60 runs, 2026-09-01 to 2026-10-30" in out
    for text in (*rows[0][:3], commit(12)[:10], "drift over"):
        assert text in page


def test_where_nothing_changes_it_says_so_and_ends_with_0(storage, history):
    values = 0.1 * noisy(20)
    code, out, _, page = history(storage({n: run(n, timed(float(value))) for n, value in enumerate(values)}))
    assert code == 0
    assert out.startswith("Some CPU, 2 threads: no change point in 2 series of 20 runs, 2026-09-01 to 2026-09-20\n")
    assert "to measure again" not in out
    assert "no change point" in page


def test_a_higher_throughput_is_better_and_a_longer_latency_worse(storage):
    values = [0.1] * 10 + [0.2] * 10
    records, _ = series(storage({n: run(n, timed(value)) for n, value in enumerate(values)}))
    (one,) = histories(records)
    ratios = {of.metric: (shift.ratio, shift.worse) for of in one.series for shift in of.shifts}
    assert ratios == {"latency": (pytest.approx(2.0), True), "throughput": (pytest.approx(0.5), True)}


def test_several_processes_are_one_point(latencies):
    m = measured(processes=tuple({"latency": value} for value in (0.1, 0.2, 0.4)))
    (one,) = latencies([m] * 2)
    assert [point.value for point in one.points] == pytest.approx([0.2, 0.2])


# Load


def test_a_run_under_load_that_may_be_as_those_beside_it_is_no_part_of_a_level(latencies):
    values = 0.1 * noisy(20)
    loaded = {3, 9, 10, 11, 12}
    (one,) = latencies(
        [timed(float(value * (3 if n in loaded else 1)), 0.3 if n in loaded else 0.0) for n, value in enumerate(values)]
    )
    assert one.shifts == ()
    assert {point.run.number for point in one.unsure} == loaded


def test_how_many_runs_say_nothing_is_told(storage, history):
    runs = {n: run(n, timed(0.1, 0.3 if n < 3 else 0.0)) for n in range(9)}
    _, out, _, page = history(storage(runs))
    said = "2026-09-01 to 2026-09-09; 6 of 18 points were disturbed, and say nothing"
    assert f"{said}\n" in out
    assert f"{said}." in page


# 6 % of load explain a factor of 1.36, and what is left counts; faster although loaded counts as it is.
@pytest.mark.parametrize(("seconds", "load", "ratio"), [(1.0, 0.06, 10 * 0.94**5), (0.05, 0.3, 0.5)])
def test_a_change_that_load_cannot_explain_is_one_under_load_too(latencies, seconds, load, ratio):
    (one,) = latencies([timed(0.1) for _ in range(10)] + [timed(seconds, load) for _ in range(10)])
    (shift,) = one.shifts
    assert (shift.after.run.number, shift.ratio) == (10, pytest.approx(ratio))


def test_memory_is_no_matter_of_load(storage):
    runs = {n: run(n, timed(0.1, 0.5, metrics={"program_memory": metric(1e8 if n < 5 else 2e8)})) for n in range(10)}
    (one,) = histories(series(storage(runs))[0])
    assert [(of.metric, len(of.shifts), len(of.unsure)) for of in one.series] == [
        ("latency", 0, 10),
        ("throughput", 0, 10),
        ("program_memory", 1, 0),
    ]


# What is one series


def test_a_series_is_split_where_settings_change_and_says_why(latencies, storage, history):
    ms = [timed(0.1, settings={"layout": "cube" if n < 5 else "sphere in the baseline"}) for n in range(10)]
    first, second = latencies(ms)
    assert [len(one.points) for one in (first, second)] == [5, 5]
    assert first.breaks == ()
    assert second.breaks == (Difference("lane setting: layout", "'cube'", "'sphere in the baseline'"),)
    code, _, _, page = history(storage({}))
    assert code == 0
    assert "lane setting: layout differs: &#39;cube&#39; before, &#39;sphere in the baseline&#39; now" in page
    assert first.shifts == second.shifts == ()


@pytest.mark.parametrize(
    "change",
    [
        {"parity": {"weights": "other"}},
        {"parity": {"weights": "abc", "probe": {"matmul": {"arithmetic": "tf32"}}}},
        {"protocol": {**QUICK, "min_rounds": 9}},
        {"settings": {"OMP_NUM_THREADS": "64"}},
    ],
)
def test_other_weights_arithmetic_or_amounts_make_another_series(latencies, change):
    usual = {"parity": {"weights": "abc", "probe": {"matmul": {"arithmetic": "fp32"}}}}
    assert len(latencies([timed(0.1, **usual), timed(0.1, **usual), timed(0.1, **(usual | change))])) == 2


def test_runs_that_can_be_compared_go_on_after_others_in_between(latencies):
    ms = [timed(0.1, settings={"x": n % 2}) for n in range(8)]
    assert [[point.run.number for point in one.points] for one in latencies(ms)] == [[0, 2, 4, 6], [1, 3, 5, 7]]


def test_each_machine_has_a_history_and_kernel_and_memory_make_no_other(storage):
    machines = [
        MACHINE,
        dataclasses.replace(MACHINE, kernel="Linux 6.2", memory=2**34 + 4096),
        dataclasses.replace(MACHINE, cpu="Another CPU"),
        dataclasses.replace(MACHINE, threads=1),
    ]
    runs = {n: run(n, timed(0.1), machine=machine) for n, machine in enumerate(machines)}
    assert [len(one.runs) for one in histories(series(storage(runs))[0])] == [2, 1, 1]


def test_runs_are_in_the_order_of_their_own_times_not_of_their_files(storage):
    folder = storage({9 - n: run(n, timed(0.1 + n)) for n in range(3)})
    (one,) = histories(series(folder)[0])
    assert [point.value for point in one.series[0].points] == pytest.approx([0.1, 1.1, 2.1])


def test_a_run_and_its_journal_count_once_and_a_journal_alone_counts_too(storage):
    m = dataclasses.replace(timed(0.1), stages={"latency": 1.25})
    other = dataclasses.replace(timed(0.1), stages={"latency": 2.5})
    folder = storage({1: saved(m), 2: journal(m), 3: journal(other)})
    (one,) = histories(series(folder, journals=True)[0])
    assert [bool(of.commit) for of in one.runs] == [False, True]


def test_what_a_run_holds_twice_and_what_prices_the_harness_has_no_point(latencies):
    twice = run(1, timed(0.1), timed(0.3), timed(0.1, lane="jax"))
    found = latencies([timed(0.1), twice, timed(0.1, lane="noop", model="noop")])
    assert [(one.workload.lane, len(one.points)) for one in found] == [("torch", 1), ("jax", 1)]


def test_a_batch_that_was_measured_anyhow_has_its_point_whatever_was_halved_to_it(latencies):
    both = run(1, timed(0.1), timed(0.3, unfit=(2,)))
    (one,) = latencies([timed(0.1), both])
    assert [point.value for point in one.points] == pytest.approx([0.1, 0.1])


# Gaps


def test_a_gap_is_never_filled(storage):
    gone = failed(lane="torch")
    others = [timed(0.1, lane="jax") if n in (3, 4) else gone if n == 6 else timed(0.1) for n in range(9)]
    records, _ = series(storage({number: run(number, m) for number, m in enumerate(others)}), journals=True)
    drawing = next(drawing for drawing, _ in drawings(histories(records)[0]) if drawing.title.startswith("torch"))
    numbers, values = drawing.figure.axes[0].get_lines()[0].get_data()
    assert list(numbers) == list(range(9))
    assert [number for number, value in zip(numbers, values, strict=True) if value > 0] == [0, 1, 2, 5, 7, 8]


# How to measure again


def command(storage, history, runs):
    """What is said of the newest change of latency."""
    _, out, _, page = history(storage(runs))
    said = out.partition("to measure again:\n")[2].splitlines()
    again = said[1].strip() if said[1].startswith("    ") else ""
    if again:
        assert re.sub(r"&#39;|&#x27;", "'", again.replace("&", "&amp;")) in page.replace("&#39;", "'")
    return said[0], again


def stepped(**fields):
    """Twenty runs, slower from the tenth on; keywords that are functions get the run's number."""

    def of(number):
        return {name: value(number) if callable(value) else value for name, value in fields.items()}

    return {n: run(n, timed(0.1 if n < 10 else 0.2, **of(n))) for n in range(20)}


def test_the_command_switches_to_the_later_commit_and_plays_against_the_earlier_one(storage, history):
    fields = {"model": "resnet50", "batch_size": 8, "precision": "bf16", "seed": 3, "plain": True}
    about, again = command(storage, history, stepped(**fields))
    name = "torch-resnet50-inference-b8-bf16-s3-plain"
    assert about == f"  {name}, latency, +100.0%; {name}, throughput, -50.0%"
    assert again == (
        f"git switch --detach {commit(10)[:10]} && pytest 'tests/x.py::test[{name}]' --benchmark-only "
        "--fwbench-profile=quick --fwbench-lanes=torch --fwbench-models=resnet50 --fwbench-batch-sizes=8 "
        f"--fwbench-precision=bf16 --fwbench-set=seed=3 --fwbench-set=plain=true --fwbench-against={commit(9)[:10]}"
    )


def test_a_commit_of_a_record_is_no_command(storage, history):
    runs = stepped()
    for number, record in runs.items():
        record["commit_info"]["id"] = f";id|x{number:02}"
    _, again = command(storage, history, runs)
    assert again.startswith("git switch --detach ';id|x10' && pytest ")
    assert again.endswith(" --fwbench-against=';id|x09'")


def updated(number):
    return {"torch": "2.14" if number < 10 else "2.15"}


def of_commits(runs, commit):
    return {number: {**record, "commit_info": commit} for number, record in runs.items()}


def worse(name):
    """Twenty runs in which this metric alone becomes worse."""
    return {n: run(n, timed(0.1, metrics={name: metric(4.0 if n < 10 else 9.0)})) for n in range(20)}


ONE = run(0)["commit_info"]


@pytest.mark.parametrize(
    ("runs", "why", "again"),
    [
        (stepped(versions=updated), "(torch 2.14 -> 2.15)", "git switch .*"),
        # The older release plays.
        (of_commits(stepped(versions=updated), ONE), "(torch 2.14 -> 2.15)", "pytest .* --fwbench-against=torch==2.14"),
        (of_commits(stepped(), ONE), "(the same commit and versions on both sides: look at the machine)", ""),
        (of_commits(stepped(), {}), "(the records do not tell both commits, so nothing can be built again)", ""),
        (stepped(mode="fit"), "(epochs take no turns in a duet: train again on both sides)", ""),
        # What a duet measures only if it is asked to.
        (worse("compile_time"), "compile_time, +125.0%", ".* --fwbench-fail=compile_time:10%"),
        (worse("energy_per_sample"), "energy, +125.0%", ".* --fwbench-fail=energy:10%"),
    ],
)
def test_the_command_suits_the_change_and_where_there_is_none_it_says_why(storage, history, runs, why, again):
    about, suited = command(storage, history, runs)
    assert about.endswith(why)
    assert re.fullmatch(again, suited)


def test_a_tree_with_changes_that_were_not_committed_is_marked(storage, history):
    runs = stepped()
    runs[10]["commit_info"]["dirty"] = True
    _, out, _, _ = history(storage(runs))
    assert f"{commit(10)[:10]}+, " in out
    assert "(measured with changes that were not committed)" in out


# The page


def test_the_page_needs_no_network_and_no_other_file(storage, history):
    *_, page = history(storage(stepped()))
    inside = re.sub(r'xmlns(:\w+)?="[^"]*"', "", page)
    assert re.findall(r"(?:https?:)?//\w|url\((?!#)|<script|<link|<img|@import|src=", inside) == []
    assert "default-src 'none'" in page
    assert page.count("<svg") == 1
    identifiers = re.findall(r'\bid="([^"]*)"', page)
    assert len(identifiers) == len(set(identifiers))


def test_names_in_records_are_text(storage, history):
    name = "<script>alert(1)</script>"
    runs = stepped(model=name, versions=lambda n: {name: str(n)})
    for record in runs.values():
        record["commit_info"]["id"] = name + record["commit_info"]["id"]
    *_, page = history(storage(runs))
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_changed_workloads_come_before_the_others(storage, history):
    runs = {n: run(n, timed(0.1, lane="jax"), timed(0.1 if n < 10 else 0.2)) for n in range(20)}
    *_, page = history(storage(runs))
    first, second = page.index("<h3>torch-mlp-inference-b1</h3>"), page.index("<h3>jax-mlp-inference-b1</h3>")
    assert first < page.index("Workloads without a change: 1") < second


# Bad input


def of_pytest(number, seconds, node="here", name="bench/test_words.py::test_count"):
    """A file of pytest-benchmark's that fwbench had no part in."""
    stats = {"median": seconds, "mean": seconds, "stddev": 0.0, "rounds": 5}
    return {
        "datetime": (BEGUN + timedelta(days=number)).isoformat(),
        "commit_info": {"id": commit(number)},
        "machine_info": {"node": node},
        "benchmarks": [{"fullname": name, "stats": stats}],
    }


def test_plain_benchmarks_have_a_history_by_machine(storage, history):
    runs = {n: of_pytest(n, seconds) for n, seconds in enumerate(STEP)}
    records, _ = series(storage(runs), journals=True)
    records += [dataclasses.replace(records[0], made=BEGUN - timedelta(days=n), machine_info={}) for n in (1, 2)]
    unnamed, here = histories([*records, records[3]])
    assert [len(of.runs) for of in (unnamed, here)] == [2, 20]
    code, out, _, page = history(storage(runs))
    assert code == 0
    assert out.startswith("here: 1 change point")
    assert f"git switch --detach {commit(10)[:10]} && pytest bench/test_words.py::test_count --benchmark-only" in out
    assert "test_count" in page


STEP = [0.1 * (1 + 0.002 * (n % 3)) * (1.2 if n >= 10 else 1) for n in range(20)]
COLUMNS = ["result", "params", "version", "started_at", "duration", "stats_ci_99_a"]


def of_asv(number, results, **top):
    """A file of asv's, version 2, by benchmarks' names."""
    date = int((BEGUN + timedelta(days=number)).timestamp() * 1000)
    of = {"version": 2, "commit_hash": commit(number), "date": date, "env_name": "py3.13", "result_columns": COLUMNS}
    return {**of, "params": {"machine": "box"}, "results": results, **top}


@pytest.fixture
def asv(tmp_path):
    """Writes asv's results of one machine; returns the folder."""

    def make(runs):
        folder = tmp_path / "results" / "box"
        folder.mkdir(parents=True)
        (folder / "machine.json").write_text('{"machine": "box", "version": 1}')
        (folder.parent / "benchmarks.json").write_text('{"version": 2}')
        for number, run in enumerate(runs):
            # A number that JSON has not is what asv writes for what was skipped.
            (folder / f"{number:08x}-py3.13.json").write_text(run if isinstance(run, str) else json.dumps(run))
        return folder.parent

    return make


def test_results_of_asv_have_a_history(asv, history):
    runs = [
        of_asv(
            number,
            {
                "words.Count.time_all": [[seconds, None, math.nan], [["1", "'a'", "None"]], "v2", 1, 2.0],
                "words.time_old": [[seconds / 2 if number > 4 else 9.0], [], "v2" if number > 4 else "v1"],
                "words.peakmem_all": [[1e6 * seconds], [], "v1"],
                "words.time_failed": None,
            },
        )
        for number, seconds in enumerate(STEP)
    ]
    # A whole number of seconds has no point in JSON.
    runs[3]["results"]["words.time_old"][0] = [9]
    code, out, err, page = history(asv(runs))
    assert (code, err) == (0, "")
    assert out.startswith("box, py3.13: 2 change points, 2 for the worse, in 2 series of 20 runs")
    changed = [line.split()[0] for line in out.splitlines() if " step " in line]
    assert changed == ["words.Count.time_all(1)", "words.time_old"]
    assert f"asv continuous {commit(9)[:10]} {commit(10)[:10]} --bench words.Count.time_all\n" in out
    assert "peakmem" not in page


def test_each_environment_of_asv_has_its_own(asv, history):
    runs = [of_asv(n // 2, {"time_x": [[s], []]}, env_name=f"py3.{n % 2}") for n, s in enumerate(STEP)]
    code, out, _, _ = history(asv(runs))
    assert code == 0
    assert [line.partition(":")[0] for line in out.splitlines()[:-1] if line.startswith("box")] == [
        "box, py3.0",
        "box, py3.1",
    ]


@pytest.mark.parametrize(
    "spoilt",
    [
        "{",
        "[]",
        "[" * 100_000,
        of_asv(3, {"time_x": [[0.1], []]}, date=1e300),
        of_asv(3, {"time_x": [[0.1], []]}, date="yesterday"),
        of_asv(3, {"time_x": {"result": 0.1}}),
        of_asv(3, {"time_\ud800": [[0.1], []]}),
        of_asv(3, [], commit_hash=None),
    ],
)
def test_a_damaged_file_of_asv_is_left_out_with_a_sentence(asv, history, spoilt):
    runs = [of_asv(n, {"time_x": [[s], []], "time_y": [s, 7], "time_z": [[s], [3, "x"]]}) for n, s in enumerate(STEP)]
    code, out, err, _ = history(asv([*runs[:5], spoilt, *runs[6:]]))
    assert (code, err) == (0, "")
    assert "in 1 series of 19 runs" in out
    (said,) = [line for line in out.splitlines() if line.startswith("left out")]
    assert "00000005-py3.13.json" in said


def refused(result, sentence):
    code, out, err, page = result
    assert (code, out, page) == (4, "", "")
    assert len(err.splitlines()) == 1
    assert re.fullmatch(f"fwbench: {sentence}\n", err), err


def test_a_storage_without_a_trend_is_a_sentence(tmp_path, storage, history):
    refused(history(tmp_path / "none"), ".*none does not exist: name a storage folder; `pytest .*` makes one")
    file = write(tmp_path / "file.json", run(1, timed(0.1)))
    refused(history(file), ".*file.json is no folder: name a storage folder; .*")
    folder = storage({})
    refused(history(folder), ".*.benchmarks holds no records: `pytest .*")
    refused(history(storage({1: run(1, timed(0.1))})), ".*.benchmarks holds one run, and a trend needs several: .*")
    other = run(2, timed(0.1), machine=dataclasses.replace(MACHINE, cpu="Another CPU"))
    refused(history(storage({2: other})), ".* holds one run of each machine, and a trend needs several: .*")


def test_damaged_files_are_left_out_with_a_sentence(storage, history):
    folder = storage(stepped())
    (folder / "damaged.json").write_text('{"benchmarks": [')
    code, out, err, page = history(folder)
    assert (code, err) == (0, "")
    (said,) = [line for line in out.splitlines() if "damaged.json" in line]
    assert said.startswith("left out of the series: ")
    assert "damaged.json is not JSON (line 1: Expecting value)" in said
    assert "damaged.json is not JSON" in page


def test_damaged_files_alone_are_a_sentence(storage, history):
    folder = storage({})
    (folder / "damaged.json").write_text("{")
    refused(history(folder), r".* holds no run that has benchmarks \(left out of the series: .*damaged.json is not .*")


def test_a_page_that_cannot_be_written_is_a_sentence(tmp_path, storage, capsys):
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "history.html"
    assert main(["history", str(storage(stepped())), "--output", str(out)]) == 4
    assert capsys.readouterr().err.endswith("cannot be written (File exists): choose another file with --output\n")
