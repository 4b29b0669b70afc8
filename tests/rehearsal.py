"""A rehearsal of a whole run on a GPU, without one: `python -m tests.rehearsal` prints each machine's results.

What is real: pytest, the plugin, the workers, the gates, NVIDIA's Python bindings. What stands in: NVML's library
(`tests/unit/nvml/stub.c`), and two lanes that compute nothing. These open the device when the real lanes do, so that a
context appears in NVML when CUDA would make it appear:

    torch    joins ranks (`torch.cuda.set_device`), or builds (its first allocation)
    jax      is asked whether it can run (`jax.devices`)

Each device has a clock of its own, which kernels move, and energy that follows from the clock. So power is known
exactly, and a rehearsal takes seconds. A machine is a state of the stand-in, with the results that a run on it must
have. `--plant FAULT` puts a false reading into fwbench, which a machine must then find.

    python -m tests.rehearsal                         the matrix, as Markdown
    python -m tests.rehearsal --plant "wrong card"    the same with a fault; ends with 1 if a machine finds it
"""

import argparse
import contextlib
import dataclasses
import functools
import io
import json
import mmap
import os
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np

from fwbench.frameworks.contract import CompileTimes, Framework, Program
from fwbench.frameworks.precision import Products, reference
from fwbench.machine import disturbances as disturbing
from fwbench.machine import load, nvml, watch
from fwbench.machine.disturbances import NEIGHBOUR, THROTTLING, disturbances
from fwbench.meters import energy as meters
from fwbench.record import lanes
from fwbench.record.measurement import Metric
from fwbench.record.reading import read
from fwbench.worker.process import facts, job, passes, player, run
from tests.unit.fakes import round_mantissa
from tests.unit.nvml import GPUS, SLICE, Stub, compiler
from tests.unit.shared import ALONE, extension, finish, git

MIB, GIB = 2**20, 2**30

# Watts of a GPU that waits and of one that computes, and seconds of a step.
IDLE, LOADED, STEP = 60.0, 300.0, 0.005
# Bytes of a context, and of what a program allocates.
CONTEXT, ALLOCATED = 300 * MIB, 40 * MIB

# The number of the device's wait at which its counter fails, in the midst of the waits between polls of the counter.
_FAILS_AT = 500

FAULT, SLOWER, STATE = "REHEARSAL_FAULT", "REHEARSAL_SLOWER", "NVML_STUB"


@dataclass(frozen=True)
class Machine:
    """A machine, and the results that a run on it must have.

    Attributes:
        state: the state of the stand-in.
        gpu: the GPU's name on the record.
        index: NVML's number of the GPU that must compute.
        capability: the compute capability of that GPU, by which a lane knows its arithmetic.
        cards: how many GPUs there are for ranks.
        energy: whether its energy can be read.
        neighbour: whether somebody else computes on it.
        usable: whether its driver is new enough for the lanes.
        fails: what is added to the state while the first measurement polls the energy counter.
    """

    state: Mapping[str, object]
    gpu: str
    index: int = 0
    capability: tuple[int, int] = (9, 0)
    cards: int = 1
    energy: bool = True
    neighbour: bool = False
    usable: bool = True
    fails: str = ""

    def of(self, key: str, otherwise: int) -> object:
        """What the state says of the GPU that must compute."""
        return self.state.get(f"{key}.{self.index}", self.state.get(key, otherwise))


_4090 = {"name": "NVIDIA GeForce RTX 4090", "memory": 24 * GIB, "cores": 16384, "default_power_limit": 450}
_SCREEN = {"graphics": f"1001:{250 * MIB} 1002:{120 * MIB}", "used_memory": 450 * MIB, "utilisation": 3}
_NO_SCREEN = {"graphics.1": "", "used_memory.1": 0, "utilisation.1": 0}
# Its screen shows a film, which keeps this card alone busy.
_DISPLAY = {**_SCREEN, "name": "NVIDIA GeForce GT 710", "memory": 2 * GIB, "cores": 192, "utilisation": 40}
_T4 = {"name": "Tesla T4", "memory": 16 * GIB, "cores": 2560, "default_power_limit": 70}
_ONE = {"gpus": 1}

