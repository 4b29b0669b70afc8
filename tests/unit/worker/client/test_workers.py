"""The process boundary, with real processes and a framework that does nothing."""

import contextlib
import ctypes
import dataclasses
import json
import os
import shutil
import sys
import textwrap
import types
import venv
from importlib import metadata
from typing import ClassVar

import pytest

from fwbench.machine import machine
from fwbench.record.lanes import LANES
from fwbench.record.measurement import Failure, Measurement
from fwbench.record.workload import Workload
from fwbench.suite.profiles import PROFILES
from fwbench.worker.client import ladder
from fwbench.worker.client import server as client_server
from fwbench.worker.client import workers as workers_module
from fwbench.worker.client.starting import PACKAGE, command, environment
from fwbench.worker.client.workers import Workers
from fwbench.worker.process import building, server
from fwbench.worker.process.server import serve
from tests.tensorflow import needs_tensorflow
from tests.unit.fakes import NO_PROJECT
from tests.unit.processes import grandchildren
from tests.unit.shared import UNTIMED, finish

EMPTY = Workload("noop", "noop")
FIXED = Workload("noop", "noop", mode="fixed")

# Variables by which glibc's allocator is told anything.
_ALLOCATOR = ("MALLOC_", "GLIBC_TUNABLES")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and forks")


@pytest.fixture(scope="module")
def workers():
    with contextlib.closing(Workers(machine(), "cpu", {}, NO_PROJECT)) as workers:
        yield workers


@pytest.fixture
def own_workers():
    """Whose server has not started yet, so that it starts under the test's own environment."""
    with contextlib.closing(Workers(machine(), "cpu", {}, NO_PROJECT)) as workers:
        yield workers


@pytest.fixture
def protocol():
    """No test here is about what is timed."""
    return UNTIMED


@pytest.fixture
def untuned(monkeypatch):
    """The user says nothing of the allocator."""
    for name in os.environ:
        if name.startswith(_ALLOCATOR):
            monkeypatch.delenv(name)


def ignore(stage):
    pass


def test_a_measurement_comes_back_whole(workers, protocol):
    measurement = workers.measure(EMPTY, protocol, ignore)
    assert measurement.failure is None
    assert measurement.workload == EMPTY
    assert len(measurement.samples) == protocol.min_rounds
    assert measurement.settings["cpus"] == list(machine().cpus)
    assert measurement.versions.keys() == {"numpy"}


def test_every_job_has_a_fresh_process(workers, protocol):
    pids = []
    for _ in range(3):
        workers.measure(EMPTY, protocol, lambda stage: pids.extend(grandchildren(os.getpid())))
    assert len(set(pids)) == 3


class Scripted:
    """A channel of a lane's server that answers every job with an empty record, and logs what passes."""

    log: ClassVar[list[tuple[str, str]]] = []
    alive = True

    def __init__(self, command, environment):
        self.lane = json.loads(command[-1])["lane"]["name"]
        self.answers = [{"ready": "3.13.0"}]

    def send(self, job):
        self.log.append((self.lane, "job"))
        record = Measurement(Workload.from_json(job["workload"]), stages={"build": 0.0}).to_json()
        self.answers += [{"started": 1}, {"measurement": record}, {"exited": 0}]

    def receive(self, deadline):
        answer = self.answers.pop(0)
        self.log.append((self.lane, next(iter(answer))))
        return answer

    def position(self):
        return 0


def test_a_record_is_returned_at_once_and_its_worker_awaited_before_the_next_job_of_any_lane(monkeypatch):
    monkeypatch.setattr(Scripted, "log", [])
    monkeypatch.setattr(client_server, "Channel", Scripted)
    workers = Workers(machine(), "cpu", {}, NO_PROJECT)
    for lane in ("noop", "torch", "torch"):
        assert workers.measure(Workload(lane, "noop"), PROFILES["quick"], ignore).overhead_s is not None
    job = ("ready", "job", "started", "measurement")
    assert Scripted.log == [
        *(("noop", what) for what in job),
        ("noop", "exited"),
        *(("torch", what) for what in job),
        ("torch", "exited"),
        *(("torch", what) for what in job[1:]),
    ]


