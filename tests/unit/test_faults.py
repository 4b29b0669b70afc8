"""Faults, one a test, each brought about for real: what the user sees of it and what survives it.

The table in docs/reliability.md names each of these tests.
"""

import contextlib
import dataclasses
import functools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace

import pytest
from pytest_benchmark.storage.file import FileStorage

import fwbench
from fwbench.machine import machine, oom
from fwbench.machine.disturbances import slowed
from fwbench.machine.oom import Kills
from fwbench.models.project import Project
from fwbench.plugin.saving import take_over
from fwbench.record import files, journal
from fwbench.record.journal import Journal
from fwbench.record.lanes import LANES
from fwbench.record.measurement import Failure, Measurement
from fwbench.record.reading import read
from fwbench.record.workload import Workload
from fwbench.worker.client import channel, interrupts, scratch, server, starting
from fwbench.worker.client.conversation import crashed, explained
from fwbench.worker.client.scratch import Scratch
from fwbench.worker.client.starting import PACKAGE
from fwbench.worker.client.workers import Workers
from fwbench.worker.turns.pairs import Pairs
from fwbench.worker.turns.sides import sides
from tests.unit import processes
from tests.unit.plain.plain_lane import LANE
from tests.unit.processes import alive, as_in_a_terminal, children, descendants, gone, grandchildren, started_with
from tests.unit.shared import ALONE, UNTIMED, extension, needs
from tests.unit.suites import benchmarks, commit
from tests.unit.suites import in_process as in_this_process
from tests.unit.suites import suite as noops

PAGE = PACKAGE.parent / "docs" / "reliability.md"
PLAIN = Path(__file__).parent / "plain"
# Growing deadlines, in seconds: the first is enough, but for a machine that is busy otherwise.
DEADLINES = (0.5, 4.0, 30.0)
PROTOCOL = dataclasses.replace(UNTIMED, deadline=60.0)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and forks")


@pytest.fixture(scope="module", autouse=True)
def others():
    """Children that were here before, such as the browser that tests of the page share, are none of these tests'."""
    there = {*processes.children(os.getpid())}
    every = processes.children

    def children(parent):
        return [pid for pid in every(parent) if pid not in there]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "children", children)
        patch.setitem(globals(), "children", children)
        yield


def arrange(monkeypatch, base):
    """Make a folder for temporary files in `base`, and the environment in which a worker finds the faults."""
    made = base / "tmp"
    made.mkdir(exist_ok=True)
    monkeypatch.setenv("TMPDIR", str(made))
    monkeypatch.setattr(scratch.tempfile, "tempdir", str(made))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (PLAIN, PACKAGE.parent))))
    monkeypatch.setenv("FAULT_COMES", str(base / "comes"))
    monkeypatch.setitem(LANES._all, LANE.name, LANE)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    return made


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The system's folder for temporary files of this test alone."""
    return arrange(monkeypatch, tmp_path)


class Harness:
    """Workers that measure networks of tests/unit/plain/faults.py."""

    def __init__(self, comes, pythons=None, **options):
        self.comes = comes
        self.project = Project(comes.parent, ())
        self.workers = Workers(machine(), "cpu", pythons or {}, self.project, **options)
        # The processes of the last measurement, as they were at each of its stages.
        self.pids = set()

    def measure(self, fault, at=None, protocol=PROTOCOL, **fields):
        """What comes of a network, `at` being called at each stage."""
        self.pids.clear()
        self.comes.unlink(missing_ok=True)
        if fault not in self.project.models:
            self.project.add([model(fault)])

        def tell(stage):
            self.pids.update(descendants(os.getpid()))
            if at:
                at(stage)

        workload = Workload(LANE.name, fault, **{"batch_size": fields.get("devices", 1), **fields})
        return self.workers.measure(workload, protocol, tell)

    def failure(self, fault, told="", deadlines=DEADLINES, **options):
        """How a network that does not come back fails, once it has come to its fault in time, so that this is told."""
        for deadline in deadlines:
            failure = self.measure(fault, protocol=dataclasses.replace(PROTOCOL, deadline=deadline), **options).failure
            if self.comes.exists() and told in failure.message:
                break
        return failure

    @property
    def worker(self):
        (pid,) = grandchildren(os.getpid())
        return pid

    @property
    def channel(self):
        return self.workers._servers[LANE.name].channel

    @property
    def server(self):
        """The lane's server, which has been asked for the network's initial values and waits for another job."""
        return self.channel._process.pid

    def settle(self):
        """Wait until the last worker has ended."""
        self.workers._servers[LANE.name].settle()

    @property
    def works(self):
        """Whether the next workload is measured as if nothing had been."""
        return self.measure("Net").failure is None