_H100 = "NVIDIA H100 80GB HBM3"

MACHINES: Mapping[str, Machine] = {
    "two H100": Machine({}, _H100, cards=2),
    "RTX 4090 with a screen": Machine({**_ONE, **_4090, **_SCREEN}, _4090["name"], capability=(8, 9)),
    "screen on a GT 710, RTX 4090 in the second slot": Machine(
        {**_DISPLAY, **_NO_SCREEN, **{f"{key}.1": value for key, value in _4090.items()}},
        _4090["name"],
        index=1,
        capability=(8, 9),
    ),
    "RTX 4090, screen on a GT 710 in the second slot": Machine(
        {**_4090, **{f"{key}.1": value for key, value in _DISPLAY.items()}}, _4090["name"], capability=(8, 9)
    ),
    "T4": Machine({**_ONE, **_T4}, _T4["name"], capability=(7, 5)),
    "slice of an H100 (MIG)": Machine({"slices": 1, **_ONE}, "NVIDIA H100 80GB HBM3 MIG 1g.10gb", energy=False),
    "container with the host's process numbers": Machine({**_ONE, "foreign": 4_000_000}, _H100),
    "container on a desktop, whose screen it does not see": Machine(
        {**_ONE, **_4090, "used_memory": 450 * MIB, "foreign": 4_000_000}, _4090["name"], capability=(8, 9)
    ),
    "H100 shared with somebody who trains": Machine(
        {**_ONE, "processes": f"77:{20 * GIB}", "used_memory": 20 * GIB, "utilisation": 95}, _H100, neighbour=True
    ),
    "H100 whose energy counter fails": Machine(
        _ONE, _H100, energy=False, fails="nvmlDeviceGetTotalEnergyConsumption=15"
    ),
    "H100 with a driver of 2021": Machine({**_ONE, "driver": "470.57.02", "cuda": 11040}, _H100, usable=False),
}


# The device.


def _told(key: str, fallback: str = "") -> str:
    """A value from the stand-in's state, as CUDA would know it on the same machine."""
    lines = Path(os.environ[STATE]).read_text().splitlines()
    return dict(line.partition("=")[::2] for line in lines).get(key, fallback)


def _cudas(number: int) -> int:
    """NVML's number of the GPU with this number in CUDA, which counts visible GPUs, the fastest first."""
    cores = [float(_told(key, _told("cores", "16896"))) for key in ("cores", "cores.1")]
    ordered = sorted(range(int(_told("gpus", "2"))), key=lambda index: -cores[index])
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    named = visible.split(",")[number] if visible else str(number)
    by_uuid = {SLICE: 0, **{uuid: index for index, uuid in enumerate(GPUS)}}
    return by_uuid[named] if named in by_uuid else ordered[int(named)]


class Device:
    """This process's context on a GPU, and a clock that moves with its work."""

    def __init__(self) -> None:
        # Starts at the time of the process's own clock, so that earlier readings of that clock still fit.
        self.now = time.perf_counter()
        self.joules = 0.0
        self.waits = 0
        self.index: int | None = None

    def open(self, number: int = 0) -> None:
        """Make a context, which NVML then shows, on the GPU that CUDA gives this number."""
        if self.index is not None:
            return
        if int(_told("cuda", "13000")) < 12000:
            raise RuntimeError(f"the driver {_told('driver')} is too old for CUDA 12")
        self.index = _cudas(number)
        file = Path(_told("contexts"), f"{self.index}-{os.getpid()}")
        file.write_bytes(bytes(24))
        with file.open("r+b") as opened:
            self._shown = mmap.mmap(opened.fileno(), 24)
        self.hold(CONTEXT)

    def hold(self, memory: int, worked: float = 0.0) -> None:
        """Let NVML show how much memory this process holds in bytes, and when the process last computed."""
        self.memory = memory
        struct.pack_into("ddd", self._shown, 0, memory, self.joules, worked)

    def __call__(self) -> float:
        """Seconds by its clock."""
        return self.now

    def sleep(self, seconds: float, watts: float = IDLE) -> None:
        """Let seconds pass."""
        self.now += seconds
        self.joules += watts * seconds
        self.waits += watts == IDLE
        if self.waits == _FAILS_AT and (failure := _told("fails")):
            with open(os.environ[STATE], "a") as state:
                state.write(f"{failure}\n")
        if self.index is not None:
            self.hold(self.memory, time.monotonic() if watts > IDLE else 0.0)

    def compute(self, seconds: float) -> None:
        """Keep the GPU busy."""
        self.sleep(seconds, LOADED)