def test_an_interpreter_that_cannot_run_a_worker_is_a_failure_that_shows_its_words(protocol, tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'no such module: fwbench' >&2\nexit 3\n")
    python.chmod(0o755)
    workers = Workers(machine(), "cpu", {"noop": str(python)}, NO_PROJECT)
    measurement = workers.measure(EMPTY, protocol, ignore)
    workers.close()
    assert measurement.failure.kind == "crashed"
    assert "no such module: fwbench" in measurement.failure.detail
    assert str(python) in measurement.failure.message


def test_an_interpreter_without_what_fwbench_needs_is_one_sentence(protocol, tmp_path):
    """An environment of nothing but Python; so it is of a server whose job takes turns."""
    venv.create(tmp_path / "bare", symlinks=True, with_pip=False)
    workers = Workers(machine(), "cpu", {"noop": str(tmp_path / "bare/bin/python")}, NO_PROJECT)
    failure = workers.measure(EMPTY, protocol, ignore).failure
    workers.close()
    assert failure.kind == "crashed"
    assert "bare/bin/python: its interpreter cannot import fwbench (No module named 'numpy')" in failure.message


@pytest.mark.parametrize(
    "lanes",
    [
        pytest.param(("torch", "torch-compile"), id="torch", marks=pytest.mark.slow),
        pytest.param(("jax",), id="jax"),
        pytest.param(("tensorflow", "tensorflow-xla"), id="tensorflow", marks=needs_tensorflow),
    ],
)
def test_the_server_has_one_thread_when_it_forks(lanes):
    """Forking a process with several threads can deadlock the child."""
    # Lanes of a framework one after the other, as each imports what the one before it does.
    check = (
        "import os, sys\n"
        "from fwbench import frameworks\n"
        "for lane in sys.argv[2:]:\n"
        "    frameworks.load(sys.argv[1]).preload(lane)\n"
        "    print(len(os.listdir('/proc/self/task')))\n"
    )
    variables = environment(os.environ, 2, "cpu", LANES[lanes[-1]])
    done = finish(sys.executable, "-c", check, LANES[lanes[0]].adapter, *lanes, env=variables, check=True)
    assert done.stdout.split() == ["1"] * len(lanes)


def test_the_server_is_prepared_before_it_takes_a_job(monkeypatch):
    done = []

    def note(what, result=None):
        return lambda *_: done.append(what) or result

    preloading = type("Preloading", (), {"preload": note("preload")})()
    monkeypatch.setattr("fwbench.frameworks.load", lambda adapter: preloading)
    monkeypatch.setattr("fwbench.worker.process.run.prepare", note("prepare"))
    monkeypatch.setattr(server.gc, "freeze", note("freeze"))
    monkeypatch.setattr("fwbench.worker.process.run.run", note("run"))
    pipes = types.SimpleNamespace(incoming=0, send=done.extend, receive=lambda: {})
    monkeypatch.setattr(server, "Pipes", lambda: pipes)
    # Of the process that runs this test, the pipe is not a server's.
    monkeypatch.setattr(
        server, "lifetime", types.SimpleNamespace(end_if_closed=note("alone?"), end_when_closed=note("watch"))
    )
    serve({"lane": LANES["noop"].to_json(), "cpus": [], "fork": False})
    assert done == ["alone?", "preload", "prepare", "freeze", "ready", "protocol", "watch", "run"]


MILD, STRONG = (value for _, value in LANES["jax"].fallback)


@pytest.fixture
def attempts(monkeypatch):
    """Servers whose worker crashes until its flags end with `attempts.good`; each attempt's flags, in order.

    Their framework knows every flag but those in `attempts.unknown`.
    """

    class FakeServer:
        alive = True
        staying = None
        failure = Failure("crashed", "the worker was killed by SIGABRT", stage="compile", detail="what it said")
        good = None
        made: ClassVar[list] = []
        unknown: ClassVar[list] = []

        def __init__(self, python, lane, cpus, variables, compiled=None):
            self.flags = variables.get("XLA_FLAGS")

        def measure(self, job, workload, tell, *, keeps=False):
            self.made.append(self.flags)
            right = self.good is not None and self.flags is not None and self.flags.endswith(self.good)
            return Measurement(workload, failure=None if right else self.failure)

        def settle(self):
            pass

        def close(self):
            pass

    def known(lane, python, variables):
        return not any(flag in FakeServer.unknown for flag in variables["XLA_FLAGS"].split())

    monkeypatch.delenv("XLA_FLAGS", raising=False)
    monkeypatch.setattr(workers_module, "Server", FakeServer)
    monkeypatch.setattr(ladder, "_known", known)
    return FakeServer


def measured(lane="jax", device="gpu"):
    workers = Workers(machine(), device, {}, NO_PROJECT)
    return workers.measure(Workload(lane, "cnn", device=device), PROFILES["quick"], ignore)


def test_workers_of_a_run_share_facts(tmp_path):
    def of(**options):
        workers = Workers(machine(), "cpu", {}, NO_PROJECT, **options)
        told = [workers.job(Workload(lane, "mlp"), PROFILES["quick"])["facts"] for lane in ("torch", "jax")]
        workers.close()
        return told

    (first, same), (other, _) = of(facts=tmp_path), of(facts=tmp_path)
    assert first == same
    assert first["run"] != other["run"]
    assert first["folder"] == other["folder"] == str(tmp_path)
    assert first["machine"] == other["machine"]
    # Without a folder of its own a run still remembers what it finds out.
    (first, same), (other, _) = of(), of()
    assert first == same
    assert first["folder"] != other["folder"]


def test_a_core_without_the_extension_measures_no_workload_over_several_devices(workers, protocol, monkeypatch):
    monkeypatch.setattr(workers_module, "addition", lambda kind: "")
    failure = workers.measure(Workload("torch", "mlp", batch_size=2, devices=2), protocol, ignore).failure
    assert (failure.kind, "cluster" in failure.message) == ("unavailable", True)


def test_after_a_crash_a_gpus_compiler_is_tried_with_ever_less_autotuning(attempts, monkeypatch):
    attempts.good = STRONG
    monkeypatch.setenv("XLA_FLAGS", "--own")
    found = measured()
    assert attempts.made == ["--own", f"--own {MILD}", f"--own {MILD} {STRONG}"]
    assert found.failure is None
    told = f"the worker was killed by SIGABRT, so it was run again with XLA_FLAGS={MILD} {STRONG}"
    assert found.after_crash == told
    assert found.settings == {"fallback_flags": f"XLA_FLAGS={MILD} {STRONG}"}
    assert found.fallback


def test_a_flag_that_the_framework_does_not_know_is_left_out(attempts):
    attempts.unknown.append(MILD)
    measured()
    assert attempts.made == [None, STRONG]


@pytest.mark.parametrize(("flag", "known"), [(f"{MILD} {STRONG}", True), ("--xla_gpu_of_tomorrow=1", False)])
def test_jax_is_asked_whether_it_knows_a_flag(flag, known):
    """XLA ends a process that has an unknown one."""
    lane = dataclasses.replace(LANES["jax"], fallback=(("XLA_FLAGS", flag),))
    variables = environment(os.environ, 1, "gpu", lane)
    assert list(ladder.milder(lane, sys.executable, variables)) == ([lane.fallback] if known else [])


@pytest.mark.parametrize(
    ("failure", "climbs"),
    [
        (Failure("crashed", "signal 11", None), False),
        (Failure("crashed", "signal 11", "join"), False),
        (Failure("crashed", "signal 11", "build"), False),
        (Failure("crashed", "signal 11", "compile"), True),
        # Epochs compile as they train.
        (Failure("crashed", "signal 11", "training"), True),
        (Failure("error", "XLA", "build", compiler=True), True),
        (Failure("error", "the network", "compile"), False),
    ],
)
def test_a_process_that_dies_before_it_compiles_climbs_no_ladder_of_compiler_flags(failure, climbs):
    assert ladder.compilers_fault(failure) == climbs


def test_where_every_fallback_flag_crashes_the_first_crash_is_told(attempts):
    failure = measured().failure
    assert failure.message == f"the worker was killed by SIGABRT; with XLA_FLAGS={MILD} {STRONG}, too"
    assert (failure.kind, failure.stage, failure.detail) == ("crashed", "compile", "what it said")
    assert attempts.made == [None, MILD, f"{MILD} {STRONG}"]


def test_what_was_waited_is_waited_once(attempts):
    """All measurements share the patience."""
    given = []

    def measure(self, job, workload, tell, *, keeps=False):
        given.append(job["patience"])
        return Measurement(workload, stages={"waiting for quiet": 2.0})

    attempts.measure = measure
    workers = Workers(machine(), "cpu", {}, NO_PROJECT, patience=3.0)
    for _ in range(3):
        workers.measure(Workload("torch", "cnn"), PROFILES["quick"], ignore)
    assert given == [3.0, 1.0, 0.0]
    assert not workers.patient


def test_what_a_workload_needed_once_its_further_processes_begin_with_and_no_other_workload(attempts, monkeypatch):
    """Replicates are of one program; another one may do without, and is measured as its users run it."""
    probed = []
    known = ladder._known
    monkeypatch.setattr(ladder, "_known", lambda *asked: probed.append(asked) or known(*asked))
    attempts.good = STRONG
    workers = Workers(machine(), "gpu", {}, NO_PROJECT)
    one, other = (Workload("jax", name, device="gpu") for name in ("cnn", "mlp"))
    told = {workers.measure(workload, PROFILES["quick"], ignore).after_crash for workload in (one, one, other)}
    both = f"{MILD} {STRONG}"
    assert told == {f"the worker was killed by SIGABRT, so it was run again with XLA_FLAGS={both}"}
    assert attempts.made == [None, MILD, both, both, None, MILD, both]
    # Each flag once, however often it is needed.
    assert len(probed) == 2


def test_a_later_process_that_needs_more_flags_gets_them(attempts):
    attempts.good = MILD
    workers = Workers(machine(), "gpu", {}, NO_PROJECT)
    workload = Workload("jax", "cnn", device="gpu")
    workers.measure(workload, PROFILES["quick"], ignore)
    attempts.good = STRONG
    assert workers.measure(workload, PROFILES["quick"], ignore).fallback == f"XLA_FLAGS={MILD} {STRONG}"
    assert attempts.made == [None, MILD, MILD, f"{MILD} {STRONG}"]


@pytest.mark.parametrize(
    ("batch", "accumulate", "tried"), [(64, 1, [64, 32, 16, 8]), (48, 8, [48, 24, 8]), (20, 2, [20, 10, 4])]
)
def test_a_batch_is_halved_until_it_fits(attempts, batch, accumulate, tried):
    """In whole parts of what its gradients are accumulated over."""
    sizes = []

    def measure(self, job, workload, tell, *, keeps=False):
        sizes.append(job["workload"]["batch_size"])
        full = None if workload.batch_size <= 8 else Failure("out_of_memory", "memory ran out")
        return Measurement(workload, failure=full)

    attempts.measure = measure
    workload = Workload("torch", "mlp", "train_step", batch, accumulate=accumulate)
    workers = Workers(machine(), "cpu", {}, NO_PROJECT, fit_batch=True)
    found = workers.measure(workload, PROFILES["quick"], ignore)
    assert sizes == tried
    assert (found.workload.batch_size, list(found.unfit), found.asked) == (tried[-1], tried[:-1], workload)
    # What does not fit is not tried again.
    assert workers.measure(workload, PROFILES["quick"], ignore) == found
    assert sizes == [*tried, tried[-1]]


@pytest.mark.parametrize("stage", ["compile", "training", "latency"])
@pytest.mark.parametrize(("compiler", "tries"), [(True, 3), (False, 1)])
def test_an_exception_is_tried_again_only_where_it_was_the_compilers(attempts, stage, compiler, tries):
    attempts.failure = Failure("error", "XlaRuntimeError: INTERNAL", stage=stage, compiler=compiler)
    measured()
    assert len(attempts.made) == tries


@pytest.mark.parametrize(("lane", "device"), [("jax", "cpu"), ("torch", "gpu")])
def test_nothing_else_is_tried_again(attempts, lane, device):
    measured(lane, device)
    assert len(attempts.made) == 1


@pytest.fixture
def installed(tmp_path):
    """A copy of fwbench as an installation has it: beside the libraries that it was installed with."""
    site = tmp_path / "site-packages"
    shutil.copytree(PACKAGE, site / "fwbench")
    numpy = site / "numpy-0.0.1.dist-info" / "METADATA"
    numpy.parent.mkdir()
    numpy.write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 0.0.1\n")
    return site


BEGIN = """
import dataclasses, sys, tempfile
from pathlib import Path
if sys.argv[1:]:
    sys.path.insert(0, sys.argv[1])
from fwbench.machine import machine
from fwbench.models import CATALOG
from fwbench.models.project import Project
from fwbench.record.workload import Workload
from fwbench.suite.profiles import PROFILES
from fwbench.worker.client.workers import Workers
from fwbench.worker.turns.pairs import Pairs
from fwbench.worker.turns.sides import sides
"""
MEASURED_BY = """
workers = Workers(machine(), "cpu", {"noop": sys.executable}, Project(Path(), ()))
found = workers.measure(Workload("noop", "noop"), PROFILES["quick"], lambda _: None)
workers.close()
"""
COMPARED_BY = """
fixed = Workload("noop", "noop", mode="fixed")
Pairs.amounts = dataclasses.replace(Pairs.amounts, placings=1)
with sides(sys.executable, Project(Path(sys.argv[1]), ()), {}) as (base, head):
    pair = Pairs(base, head, CATALOG, machine(), "cpu", 60.0).play([fixed])[fixed]
"""


@pytest.mark.parametrize(
    ("script", "versions"),
    [
        pytest.param(MEASURED_BY, "[found.versions]", id="workers", marks=pytest.mark.slow),
        pytest.param(COMPARED_BY, "[pair.described[side]['versions'] for side in ('base', 'head')]", id="duet"),
    ],
)
def test_an_interpreter_has_its_own_libraries_and_not_those_beside_fwbench(installed, script, versions):
    """Else an upgrade would be compared with itself."""
    told = f"{BEGIN}{script}\nimport json; print(json.dumps([v['numpy'] for v in {versions}]))"
    done = finish(sys.executable, "-c", told, installed, cwd=installed.parent, check=True)
    assert set(json.loads(done.stdout)) == {metadata.version("numpy")}


def test_a_script_and_what_it_spawns_have_the_same_fwbench(installed, tmp_path):
    """Those who read data are spawned by a worker."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import multiprocessing, sys, fwbench.mark
            if __name__ == "__main__":
                print(fwbench.mark.__file__, *sys.argv[1:], flush=True)
                process = multiprocessing.get_context("spawn").Process(target=fwbench.mark.tell)
                process.start()
                process.join()
                sys.exit(process.exitcode)
            """
        )
    )
    (installed / "fwbench" / "mark.py").write_text("def tell():\n    print(__file__)\n")
    done = finish(*command(sys.executable, script, "one", "two", package=installed / "fwbench"), check=True)
    mark = installed / "fwbench" / "mark.py"
    assert done.stdout.splitlines() == [f"{mark} one two", f"{mark}"]