def model(fault):
    return fwbench.Model(fault, plain=f"faults:{fault}", inputs=fwbench.normal(2))


def until_it_comes(lives=lambda: True):
    """Wait until somebody comes to a fault, for as long as this is so."""
    while not Path(os.environ["FAULT_COMES"]).exists():
        assert lives()
        time.sleep(0.01)


def of_this_test():
    """All living processes that this test has started, and those started by them."""
    return started_with(f"FAULT_COMES={os.environ['FAULT_COMES']}")


def comes(process):
    """All that a process has started, once one of them comes to a fault."""
    until_it_comes(lambda: process.poll() is None)
    return of_this_test() - {process.pid}


@pytest.fixture
def harnesses(folder, tmp_path):
    """Makes harnesses, which leave no file and no process."""
    made = []

    def make(*arguments, **options):
        made.append(Harness(tmp_path / "comes", *arguments, **options))
        return made[-1]

    yield make
    for harness in made:
        harness.workers.close()
    assert list(folder.iterdir()) == []
    assert gone(of_this_test())


@pytest.fixture
def fresh(harnesses):
    """One whose server is started by this test, and ended."""
    return harnesses()


@pytest.fixture(scope="module")
def lasting(tmp_path_factory):
    """One server for all tests but those that need a fresh one; it leaves no file and no process."""
    base = tmp_path_factory.mktemp("faults")
    harness = Harness(base / "comes")
    yield harness
    harness.workers.close()
    assert list(base.glob("tmp/*")) == []
    assert gone(started_with(f"FAULT_COMES={harness.comes}"))


@pytest.fixture
def harness(lasting, monkeypatch):
    """One that other tests have used; nothing but its server is left."""
    arrange(monkeypatch, lasting.comes.parent)
    if not lasting.workers._servers:
        assert lasting.works
    yield lasting
    lasting.settle()
    assert gone(of_this_test() - {lasting.server})


# A worker that does not come back


@pytest.mark.parametrize(
    ("fault", "where"),
    [("Hangs", "hang"), ("IgnoresSigterm", "hang"), ("HangsInC", "__call__"), ("FloodsStandardError", "__call__")],
)
def test_a_hung_worker_ends_at_its_deadline_and_says_where_it_was(harness, fault, where):
    failure = harness.failure(fault, f" in {where} (")
    assert (failure.kind, failure.stage) == ("timed_out", "compile")
    said = (
        rf"no result within the deadline of [\d.]+ s; the worker was killed during compile in {where} \(.*faults.py, "
    )
    assert re.match(said, failure.message)
    assert failure.detail.count(f" in {where}\n") == 1
    assert len(failure.detail) < 10_000
    assert len(harness.channel._said) <= channel._KEPT
    assert gone(harness.pids - set(children(os.getpid())))
    assert harness.works


@pytest.mark.parametrize("fault", ["BlocksSignals", "Stops", "WaitsInTheKernel"])
def test_a_worker_that_no_signal_reaches_ends_at_its_deadline(harness, monkeypatch, fault):
    monkeypatch.setattr(channel, "_BEGINS", 0.2)
    failure = harness.failure(fault, "did not tell")
    assert failure.kind == "timed_out"
    assert failure.message.endswith("; the worker was killed during compile, and did not tell where it was")
    assert gone(harness.pids - set(children(os.getpid())))
    assert harness.works


def test_the_helpers_of_a_hung_worker_end_with_it(harness):
    assert harness.failure("HelpedAndHangs").kind == "timed_out"
    assert of_this_test() == {harness.server}
    assert harness.works


def test_what_a_killed_worker_leaves_in_the_folder_for_temporary_files_goes_with_it(fresh, folder):
    assert fresh.failure("LeavesFilesAndHangs").kind == "timed_out"
    # The server's own, and one for networks' initial values, of which this lane tells none.
    assert [path.name for path in folder.glob("*/*")] == ["fwbench-owner.json"] * 2
    # A link among them is not followed.
    assert fresh.comes.exists()