DEVICE = Device()


# The lanes.


class Kernel(Program):
    """A program whose steps keep the device busy, and end when they are waited for."""

    def __init__(self, batch_size, ranks=None) -> None:
        self.batch_size, self.ranks = batch_size, ranks
        DEVICE.open()
        DEVICE.hold(CONTEXT + ALLOCATED)
        self.settings = {"opened": DEVICE.index}
        self.queued = 0
        self.seconds = STEP * float(os.environ.get(SLOWER, "1"))

    def agree(self, value):
        return self.ranks.agree(value) if self.ranks else value

    def compile(self):
        DEVICE.compute(0.5)
        return CompileTimes(0.1, 0.4)

    def step(self):
        self.queued += 1

    def wait(self):
        DEVICE.compute(self.seconds * self.queued)
        self.queued = 0

    def output(self):
        return np.ones((self.batch_size, 10), np.float32)

    def weights(self):
        return {}

    def restart(self, weights, draw=0):
        pass

    def relocate(self):
        pass

    def peak_memory(self):
        return Metric(float(ALLOCATED), "a stand-in's allocator")

    memory_in_use = peak_memory


class Lane(Framework):
    """A framework that opens the device early, when it is asked whether it can run, or late, when it builds."""

    def __init__(self, asked: bool) -> None:
        self.asked = asked

    def join(self, ranks):
        self.ranks = ranks
        DEVICE.open(ranks.local)

    def unavailable(self, workload, model):
        try:
            if self.asked:
                DEVICE.open()
        except RuntimeError as error:
            return str(error)
        if int(_told("cuda", "13000")) < 12000:
            return "the driver is too old for CUDA 12"
        if workload.precision == "tf32" and tuple(json.loads(_told("capability"))) < (8, 0):
            return "it has no TF32 arithmetic"
        return None

    def weight_shapes(self, model, sizes):
        return {}

    def build(self, workload, model, weights, horizon=0):
        return Kernel(workload.batch_size, self.ranks)

    def probe(self, workload, operands):
        if workload.precision == "fp64":
            return reference(operands)
        bits = {"fp32": 23, "tf32": 10, "bf16": 7}[workload.precision]
        given = operands._asdict()
        rounded = {name: round_mantissa(array, bits) if bits < 23 else array for name, array in given.items()}
        return Products(*(array.astype(np.float32) for array in reference(type(operands)(**rounded))))


TORCH, JAX = Lane(asked=False), Lane(asked=True)


# What a developer may plant.


def _read_late() -> None:
    """Joules are read a second after the window's end."""

    def late(gpu: nvml.Gpu) -> float:
        DEVICE.sleep(1.0)
        return energy(gpu)

    energy, nvml.Gpu.energy = nvml.Gpu.energy, late


def _in_nvmls_order() -> None:
    nvml._as_cuda_counts = list


def _screens_compute() -> None:
    """A GPU that only holds memory is taken for one that computes."""
    watch.computes = disturbing.computes = lambda state: True


def _idle_while_it_computes() -> None:
    """The idle window is read before the GPU has ended its work."""
    facts.resting = mock.patch.object(meters.time, "sleep", DEVICE.compute)(meters.resting)


def _first_cards_energy() -> None:
    """Every rank reads the counter of the first GPU."""
    job.counter = lambda device, **_: meters.counter(device)