def test_a_process_does_not_look_for_garbage_at_its_end(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import atexit, gc\natexit.register(lambda: print(len(gc.get_objects()) < gc.get_freeze_count()))\n"
    )
    done = finish(*command(sys.executable, script), check=True)
    assert done.stdout == "True\n"


def test_a_module_that_this_fwbench_has_not_is_not_another_ones(tmp_path):
    """An older base has fewer modules, and an editable install a finder that would offer head's."""
    package = tmp_path / "fwbench"
    package.mkdir()
    (package / "__init__.py").touch()
    for name in ("worker/__init__.py", "worker/process/__init__.py", "worker/process/lifetime.py"):
        (package / name).parent.mkdir(exist_ok=True)
        shutil.copy2(PACKAGE / name, package / name)
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import sys
            from importlib.machinery import PathFinder

            class Editable:
                @staticmethod
                def find_spec(name, path=None, target=None):
                    return PathFinder.find_spec(name, [{str(PACKAGE)!r}]) if name.startswith("fwbench.") else None

            sys.meta_path.append(Editable)
            import fwbench.frameworks
            """
        )
    )
    done = finish(*command(sys.executable, script, package=package))
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'fwbench.frameworks'"


def test_the_environment_fixes_the_threads():
    for lane, own in (("torch", "MKL_NUM_THREADS"), ("jax", "NPROC")):
        variables = environment({"PATH": "/bin", own: "7"}, 3, "cpu", LANES[lane])
        assert (variables["OMP_NUM_THREADS"], variables[own]) == ("3", "3")
        assert variables["PATH"] == "/bin"


def test_a_variable_may_be_of_one_device_alone():
    assert environment({}, 3, "cpu", LANES["jax"])["JAX_PLATFORMS"] == "cpu"
    assert "JAX_PLATFORMS" not in environment({}, 3, "gpu", LANES["jax"])
    assert "JAX_PLATFORMS" not in environment({}, 3, "cpu", LANES["torch"])


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"), reason="another allocator than glibc's")
def test_what_a_call_frees_the_next_one_takes_without_a_page_fault(untuned):
    """On the main thread, and on another one, where XLA computes: there glibc maps blocks of 64 MiB and above."""
    script = textwrap.dedent(
        """
        import ctypes, resource, threading

        libc = ctypes.CDLL(None)
        libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        libc.free.argtypes = [ctypes.c_void_p]

        def call():
            for size in (1 << 20, 40 << 20, 100 << 20):
                block = libc.malloc(size)
                ctypes.memset(block, 1, size)
                libc.free(block)

        def twice():
            call()
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            call()
            print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

        twice()
        other = threading.Thread(target=twice)
        other.start()
        other.join()
        """
    )

    def faults(variables):
        return [int(line) for line in finish(sys.executable, "-c", script, env=variables, check=True).stdout.split()]

    # The 100 MiB alone have 25600 pages.
    assert max(faults(environment(os.environ, 1, "cpu", LANES["noop"]))) < 1000
    assert min(faults(dict(os.environ))) > 20000


def test_the_allocators_settings_reach_the_worker_and_its_record(untuned, own_workers, protocol):
    settings = own_workers.measure(EMPTY, protocol, ignore).settings
    assert (settings["MALLOC_ARENA_MAX"], settings["MALLOC_MMAP_MAX_"]) == ("1", "0")
    assert int(settings["MALLOC_TRIM_THRESHOLD_"]) > machine().memory


@pytest.mark.parametrize(("name", "value"), [("MALLOC_ARENA_MAX", "2"), ("GLIBC_TUNABLES", "glibc.malloc.arena_max=2")])
def test_a_users_allocator_settings_win_and_are_on_the_record(untuned, monkeypatch, name, value):
    variables = environment({name: value}, 1, "cpu", LANES["noop"])
    assert {name: value for name, value in variables.items() if name.startswith(_ALLOCATOR)} == {name: value}
    monkeypatch.setenv(name, value)
    assert building.environment(LANES["noop"])[name] == value
