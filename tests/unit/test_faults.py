"""What goes wrong on purpose: what the user is told of it, and that the next benchmark is as if nothing had."""

import dataclasses
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from types import SimpleNamespace

import pytest
from pytest_benchmark.storage.file import FileStorage

from fwbench.commands import selftest
from fwbench.commands.cli import main
from fwbench.compare import evidence
from fwbench.errors import UserError
from fwbench.machine import machine, oom
from fwbench.machine.oom import Kills
from fwbench.models import Model
from fwbench.models.inputs import normal
from fwbench.models.project import Project
from fwbench.parity.store import Key, Proved
from fwbench.plugin.saving import take_over
from fwbench.record import files, journal, lanes
from fwbench.record.journal import Journal
from fwbench.record.lanes import Lane
from fwbench.record.measurement import Failure
from fwbench.record.reading import PROOFS, read
from fwbench.record.workload import Workload
from fwbench.worker import memory
from fwbench.worker import prove as proving
from fwbench.worker.client import Workers
from tests.unit.processes import grandchildren
from tests.unit.suites import benchmarks
from tests.unit.suites import in_process as in_this_process
from tests.unit.suites import suite as noops

linux = pytest.mark.skipif(sys.platform != "linux", reason="limits memory and reads /proc")

# Memory

GREEDY = """
import os
from pathlib import Path

import numpy as np

from fwbench.frameworks.noop.adapter import Empty, Noop


class Greedy(Empty):
    def __init__(self, batch):
        super().__init__()
        self.batch = batch
        with Path(__file__).with_name("processes").open("a") as processes:
            print(os.getpid(), file=processes)

    def step(self):
        if self.batch == 7:
            # As C++ ends a process in which nothing catches it.
            os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\\n")
            os.abort()
        # 64 MiB a sample, of which no page is ever touched.
        np.empty(self.batch << 26, np.uint8)


class Framework(Noop):
    def unavailable(self, workload, model):
        return None

    def build(self, workload, model, weights, horizon=0):
        return Greedy(workload.batch_size)


FRAMEWORK = Framework()
"""


@pytest.fixture
def greedy(tmp_path, monkeypatch):
    """Makes workers of a lane whose calls ask for 64 MiB a sample, in processes that get 2 GiB of address space."""
    (tmp_path / "greedy_lane.py").write_text(GREEDY)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nulimit -v 2097152\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    lane = Lane(
        name="greedy", framework="greedy", title="greedy", adapter="greedy_lane:FRAMEWORK", distributions=("numpy",)
    )
    monkeypatch.setitem(lanes.OWN, "greedy", lane)
    project = Project(tmp_path, (tmp_path,))
    project.add([Model("net", greedy="greedy_lane:Greedy", inputs=normal(1))])
    made = []

    def make(**options):
        made.append(Workers(machine(), "cpu", {"greedy": str(python)}, project, **options))
        return made[-1]

    yield make
    for workers in made:
        workers.close()


def asked(batch, **fields):
    return Workload("greedy", "net", batch_size=batch, **fields)


@linux
def test_memory_that_runs_out_costs_its_own_benchmark_alone(greedy, protocol):
    workers = greedy()
    failure = workers.measure(asked(64), protocol, lambda _: None).failure
    assert (failure.kind, failure.stage) == ("out_of_memory", "compile")
    assert failure.message == (
        "memory ran out when 4.00 GiB were asked for (MemoryError: Unable to allocate 4.00 GiB for an array with "
        "shape (4294967296,) and data type uint8); choose a smaller batch than 64, or let --fwbench-fit-batch halve it "
        "until it fits"
    )
    after = workers.measure(asked(1), protocol, lambda _: None)
    assert after.failure is None
    assert len(after.samples) == protocol.min_rounds
    workers.close()
    assert not grandchildren(os.getpid())


@linux
def test_a_process_that_ends_with_bad_alloc_has_run_out_of_memory(greedy, protocol):
    workers = greedy()
    failure = workers.measure(asked(7), protocol, lambda _: None).failure
    assert failure.kind == "out_of_memory"
    assert failure.message.startswith("memory ran out (the worker was killed by SIGABRT: std::bad_alloc); choose a ")
    assert workers.measure(asked(1), protocol, lambda _: None).failure is None