def _first_slots_load() -> None:
    """The utilisation is that of the GPU in the first slot, whichever computes."""
    import pynvml

    rates = pynvml.nvmlDeviceGetUtilizationRates
    pynvml.nvmlDeviceGetUtilizationRates = lambda handle: rates(pynvml.nvmlDeviceGetHandleByIndex(0))


def _in_milliwatts() -> None:
    """The power limit is recorded in milliwatts, NVML's unit."""
    state = nvml.Gpu.state
    nvml.Gpu.state = lambda gpu: dataclasses.replace(state(gpu), power_limit=1000 * state(gpu).power_limit)


# By name. `context opened early` is the fault of a lane that opens the device while it is loaded.
FAULTS: Mapping[str, Callable[[], None]] = {
    "context opened early": DEVICE.open,
    "power read late": _read_late,
    "wrong card": _in_nvmls_order,
    "a screen taken for a neighbour": _screens_compute,
    "idle power read while it computes": _idle_while_it_computes,
    "energy of another card": _first_cards_energy,
    "load of another card": _first_slots_load,
    "power limit in milliwatts": _in_milliwatts,
}


class _Quiet(load.OtherLoad):
    """No load of others on the CPUs, as this machine's other work is no part of a rehearsal."""

    def read(self) -> Metric:
        return Metric(0.0, "a rehearsal")

    def taken(self) -> tuple[float, float]:
        return 1.0, 0.0

    @property
    def none(self) -> bool:
        return True


def prepare() -> None:
    """Make this process rehearse. It is pytest's or a worker's, which both import this module."""
    told = {"distributions": ("numpy",), "libraries": (), "parity": None, "launcher": "fwbench", "fallback": ()}
    own = {
        name: dataclasses.replace(lanes.OWN[name], adapter=f"tests.rehearsal:{name.upper()}", **told)
        for name in ("torch", "jax")
    }
    # The other lanes open the device as one of these does.
    known = {**own, "noop": lanes.OWN["noop"]}
    lanes.OWN.clear()
    lanes.OWN.update(known)
    lanes.extensions, lanes.entry_points = lambda: (), lambda group: []
    vars(lanes.LANES).pop("_all", None)
    load.OtherLoad = job.OtherLoad = passes.OtherLoad = _Quiet
    run.Measuring = functools.partial(run.Measuring, clock=DEVICE)
    if "FWBENCH_PACKAGE" in os.environ:
        # Elsewhere the doctor polls by this machine's own clock.
        meters.time = SimpleNamespace(sleep=DEVICE.sleep)
    # A player times its calls itself.
    player.time = SimpleNamespace(**{**vars(time), "perf_counter": DEVICE, "process_time": DEVICE})
    for fault in json.loads(os.environ.get(FAULT, "[]")):
        # Pytest's own process opens nothing.
        if fault != "context opened early" or "FWBENCH_PACKAGE" in os.environ:
            FAULTS[fault]()


if "REHEARSAL" in os.environ and __name__ != "__main__":
    prepare()


# The commands. Each returns its result in a few words, and sentences on what is wrong with it.

Outcome = tuple[str, list[str]]

SUITE = """
import fwbench

@fwbench.benchmark("mlp", batch_sizes=[2, 4])
def test_mlp(fwbench_measure):
    fwbench_measure()
"""