# A worker that ends otherwise than it should


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("WritesGarbage", "what the worker sent is no message: 'Segmentation faults are fun'; it was killed"),
        ("WritesForEver", "what the worker sent is no message: a line of more than 1 MiB; it was killed"),
        (
            "SendsAnotherRecord",
            "what the worker sent is no message: a measurement without its parts (TypeError: Measurement.__init__() "
            "missing 1 required positional argument: 'workload'); it was killed",
        ),
        ("WritesHalfALine", "the worker ended with exit code 3 before it had a result"),
        ("ClosesThePipe", "the worker ended with exit code 1 before it had a result"),
        ("ExitsWith0", "the worker ended with exit code 0 before it had a result"),
    ],
)
def test_a_worker_that_does_not_keep_to_its_messages_fails_alone(harness, monkeypatch, fault, sentence):
    monkeypatch.setattr(channel, "_LONGEST", 1 << 20)
    failure = harness.measure(fault).failure
    assert (failure.kind, failure.stage) == ("crashed", "compile") or fault == "ClosesThePipe"
    assert failure.message == sentence
    assert gone(harness.pids - set(children(os.getpid())))
    assert harness.works


def test_a_worker_that_hangs_at_its_end_has_given_its_record(fresh, monkeypatch):
    monkeypatch.setattr(server, "END_DEADLINE", 0.3)
    converse, behind = server.Server._converse, []

    def watched(server, *job):
        behind.append(server._ending)
        return converse(server, *job)

    monkeypatch.setattr(server.Server, "_converse", watched)
    assert fresh.measure("HangsAtItsEnd").failure is None
    pid = fresh.worker
    assert fresh.works
    assert not alive(pid)
    # No job was sent behind a worker that was ending, nor one for initial values: it would wait for its deadline.
    assert behind == [False] * 4


def test_processes_that_a_worker_leaves_behind_end_with_it(harness):
    assert harness.measure("Helped").failure is None
    harness.settle()
    assert of_this_test() == {harness.server}
    assert harness.works


# The server


def test_a_server_that_hangs_while_it_imports_a_framework_is_given_up(fresh, monkeypatch):
    preloading = dataclasses.replace(LANE, adapter="faults:FRAMEWORK")
    monkeypatch.setitem(LANES._all, LANE.name, preloading)
    for deadline in DEADLINES:
        monkeypatch.setattr(server, "START_DEADLINE", deadline)
        failure = fresh.measure("Net").failure
        if " in hang (" in failure.message:
            break
    assert failure.kind == "timed_out"
    sentence = f"no result within the deadline of {deadline:g} s; it was killed before its first stage in hang ("
    assert failure.message.startswith(f"no worker could be started with {sys.executable}: {sentence}")
    assert " in preload\n" in failure.detail
    assert of_this_test() == set()
    monkeypatch.setitem(LANES._all, LANE.name, LANE)
    monkeypatch.setattr(server, "START_DEADLINE", 60.0)
    assert fresh.works