@linux
def test_a_batch_is_halved_in_fresh_processes_until_it_fits(greedy, protocol, tmp_path):
    told = []
    found = greedy(fit_batch=True).measure(asked(64), protocol, told.append)
    assert (found.failure, found.workload, found.unfit, found.asked) == (None, asked(16), (64, 32), asked(64))
    assert [stage for stage in told if "batch" in stage] == [
        "out of memory, again with batch 32",
        "out of memory, again with batch 16",
    ]
    assert len(set((tmp_path / "processes").read_text().split())) == 3


@linux
def test_where_no_batch_fits_all_that_were_tried_are_named(greedy, protocol):
    found = greedy(fit_batch=True).measure(asked(192, accumulate=96, mode="train_step"), protocol, lambda _: None)
    assert (found.workload.batch_size, found.unfit, found.failure.kind) == (192, (192, 96), "out_of_memory")
    assert found.failure.message.startswith(
        "no batch fits into memory, of those that were tried (192, 96); at batch 96: memory ran out when 6.00 GiB"
    )


@linux
@pytest.mark.parametrize(("rises", "kind"), [(1, "out_of_memory"), (0, "crashed")])
def test_the_kernel_says_whether_it_killed_a_worker_for_lack_of_memory(greedy, protocol, monkeypatch, rises, kind):
    counts = iter([3, 3 + rises])
    monkeypatch.setattr(oom, "kills", lambda: Kills(next(counts), "memory.events"))

    def kill(stage):
        if stage == "latency":
            (pid,) = grandchildren(os.getpid())
            os.kill(pid, signal.SIGKILL)

    endless = dataclasses.replace(protocol, min_rounds=10**9)
    failure = greedy().measure(asked(1), endless, kill).failure
    assert (failure.kind, failure.stage) == (kind, "latency")
    assert failure.message == (
        "the kernel killed the worker because memory ran out (oom_kill in memory.events rose from 3 to 4)"
        if rises
        else "the worker was killed by SIGKILL, and not by the kernel for lack of memory (oom_kill in memory.events "
        "stayed 3)"
    )


@pytest.mark.parametrize("known", [Kills(1, "x"), None])
def test_what_nobody_counts_stays_a_crash(monkeypatch, known):
    """Nor is another signal the kernel's for lack of memory, whatever it has killed meanwhile."""
    monkeypatch.setattr(oom, "kills", lambda: Kills(5, "x") if known else None)
    number = "SIGSEGV" if known else "SIGKILL"
    failure = Failure("crashed", f"the worker was killed by {number}")
    assert memory.explained(failure, known) is failure


V2 = "low 0\nhigh 0\nmax 7\noom 2\noom_kill 4\noom_group_kill 9\n"
V1 = "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n"
VMSTAT = "nr_free_pages 1\noom_kill 6\n"