class Rehearsal:
    """One machine's commands, in order: later ones use the record of the first.

    Args:
        folder: where the suite lies.
    """

    def __init__(self, machine: Machine, folder: Path) -> None:
        self.machine = machine
        self.folder = folder
        self.record = folder / "bench.json"

    def bench(self) -> Outcome:
        """Two benchmarks in two lanes measured, saved and shown, as `make bench` does."""
        machine = self.machine
        code, shown = self._pytest(f"--benchmark-json={self.record}")
        if not machine.usable:
            told = "nothing could be measured: the driver is too old for CUDA 12"
            return "nothing measured, exit code 4", _unless((code == 4, f"exit code {code}"), (told in shown, shown))
        record = read(self.record)
        here, found = record.machine, record.measurements
        memory = (10 if "slices" in machine.state else machine.of("memory", 80 * GIB) // GIB) * GIB
        limit = machine.of("default_power_limit", 700)
        causes = {each.cause.name for each in disturbances(found) if each.cause in (NEIGHBOUR, THROTTLING)}
        wanted = {NEIGHBOUR.name} if machine.neighbour else set()
        wrong = _unless(
            (code == 0, f"exit code {code}: {shown}"),
            (len(found) == 4 and not any(m.failure for m in found), f"{[m.failure for m in found]}"),
            (machine.gpu in shown, f"the summary does not name the {machine.gpu}"),
            (all(m.settings.get("opened") == machine.index for m in found), "another GPU has computed"),
            (causes == wanted, f"disturbed by {causes or 'nobody'}: {[e.detail for e in disturbances(found)]}"),
            (here.accelerator_memory == memory, f"{here.accelerator_memory} B of the GPU"),
            (here.power_limit == limit, f"a limit of {here.power_limit} W, and it is {limit} W"),
        )
        # A lane's second benchmark takes its idle power over from the first, unless somebody disturbed that.
        over = sum(" in " in m.metrics["power_idle"].source for m in found)
        wanted = 2 if machine.energy and not machine.neighbour else 0
        wrong += _unless((over == wanted, f"{over} benchmarks have another one's idle power, and {wanted} should"))
        for m in found:
            memory = m.value("process_device_memory")
            hidden = "foreign" in machine.state
            for metric, drawn in (("power_load", LOADED), ("power_idle", IDLE)):
                power = m.value(metric)
                right = _near(power, drawn) if machine.energy else power is None
                wrong += _unless((right, f"{m.workload.lane}: {metric} {power} W, and it drew {drawn} W"))
            wrong += _unless(
                (memory == (None if hidden else CONTEXT + ALLOCATED), f"{m.workload.lane}: {memory} B of the process"),
            )
        energy = f"{LOADED:.0f} W" if machine.energy else "no energy, with the reason"
        return f"{len(found)} rows, {'disturbed' if machine.neighbour else 'undisturbed'}, {energy}", wrong

    def doctor(self) -> Outcome:
        """The doctor that only looks."""
        return self._doctor("doctor", "--json", sound=self.machine.usable)

    def check(self) -> Outcome:
        """The doctor that measures, and the file that a user sends."""
        file = self.folder / "doctor.json"
        sound = self.machine.usable and not self.machine.neighbour
        told, wrong = self._doctor("doctor", "--check", "--json", str(file), sound=sound)
        content = json.loads(file.read_text())
        load = next(f["level"] for f in content["findings"] if f["subject"] == "disturbances")
        wrong += _unless(
            ((load == "good") != self.machine.neighbour, f"disturbances are {load}"),
            (str(self.folder.parent) not in file.read_text(), "the file names a folder"),
            ("GPU 0" in content["nvml"], "the file lacks NVML's answers"),
        )
        return told, wrong

    def duet(self) -> Outcome:
        """The suite's own revision against itself."""
        for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "a"]):
            git(self.folder, *command)
        code, shown = self._pytest("--fwbench-against=HEAD")
        if not self.machine.usable:
            return "nothing compared, exit code 4", _unless((code == 4, f"exit code {code}: {shown}"))
        if self.machine.neighbour:
            return self._refused(code, shown, NEIGHBOUR.happened)
        return "unchanged", _unless((code == 0 and "unchanged" in shown, f"exit code {code}: {shown}"))

    def gate(self) -> Outcome:
        """A step that takes four times as long, against the first record."""
        if not self.machine.usable:
            return "-", []
        os.environ[SLOWER] = "4"
        code, shown = self._pytest("--fwbench-gate", f"--benchmark-compare={self.record}")
        del os.environ[SLOWER]
        if self.machine.neighbour:
            return self._refused(code, shown, "other processes were on the GPU")
        return "finds the slowdown", _unless((code == 1 and "regressed" in shown, f"exit code {code}: {shown}"))

    def ranks(self) -> Outcome:
        """A step over two GPUs."""
        file = self.folder / "ranks.json"
        if self.machine.cards < 2:
            return "-", []
        code, shown = self._pytest("--fwbench-devices=2", "--fwbench-lanes=torch", f"--benchmark-json={file}")
        found, *others = read(file).measurements or (None,)
        if code or found is None or len(others) != 1:
            return "", [f"exit code {code}: {shown}"]
        opened = [found.settings.get("opened"), *(rank.settings.get("opened") for rank in found.ranks[1:])]
        causes = [each.detail for each in disturbances([found]) if each.cause in (NEIGHBOUR, THROTTLING)]
        powers = [rank.metrics.get("power_load") for rank in found.ranks]
        return "a GPU each, undisturbed", _unless(
            (opened == [0, 1], f"GPUs {opened}"),
            (not causes, f"{causes}"),
            (all(_near(power, LOADED) for power in powers), f"the ranks' {powers} W, and each drew {LOADED} W"),
        )

    def report(self) -> Outcome:
        """The report on the first record."""
        if not self.machine.usable:
            return "-", []
        code, shown = _command("report", "--format=html", f"--out={self.folder / 'report'}", str(self.record))
        page = (self.folder / "report/report.html").read_text()
        return "names the GPU and who disturbed it" if self.machine.neighbour else "names the GPU", _unless(
            (code == 0, f"exit code {code}: {shown}"),
            (self.machine.gpu in page, f"the page does not name the {self.machine.gpu}"),
            ((NEIGHBOUR.happened in page) == self.machine.neighbour, "the page is wrong about neighbours"),
        )

    def _refused(self, code: int, shown: str, why: str) -> Outcome:
        held = code == 4 and "not comparable" in shown and why in shown
        return "not comparable, exit code 4, and says why", _unless((held, f"exit code {code}: {shown}"))

    def _pytest(self, *arguments: str) -> tuple[int, str]:
        import pytest

        options = ("-q", "--benchmark-only", "--fwbench-set=patience=0", "--fwbench-minutes=0")
        here = (f"--rootdir={self.folder}", str(self.folder))
        return _shown(lambda: int(pytest.main([*ALONE, *options, *arguments, *here])))

    def _doctor(self, *arguments: str, sound: bool) -> Outcome:
        code, shown = _command(*arguments)
        file = Path(arguments[-1])
        found = json.loads(file.read_text() if file.exists() else shown)["findings"]
        of = {finding["subject"]: finding for finding in found}
        bad = [f"{finding['subject']}: {finding['found']}" for finding in found if finding["level"] == "bad"]
        load = of["GPU load"]["level"]
        return f"exit code {code}", _unless(
            ((code == 0) == sound, f"exit code {code}: {bad}"),
            (self.machine.gpu in of["GPU"]["found"], of["GPU"]["found"]),
            ((load == "good") != self.machine.neighbour, of["GPU load"]["found"]),
        )