@pytest.mark.parametrize(
    ("number", "kind", "sentence"),
    [
        (signal.SIGKILL, "crashed", "the worker was killed by SIGKILL"),
        pytest.param(
            signal.SIGSTOP,
            "timed_out",
            r"no result within the deadline of [\d.]+ s; the worker was killed during compile",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_server_that_is_killed_or_stopped_takes_its_worker_with_it(harness, monkeypatch, number, kind, sentence):
    for name, module in (("_BEGINS", channel), ("_ENDS", channel), ("KILL_DEADLINE", server)):
        monkeypatch.setattr(module, name, 0.2)
    assert harness.works

    def stop(stage):
        if stage == "compile":
            until_it_comes()
            harness.pids.update(descendants(os.getpid()))
            os.kill(harness.server, number)

    deadlines = (60.0,) if kind == "crashed" else DEADLINES
    failure = harness.failure("HelpedAndHangs", deadlines=deadlines, at=stop)
    assert failure.kind == kind
    assert re.match(sentence, failure.message)
    assert len(harness.pids) >= 5
    assert gone(harness.pids)
    assert harness.works


# Several ranks

KILLED = (
    r"rank 1 of 2 was killed by SIGKILL, and not by the kernel for lack of memory \(.*\)|.* was killed by SIGKILL .*"
)


@pytest.fixture
def two(harness, monkeypatch):
    """Workers whose machine has two cores, whatever this one has."""
    return of_two(harness, monkeypatch)


def of_two(harness, monkeypatch):
    if extension("cluster") is None:
        pytest.skip("the extension cluster is not here")
    cores = tuple(sorted(os.sched_getaffinity(0)))
    monkeypatch.setattr(harness.workers, "_machine", dataclasses.replace(machine(), cpus=cores, threads=len(cores)))
    return harness


def test_ranks_measure_together_and_leave_nothing(fresh, folder, monkeypatch):
    two = of_two(fresh, monkeypatch)
    found = two.measure("Net", devices=2)
    assert found.failure is None
    assert [(rank.rank, rank.settings) for rank in found.ranks] == [(0, {}), (1, {})]
    assert len(found.samples) == 5
    assert found.value("join_time") > 0
    if len(os.sched_getaffinity(0)) > 1:
        assert not set(found.ranks[0].cpus) & set(found.ranks[1].cpus)
    # Already when the measurement is here.
    assert of_this_test() == {two.server}
    two.workers.close()
    assert gone(of_this_test())
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("fault", "kind", "sentence"),
    [
        ("SecondRankIsKilled", "crashed", KILLED),
        ("SecondRankExits", "crashed", "rank 1 of 2 ended with exit code 3 before it had a result"),
        ("SecondRankRaises", "error", "rank 1 of 2: RuntimeError: this batch is cursed"),
    ],
)
def test_a_rank_that_ends_is_named_and_takes_the_others_with_it(two, fault, kind, sentence):
    failure = two.measure(fault, devices=2).failure
    assert (failure.kind, failure.stage) == (kind, "compile")
    assert re.fullmatch(sentence, failure.message)
    assert gone(of_this_test() - {two.server})
    assert two.works


def test_a_rank_that_hangs_is_told_from_those_that_wait_for_it(two, monkeypatch):
    monkeypatch.setattr(channel, "_BEGINS", 0.5)
    failure = two.failure("SecondRankStops", "rank 0 in of_the_second_rank (", devices=2)
    assert (failure.kind, failure.stage) == ("timed_out", "compile")
    assert re.match(
        r"no result within the deadline of [\d.]+ s; the ranks were killed during compile: rank 0 in "
        r"of_the_second_rank \(.*faults.py, line \d+\); rank 1 did not tell where it was$",
        failure.message,
    )
    assert gone(of_this_test() - {two.server})
    assert two.works


@pytest.mark.parametrize(
    ("adapter", "sentence"),
    [
        ("OTHER_VERSION", r"the ranks do not agree: numpy.__version__ is 0.1 in rank 1, and none in rank 0; start all"),
        ("OTHER_SOURCES", r"the ranks do not agree: the source of faults is \w+ in rank 1, and \w+ in rank 0; start"),
    ],
)
def test_ranks_that_disagree_are_one_sentence(two, monkeypatch, tmp_path, adapter, sentence):
    other = tmp_path / "other"
    other.mkdir()
    (other / "faults.py").write_text(f"{PLAIN.joinpath('faults.py').read_text()}\nCHANGED = 1\n")
    monkeypatch.setenv("OTHER_SOURCES", str(other))
    with monkeypatch.context() as context:
        context.setitem(LANES._all, LANE.name, dataclasses.replace(LANE, adapter=f"disagreeing:{adapter}"))
        failure = two.measure("Net", devices=2).failure
    assert (failure.kind, failure.stage) == ("error", "join")
    assert re.match(sentence, failure.message)
    assert two.works


def test_a_port_in_use_is_one_sentence_and_ends_all_ranks(two, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with monkeypatch.context() as context:
            context.setenv("FWBENCH_COORDINATOR", f"127.0.0.1:{port}")
            failure = two.measure("Net", devices=2).failure
    assert (failure.kind, failure.stage) == ("error", "join")
    assert re.match(rf"the first rank cannot listen at port {port} \(.*\): name another by FWBENCH_", failure.message)
    assert two.works


SRUN = """#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift; done
SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_LOCALID=0 exec "$@"
"""


def test_a_rank_that_does_not_come_is_named(two, monkeypatch, tmp_path):
    """By a launcher of Slurm's name that starts the first rank alone."""
    monkeypatch.setattr("fwbench.ext.cluster.ranks.client.DEADLINE", 1.0)
    (tmp_path / "srun").write_text(SRUN)
    (tmp_path / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for name, value in (("SLURM_JOB_ID", "7"), ("SLURM_JOB_NUM_NODES", "2"), ("SLURM_JOB_NODELIST", "localhost")):
        monkeypatch.setenv(name, value)
    failure = two.measure("Net", devices=2).failure
    assert (failure.kind, failure.stage) == ("error", "join")
    assert re.match(r"rank 1 of 2 did not come to localhost:\d+ within 1 s: look whether Slurm has", failure.message)
    assert gone(of_this_test() - {two.server})


# Whoever asks is gone

ASKS = """
import os
from pathlib import Path

from tests.unit.test_faults import LANE, LANES, Harness

LANES._all[LANE.name] = LANE
Harness(Path(os.environ["FAULT_COMES"])).measure("HelpedAndHangs")
"""


def test_nothing_but_files_outlives_a_killed_client(folder):
    asking = subprocess.Popen([sys.executable, "-c", ASKS])
    pids = comes(asking)
    asking.kill()
    asking.wait()
    assert len(pids) >= 4
    assert gone(pids)
    assert len(list(folder.iterdir())) == 2
    scratch.clear()
    assert list(folder.iterdir()) == []


def test_a_server_that_cannot_fork_ends_with_its_pipe(fresh, monkeypatch):
    """As on other systems than Linux, where the kernel tells nobody of a parent's end."""
    configuration = server.configuration
    monkeypatch.setattr(server, "configuration", lambda *of: configuration(*of) | {"fork": False})

    def close(stage):
        if stage == "compile":
            until_it_comes()
            fresh.channel._process.stdin.close()

    failure = fresh.measure("Hangs", at=close).failure
    assert failure.message.startswith("the worker was killed by SIGKILL")


def test_a_server_whose_client_is_gone_before_it_begins_ends(folder):
    preloading = dataclasses.replace(LANE, adapter="faults:FRAMEWORK")
    config = json.dumps(starting.configuration(preloading, (), ""))
    server = subprocess.Popen(starting.command(sys.executable, starting.SERVER, config), stdin=subprocess.PIPE)
    server.stdin.close()
    assert server.wait(timeout=30) == 1


# A run of pytest

SUITE = """
import fwbench

@fwbench.benchmark(fwbench.Model("net", plain="faults:Net", inputs=fwbench.normal(2)), lanes=["plain"])
def test_1(fwbench_measure):
    fwbench_measure()

@fwbench.benchmark(fwbench.Model("hangs", plain="faults:HelpedAndHangs", inputs=fwbench.normal(2)), lanes=["plain"])
def test_2(fwbench_measure):
    fwbench_measure()
"""
CONFTEST = """
from fwbench.record.lanes import LANES
from plain_lane import LANE
LANES._all[LANE.name] = LANE
"""


class Suite:
    """A user's repository, whose second benchmark hangs."""

    def __init__(self, path):
        self.path = path
        path.mkdir()
        (path / "conftest.py").write_text(CONFTEST)
        (path / "test_suite.py").write_text(SUITE)
        (path / ".gitignore").write_text("__pycache__\n.benchmarks\n")

    @contextlib.contextmanager
    def running(self, *options, module="pytest"):
        """A run that has come to its fault, and all processes that it has started."""
        command = [sys.executable, "-m", module, *options]
        # As a shell starts it: with a group of its own, which Ctrl-C goes to.
        with subprocess.Popen(
            command,
            cwd=self.path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=as_in_a_terminal,
        ) as process:
            pids = comes(process)
            try:
                yield process, pids
            finally:
                process.kill()
                assert gone(pids)

    def ended(self, number, *options, **how):
        """The exit code of a run that gets a signal at its fault, and what it says; no process of it is left."""
        with self.running(*options, **how) as (process, pids):
            os.killpg(process.pid, number)
            said, _ = process.communicate(timeout=30)
            assert gone(pids)
        return process.returncode, said

    @property
    def records(self):
        """What the journal holds, every line of it whole."""
        (path,) = self.path.glob(".benchmarks/journal/*.jsonl")
        return [json.loads(line) for line in path.read_text().splitlines()][1:]


@pytest.fixture
def suite(folder, tmp_path):
    return Suite(tmp_path / "suite")


FAST = (
    *(*ALONE, "-p", "fwbench.plugin", "--benchmark-only"),
    *("--benchmark-max-time=0", "--benchmark-min-rounds=5", "--fwbench-set=patience=0", "--fwbench-minutes=0"),
)


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (signal.SIGINT, "KeyboardInterrupt"),
        pytest.param(signal.SIGTERM, "Ended: ended by SIGTERM", marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, "Ended: ended by SIGHUP", marks=pytest.mark.slow),
    ],
)
def test_a_run_that_is_interrupted_ends_in_order(suite, folder, number, told):
    code, said = suite.ended(number, *FAST, "--benchmark-json=run.json")
    assert code == 2
    assert told in said
    assert "1 passed" in said
    assert "fwbench: quick profile on" in said
    assert [record["workload"]["model"] for record in suite.records] == ["net"]
    assert len(json.loads((suite.path / "run.json").read_text())["benchmarks"]) == 1
    assert list(folder.iterdir()) == []


def test_a_second_sigterm_ends_a_run_at_once():
    code = (
        "import os\nfrom fwbench.worker.client.interrupts import in_order\nwith in_order():\n"
        "    for _ in range(2):\n"
        "        try:\n            os.kill(os.getpid(), 15)\n"
        "        except KeyboardInterrupt as error:\n            print(error, flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "ended by SIGTERM\n")


def test_a_signal_that_somebody_else_ignores_stays_ignored():
    """As `nohup` has it."""
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with interrupts.in_order():
        os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    signal.signal(signal.SIGHUP, previous)


def test_a_second_ctrl_c_leaves_no_process(suite, folder):
    with suite.running(*FAST) as (process, pids):
        os.killpg(process.pid, signal.SIGINT)
        while all(map(alive, pids)):
            time.sleep(0.001)
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=30)
        assert gone(pids)
    assert len(suite.records) == 1
    scratch.clear()
    assert list(folder.iterdir()) == []


def test_nothing_but_files_outlives_a_killed_run_and_the_next_removes_them(suite, folder):
    with suite.running(*FAST) as (process, pids):
        process.kill()
        process.wait()
        assert len(pids) > 3
        assert gone(pids)
    assert len(suite.records) == 1
    assert len(list(folder.iterdir())) == 2
    scratch.clear()
    assert list(folder.iterdir()) == []


# A duet


def test_a_side_of_a_duet_that_hangs_is_told_with_where_it_was(suite, folder):
    commit(suite.path)
    project = Project(suite.path, (suite.path,))
    workload = Workload(LANE.name, "Hangs")
    with sides("HEAD", project, {}) as both:
        for deadline in DEADLINES:
            pairs = Pairs(*both, {"Hangs": model("Hangs")}, machine(), "cpu", deadline)
            fault = pairs.play([workload])[workload]
            if " in hang (" in fault.failure.message:
                break
        assert fault.failure.kind == "timed_out"
        told = f"no result within the deadline of {deadline:g} s; the worker was killed during turns in hang ("
        assert fault.failure.message.startswith(told)
        assert " in take_turns\n" in fault.failure.detail
        assert of_this_test() == set()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_a_duet_that_is_interrupted_leaves_neither_process_nor_checkout(suite, folder, number):
    commit(suite.path)
    assert suite.ended(number, *FAST, "--fwbench-against=HEAD", "-k", "test_2")[0] == 2
    assert not (suite.path / ".git" / "worktrees").exists()
    assert list(folder.iterdir()) == []


def test_the_checkout_of_a_killed_duet_goes_with_the_next_run(suite, folder):
    """The repository never knew it."""
    commit(suite.path)
    with suite.running(*FAST, "--fwbench-against=HEAD", "-k", "test_2") as (process, pids):
        process.kill()
        process.wait()
        assert gone(pids)
    assert len(list(folder.glob("fwbench-*/base/.git"))) == 1
    assert not (suite.path / ".git" / "worktrees").exists()
    scratch.clear()
    assert list(folder.iterdir()) == []


# Folders for temporary files

OWNS = """
import time
from fwbench.worker.client.scratch import Scratch
mine = Scratch()
print(mine.path, flush=True)
time.sleep(3600)
"""


@contextlib.contextmanager
def owner():
    with subprocess.Popen([sys.executable, "-c", OWNS], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_only_folders_of_dead_processes_of_ours_are_removed(folder, tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "fwbench-owner.json").write_text('{"pid": 1}')
    (folder / "fwbench-link").symlink_to(precious, target_is_directory=True)
    for name in ("fwbench-results", "fwbench-odd", "another"):
        (folder / name).mkdir()
        (folder / name / "file").touch()
    (folder / "fwbench-odd" / "fwbench-owner.json").symlink_to(precious / "fwbench-owner.json")
    (folder / "fwbench-file").touch()
    before = set(folder.iterdir())
    with owner() as (_, living), owner() as (process, dead):
        (dead / "head").symlink_to(precious, target_is_directory=True)
        process.kill()
        process.wait()
        with Scratch() as mine:
            assert set(folder.iterdir()) == {*before, living, mine.path}
    assert (precious / "fwbench-owner.json").exists()


def test_runs_that_begin_at_the_same_moment_leave_each_others_folders(folder):
    """While all of them find the folder of a dead one."""
    with owner() as (process, dead):
        process.kill()
        process.wait()
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(owner())[1] for _ in range(3)]
        many = subprocess.run([sys.executable, "-c", MANY], capture_output=True, text=True, check=True)
        assert many.stdout == "ok\n"
        assert not dead.exists()
        assert all(path.is_dir() for path in found)


MANY = """
import multiprocessing
from fwbench.worker.client.scratch import Scratch

def make(_):
    for _ in range(50):
        with Scratch() as mine:
            mine.path.joinpath("file").touch()
            assert len(list(mine.path.iterdir())) == 2
    return True

with multiprocessing.get_context("fork").Pool(8) as pool:
    print("ok" if all(pool.map(make, range(8))) else "lost")
"""


# Commands


@needs("proofs")
@pytest.mark.parametrize(
    ("number", "code", "told"),
    [(signal.SIGINT, 130, "fwbench: interrupted"), (signal.SIGTERM, 143, "fwbench: ended by SIGTERM")],
)
def test_fwbench_prove_that_is_interrupted_is_one_sentence(suite, number, code, told):
    (suite.path / "conftest.py").write_text("import faults\n\nfaults.hang()\n")
    ended, said = suite.ended(number, "prove", module="fwbench")
    assert (ended, said.split("\n")) == (code, ["", told, ""])


# Nothing at all


@pytest.mark.slow
def test_ten_workers_in_a_row_leave_nothing(fresh, folder):
    assert fresh.works

    def counted():
        return {
            "processes": of_this_test(),
            "of pytest": len(os.listdir("/proc/self/fd")),
            "of the server": len(os.listdir(f"/proc/{fresh.server}/fd")),
            # A run's facts stay until its end: a probe that this machine makes slow becomes one.
            "files": sorted(path.relative_to(folder) for path in folder.rglob("*") if path.parent.name != "facts"),
        }

    fresh.settle()
    before = counted()
    for fault in ("Helped", "Net", "ExitsWith0") * 3:
        fresh.measure(fault)
    assert fresh.works
    fresh.settle()
    assert counted() == before


def test_the_page_names_these_tests():
    """Each of this file's; tests/ext/test_pages.py has that there are all that it names."""
    here = {name for name in globals() if name.startswith("test_")} - {"test_the_page_names_these_tests"}
    assert here <= set(re.findall(r"`(test_\w+)`", PAGE.read_text(encoding="utf-8")))


# Memory


@pytest.fixture
def greedy(harnesses, tmp_path):
    """Makes harnesses whose processes get 2 GiB of address space."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nulimit -v 2097152\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return functools.partial(harnesses, {LANE.name: str(python)})


def test_memory_that_runs_out_costs_its_own_benchmark_alone(greedy):
    harness = greedy()
    failure = harness.measure("Greedy", batch_size=64).failure
    assert (failure.kind, failure.stage) == ("out_of_memory", "compile")
    assert failure.message == (
        "memory ran out when 4.00 GiB were asked for (MemoryError: Unable to allocate 4.00 GiB for an array with "
        "shape (4294967296,) and data type uint8); choose a smaller batch than 64, or let --fwbench-set fit_batch=true "
        "halve it until it fits"
    )
    after = harness.measure("Greedy")
    assert after.failure is None
    assert len(after.samples) == PROTOCOL.min_rounds


def test_a_process_that_ends_with_bad_alloc_has_run_out_of_memory(greedy):
    harness = greedy()
    failure = harness.measure("Greedy", batch_size=7).failure
    assert failure.kind == "out_of_memory"
    assert failure.message.startswith("memory ran out (the worker was killed by SIGABRT: std::bad_alloc); choose a ")
    assert harness.works


def test_a_batch_is_halved_in_fresh_processes_until_it_fits(greedy):
    told = []
    harness = greedy(fit_batch=True)
    found = harness.measure("Greedy", told.append, batch_size=64)
    assert (found.failure, found.workload.batch_size, found.unfit, found.asked.batch_size) == (None, 16, (64, 32), 64)
    assert [stage for stage in told if "batch" in stage] == [
        "out of memory, again with batch 32",
        "out of memory, again with batch 16",
    ]
    assert len(set(harness.comes.read_text().split())) == 3


def test_where_no_batch_fits_all_that_were_tried_are_named(greedy):
    found = greedy(fit_batch=True).measure("Greedy", batch_size=192, accumulate=96, mode="train_step")
    assert (found.workload.batch_size, found.unfit, found.failure.kind) == (192, (192, 96), "out_of_memory")
    assert found.failure.message.startswith(
        "no batch fits into memory, of those that were tried (192, 96); at batch 96: memory ran out when 6.00 GiB"
    )


@pytest.mark.parametrize(("rises", "kind"), [(1, "out_of_memory"), (0, "crashed")])
def test_the_kernel_says_whether_it_killed_a_worker_for_lack_of_memory(harness, monkeypatch, rises, kind):
    counts = [3]
    monkeypatch.setattr(oom, "kills", lambda: Kills(counts[-1], "memory.events"))

    def kill(stage):
        if stage == "latency":
            counts.append(3 + rises)
            os.kill(harness.worker, signal.SIGKILL)

    endless = dataclasses.replace(PROTOCOL, min_rounds=10**9)
    failure = harness.measure("Net", kill, endless).failure
    assert (failure.kind, failure.stage, failure.signal) == (kind, "latency", signal.SIGKILL)
    assert failure.message == (
        "the worker was killed by SIGKILL, by the kernel, because memory ran out (oom_kill in memory.events rose "
        "from 3 to 4)"
        if rises
        else "the worker was killed by SIGKILL, and not by the kernel for lack of memory (oom_kill in memory.events "
        "stayed 3)"
    )


def test_a_kill_that_nobody_counts_stays_a_crash(monkeypatch):
    monkeypatch.setattr(oom, "kills", lambda: None)
    failure = explained(crashed(-signal.SIGKILL), None)
    assert (failure.kind, failure.signal) == ("crashed", signal.SIGKILL)
    assert failure.message == "the worker was killed by SIGKILL (perhaps by the kernel, out of memory)"


def test_only_the_signal_decides_whether_the_kernel_was_asked_for_memory(monkeypatch):
    """Neither another signal nor a sentence with the signal's name in it, whatever the kernel has killed meanwhile."""
    monkeypatch.setattr(oom, "kills", lambda: Kills(5, "x"))
    for failure in (crashed(-signal.SIGSEGV), Failure("crashed", "SIGKILL is blocked by what the worker sent")):
        assert explained(failure, Kills(1, "x")) is failure


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

ONLY = ("--benchmark-only", "--benchmark-max-time=0.2", "--fwbench-set=patience=0", "--fwbench-minutes=0", *ALONE)


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


@needs("resume")
@pytest.mark.slow
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
    # What an undisturbed benchmark of the killed run has found out is not measured again.
    tried = [size for size, one in after.items() if "ceilings" in one["stages"]]
    assert tried == [1] or slowed(Measurement.from_json(after[1]))


@pytest.mark.slow
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
    # What was found out about the machine was stored before the disk was full.
    left = [found for found in stored.path.rglob("*") if found.is_file() and ".benchmarks" in found.parts]
    assert [found for found in left if found.parent.name != "facts"] == [path]


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


def test_two_runs_that_end_at_once_take_two_names(tmp_path):
    together = Barrier(6)

    def end(number):
        storage = FileStorage(str(tmp_path), SimpleNamespace(info=lambda *_: None), "machine")
        take_over(SimpleNamespace(storage=storage), pytest.fail)
        for _ in range(4):
            together.wait()
            storage.save({"number": number}, "same")

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


# A folder that takes no new file: the old one is written over.
REFUSING = """
def refused(folder):
    raise PermissionError(errno.EACCES, "no new file here")

files._locked = refused
"""


@pytest.mark.parametrize(("content", "folder"), [("older\n", ""), (None, ""), ("older\n", REFUSING)])
def test_a_file_that_could_not_be_written_is_as_it_was(tmp_path, content, folder):
    path = tmp_path / "report.html"
    if content:
        path.write_text(content)
    program = f"""
import errno, pathlib, resource, sys
from fwbench.record import files
{folder}
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