@pytest.mark.parametrize(
    ("group", "files", "found"),
    [
        ("0::/user/me", {"sys/fs/cgroup/user/me/memory.events": V2, "proc/vmstat": VMSTAT}, 4),
        # In a container, which sees its own group as the root of all.
        ("0::/host/box", {"sys/fs/cgroup/memory.events": V2, "proc/vmstat": VMSTAT}, 4),
        ("7:cpu,memory:/a\n0::/", {"sys/fs/cgroup/memory/a/memory.oom_control": V1, "proc/vmstat": VMSTAT}, 5),
        ("7:cpu,memory:/a\n0::/", {"sys/fs/cgroup/memory/memory.oom_control": V1}, 5),
        # The root of all groups counts nothing.
        ("0::/", {"proc/vmstat": VMSTAT}, 6),
        ("0::/", {"proc/vmstat": "nr_free_pages 1\n"}, None),
        (None, {}, None),
    ],
)
def test_the_kernels_counter_is_that_of_our_group_or_else_the_machines(tmp_path, group, files, found):
    if group:
        files = {**files, "proc/self/cgroup": f"{group}\n"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    told = oom.kills(tmp_path)
    assert (told and told.count) == found
    if told:
        assert told.source.lstrip("/") in files


__all__ = ["noops"]

# Storage

ONLY = ("--benchmark-only", "--benchmark-max-time=0.2", "-p", "no:cacheprovider")


@pytest.fixture
def stored(noops):
    """A suite of three benchmarks of a fixed step, which take about a second each."""
    source = benchmarks().replace('lanes=["noop"]', 'lanes=["noop"], modes=["fixed"]')
    noops.makepyfile(test_suite=source)
    return noops


def storing(suite, *arguments):
    """The suite in a process of its own, whose output no limit on files reaches."""
    command = [sys.executable, "-m", "pytest", *ONLY, *arguments]
    return subprocess.run(command, cwd=suite.path, capture_output=True, text=True)


def kept(suite):
    """What the newest journal holds, by batch size; and how often each."""
    newest = journal.newest(suite.path / ".benchmarks" / "journal")
    whole, _ = journal.lines(newest.read_text()) if newest else ([""], False)
    found = [json.loads(line) for line in whole[1:]]
    assert len({one["workload"]["batch_size"] for one in found}) == len(found)
    return {one["workload"]["batch_size"]: one for one in found}


# No file of this process and its children can be longer than so many bytes: what a full disk does, without root.
LIMITED = """
import resource, pytest
from pathlib import Path

pytest_plugins = ["fwbench.plugin"]


def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
"""


def test_sigkill_of_pytest_loses_no_measurement_and_repeats_none(stored):
    command = [sys.executable, "-m", "pytest", *ONLY]
    process = subprocess.Popen(command, cwd=stored.path, stdout=subprocess.DEVNULL)
    while not kept(stored) and process.poll() is None:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = kept(stored)
    assert before
    done = storing(stored, "--fwbench-resume", "--benchmark-json=x.json")
    assert done.returncode == 0, done.stdout
    assert f"{len(before)} of 3 benchmarks taken from " in done.stdout
    after = kept(stored)
    assert after.keys() == {1, 2, 3}
    assert {size: after[size] for size in before} == before
    saved = json.loads((stored.path / "x.json").read_text())["benchmarks"]
    assert [one["stats"]["data"] for one in saved] == [after[size]["samples"] for size in (1, 2, 3)]
    # What is measured once in a lane was measured by the run that was killed.
    assert [size for size, one in after.items() if "matrix product" in one["stages"]] == [1]


def test_a_disk_that_is_full_while_measuring_ends_the_run_and_keeps_what_was_measured(stored):
    stored.makeconftest(
        LIMITED
        + """
def pytest_runtest_teardown(item):
    (path,) = Path(".benchmarks/journal").glob("*")
    limit(path.stat().st_size + 10)
"""
    )
    done = storing(stored)
    assert done.returncode == pytest.ExitCode.INTERRUPTED
    assert "Traceback" not in done.stdout + done.stderr
    path = journal.newest(stored.path / ".benchmarks" / "journal")
    assert f"{path} cannot be written (File too large): free space, and --fwbench-resume goes on " in done.stdout
    # The second is shown, though it could not be kept; the third is not measured.
    assert "noop   fixed  2 " in done.stdout
    assert "noop   fixed  3 " not in done.stdout
    record = read(path)
    assert ([m.workload.batch_size for m in record.measurements], record.notes) == ([1], ())
    stored.makeconftest('pytest_plugins = ["fwbench.plugin"]')


def test_a_disk_that_is_full_at_the_end_leaves_the_older_file_and_no_part_of_a_new_one(stored):
    stored.makeconftest(
        LIMITED
        + """
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish():
    limit(4096)
    return (yield)
"""
    )
    (stored.path / "x.json").write_text("older\n")
    done = storing(stored, "--benchmark-json=x.json", "--benchmark-autosave", "-k", "b1")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "Traceback" not in done.stdout + done.stderr
    path = journal.newest(stored.path / ".benchmarks" / "journal")
    for sentence in ("x.json cannot be written (File too large)", ".json cannot be written (File too large)"):
        assert sentence in done.stdout
    assert f"--fwbench-resume={path} then saves what it holds without measuring it again" in done.stdout
    assert (stored.path / "x.json").read_text() == "older\n"
    left = [found for found in stored.path.rglob("*") if found.is_file() and ".benchmarks" in found.parts]
    assert left == [path]


def test_a_storage_that_cannot_be_written_is_told_before_anything_is_measured(stored):
    (stored.path / "taken").write_text("a file")
    result = in_this_process(stored, *ONLY[:2], "--benchmark-storage=taken")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: */taken cannot be written (*/taken is no folder), and each measurement is kept *"]
    )
    result.stdout.no_fnmatch_line("*build, compile*")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_told_too(tmp_path):
    tmp_path.chmod(0o500)
    assert files.unwritable(tmp_path / "journal") == "Permission denied"