COMMANDS = {
    "bench": "`pytest --benchmark-only`",
    "doctor": "`fwbench doctor`",
    "check": "`doctor --check`",
    "duet": "duet",
    "gate": "saved gate",
    "ranks": "two GPUs",
    "report": "report",
}


def _near(power: float | None, drawn: float) -> bool:
    """Whether a measured power is the drawn one, up to a step of the counter at either end."""
    return power is not None and abs(power / drawn - 1) < 0.03


def _unless(*held: tuple[bool, str]) -> list[str]:
    """The sentences whose conditions do not hold."""
    return [sentence for holds, sentence in held if not holds]


def _shown(call: Callable[[], int]) -> tuple[int, str]:
    """An exit code, and what was written to standard output."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
        code = call()
    return code, out.getvalue()


def _command(*arguments: str) -> tuple[int, str]:
    from fwbench.commands import cli

    return _shown(lambda: cli.main(arguments))


def _on(name: str, commands: Sequence[str]) -> dict[str, Outcome]:
    """Rehearse in this process, which sees the machine and works in the suite's folder."""
    import cpuinfo

    from fwbench.commands.doctor import looks
    from fwbench.machine import cuda
    from fwbench.worker.turns import pairs

    machine, folder = MACHINES[name], Path.cwd()
    (folder / "conftest.py").write_text('pytest_plugins = ["fwbench.plugin"]\n')
    (folder / "test_suite.py").write_text(SUITE)
    cuda.builds = lambda: {"torch": (12, 8), "jax": (12,)}
    cpuinfo.get_cpu_info = functools.cache(cpuinfo.get_cpu_info)
    # In a rehearsal there is nothing to wait for.
    check = extension("trials.check")
    check._POLLED, looks._WATCHED, pairs._PLACINGS = 0.3, 0.05, 1
    check.OtherLoad = looks.OtherLoad = _Quiet
    rehearsal, outcomes = Rehearsal(machine, folder), {}
    for command in COMMANDS:
        if command in commands:
            outcomes[command] = getattr(rehearsal, command)()
            # NVML's utilisation covers half a second, within which nobody types the next command.
            time.sleep(0.6)
    return outcomes


def rehearse(
    name: str, folder: Path, faults: Sequence[str] = (), commands: Sequence[str] = tuple(COMMANDS)
) -> dict[str, Outcome]:
    """The result of each command on a machine, in processes of its own.

    Args:
        folder: an empty folder.
        faults: names in `FAULTS` of the faults to plant.
    """
    found = compiler()
    assert found, "a rehearsal needs a C compiler"
    machine = MACHINES[name]
    library, contexts, suite = (folder / each for each in ("nvml", "contexts", "suite"))
    for each in (library, contexts, suite):
        each.mkdir()
    steady = {"power": IDLE, "energy_step": 0.02, "contexts": contexts, "capability": list(machine.capability)}
    variables = Stub(library, found)(**steady, fails=machine.fails, **machine.state)
    # Most users choose no GPU.
    del variables["CUDA_VISIBLE_DEVICES"]
    # Nor do they run in a worker of xdist, in which pytest-benchmark measures nothing.
    others = ("CUDA_VISIBLE_DEVICES", "PYTEST_")
    here = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    root = str(Path(__file__).parents[1])
    variables |= {"REHEARSAL": "1", FAULT: json.dumps(faults), "PYTHONPATH": root, "OPENBLAS_NUM_THREADS": "1"}
    command = (sys.executable, "-m", "tests.rehearsal", "--on", name, "--commands", *commands)
    done = finish(*command, cwd=suite, env=here | variables)
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr}")
    return {command: (told, wrong) for command, (told, wrong) in json.loads(done.stdout.splitlines()[-1]).items()}


def markdown(found: Mapping[str, Mapping[str, Outcome]]) -> str:
    """The matrix, with a row for each machine."""
    titles = [COMMANDS[command] for command in next(iter(found.values()))]
    lines = [f"| machine | {' | '.join(titles)} |", f"|---|{'---|' * len(titles)}"]
    for name, outcomes in found.items():
        cells = (f"**wrong:** {'; '.join(wrong)[:300]}" if wrong else told for told, wrong in outcomes.values())
        lines.append(f"| {name} | {' | '.join(cell.replace(chr(10), ' ').replace('|', '/') for cell in cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Rehearse on every machine, or on one."""
    parser = argparse.ArgumentParser(prog="python -m tests.rehearsal", description="A rehearsal of a run on a GPU.")
    parser.add_argument("--plant", choices=FAULTS, nargs="+", default=(), help="false readings, which must be found")
    parser.add_argument("--machine", choices=MACHINES, help="this one alone")
    parser.add_argument("--on", choices=MACHINES, help=argparse.SUPPRESS)
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    options = parser.parse_args()
    if options.on:
        print("\n" + json.dumps(_on(options.on, options.commands)))
        return 0
    found = {}
    for name in [options.machine] if options.machine else MACHINES:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            found[name] = rehearse(name, Path(folder), options.plant, options.commands)
    print(markdown(found))
    return int(any(wrong for outcomes in found.values() for _, wrong in outcomes.values()))


if __name__ == "__main__":
    # Workers import this module by its name, so this process uses the module of that name, too.
    from tests import rehearsal

    sys.exit(rehearsal.main())