def test_a_file_system_that_is_read_only_is_told_too(tmp_path, monkeypatch):
    assert files.unwritable(tmp_path / "a" / "b") == ""
    # Nobody but root may mount one.
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert files.unwritable(tmp_path / "a" / "b") == "Permission denied"
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_RDONLY))
    assert files.unwritable(tmp_path / "a" / "b") == "Read-only file system"


def test_two_runs_that_end_at_once_take_two_numbers(tmp_path):
    together = Barrier(6)

    def end(number):
        storage = FileStorage(str(tmp_path), SimpleNamespace(info=lambda *_: None), "machine")
        take_over(SimpleNamespace(storage=storage), pytest.fail)
        for _ in range(4):
            together.wait()
            storage.save({"number": number}, "same" if number % 2 else f"other{number}")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(end, range(6)))
    saved = sorted((tmp_path / "machine").iterdir())
    assert [path.name[:4] for path in saved] == [f"{number:04}" for number in range(1, 25)]
    assert sorted(json.loads(path.read_text())["number"] for path in saved) == sorted([*range(6)] * 4)


def test_two_runs_that_begin_at_once_have_two_journals(tmp_path, monkeypatch):
    """Two containers that share a storage may have the same process number."""
    monkeypatch.setattr(journal.os, "getpid", lambda: 1)
    runs = [Journal(tmp_path, {"run": number}) for number in range(3)]
    for run in runs:
        run.append({"of": runs.index(run)})
    assert len({run.path for run in runs}) == 3
    for number, run in enumerate(runs):
        header, record = map(json.loads, run.path.read_text().splitlines())
        assert (header["run"], record) == (number, {"of": number})
        run.close()


def test_two_selftests_do_not_write_into_one_file(tmp_path, monkeypatch, capsys):
    path = tmp_path / "suites.jsonl"

    def meanwhile(*_):
        monkeypatch.setattr(selftest, "run", lambda *_: pytest.fail("a suite was run"))
        assert main(["selftest", "--suites=1", f"--out={path}"]) == 4
        return {"slowdown": 0.0, "loaded": False, "number": 0, "benchmarks": []}

    monkeypatch.setattr(selftest, "run", meanwhile)
    # Its report wants benchmarks.
    with pytest.raises(statistics.StatisticsError):
        main(["selftest", "--suites=1", f"--out={path}"])
    assert f"another `fwbench selftest` writes into {path}: give --out another file." in capsys.readouterr().err
    assert [suite["number"] for suite in evidence.read(path).suites] == [0]


@pytest.mark.parametrize("content", ["older\n", None])
def test_a_file_that_could_not_be_written_is_as_it_was(tmp_path, content):
    path = tmp_path / "report.html"
    if content:
        path.write_text(content)
    program = """
import pathlib, resource, sys
from fwbench.record import files

resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    files.write(pathlib.Path(sys.argv[1]), "x" * 2000)
except OSError as error:
    print(error.filename, error.strerror, sep=": ")
"""
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == f"{path}: File too large\n"
    assert [(found.name, found.read_text()) for found in tmp_path.iterdir()] == (
        [(path.name, content)] if content else []
    )


def test_a_proof_that_cannot_be_kept_is_told_with_what_it_came_to(tmp_path, monkeypatch):
    """The proofs' folder is a file."""
    model = Model("mine", torch="nets:Net", jax="nets:Other", inputs=normal(3), classes=2)
    found = Proved("mine", "jax", "torch", "proved", "", {}, {}, Key("", {}, {}))

    class Proving:
        def __init__(self, *_):
            self.pid = 0

        def send(self, job):
            return

        def receive(self, until):
            return {"proved": dataclasses.asdict(found)}

        def close(self):
            return

    monkeypatch.setattr(proving, "Channel", Proving)
    (tmp_path / PROOFS).parent.mkdir()
    (tmp_path / PROOFS).write_text("a file")
    with pytest.raises(UserError, match=r"^mine: jax is proved, but .*proofs cannot be written \(File exists\)"):
        proving.prove(model, "jax", Project(tmp_path, ()))
