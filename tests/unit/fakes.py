"""A clock that only moves when told, and programs that move it: the harness tested without timing anything."""

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fwbench.frameworks import precision
from fwbench.frameworks.contract import CompileTimes, Framework, Program, Scores, Trainer
from fwbench.machine.nvml import Gpu
from fwbench.models.project import Project
from fwbench.record.machine import AcceleratorState

# A project of which nothing but the suite's own models is measured.
NO_PROJECT = Project(Path(), ())


def round_mantissa(array, bits):
    """float32 numbers rounded to nearest at so many mantissa bits, as TF32 (10) and bfloat16 (7) do."""
    drop = 23 - bits
    integers = array.view(np.uint32).astype(np.uint64)
    rounded = (integers + (1 << (drop - 1))) >> drop << drop
    return rounded.astype(np.uint32).view(np.float32)


def cut_mantissa(array, bits):
    """float32 numbers without the mantissa's last bits: rounded towards zero."""
    drop = 23 - bits
    return (array.view(np.uint32) >> drop << drop).view(np.float32)


# The probe's operands and their products, which take a tenth of a second to compute, once for all fakes.
operands = functools.cache(precision.operands)
_reference = precision.reference
_products = functools.cache(lambda dtype: _reference(operands(), dtype))


def products(given, dtype=np.float64):
    """As `precision.reference`, which tests of whole measurements put it in the place of."""
    return _products(dtype) if given is operands() else _reference(given, dtype)


class FakeClock:
    """Seconds that pass when `advance` or `sleep` says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds

    sleep = advance


class FakeGpu(Gpu):
    """A GPU without an energy counter.

    Args:
        looked: called at each look.
        states: one a look, the last for all that follow; default: nothing is told.
        counted: seconds for which its clocks were held down, by reason, one a look likewise.
    """

    def __init__(self, looked: Callable[[], object] = lambda: None, states=(), counted=()) -> None:
        super().__init__(handle=None, whole=None, name="fake", uuid="GPU-0", driver="580", cuda=(13, 0), memory=2**36)
        object.__setattr__(self, "looked", looked)
        object.__setattr__(self, "states", list(states) or [AcceleratorState()])
        object.__setattr__(self, "counted", list(counted) or [{}])

    def energy(self):
        raise RuntimeError("not supported")

    def process_memory(self, pid):
        return None

    def held(self):
        return self.counted.pop(0) if len(self.counted) > 1 else self.counted[0]

    def state(self):
        self.looked()
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]


class FakeProgram(Program):
    """Each call takes `duration` seconds of the fake clock: enqueuing is free, waiting is not.

    Args:
        clock: moved by `wait`.
        duration: seconds of a call, or a function of the call's number (from 0).
        output: what the last call computed.
    """

    # Set by `FakeFramework`.
    batch_size = 1

    def __init__(self, clock: FakeClock, duration: float | Callable[[int], float] = 1.0, output: float = 0.0) -> None:
        self.settings = {"fake": True}
        self.clock = clock
        self.duration = duration if callable(duration) else lambda _: duration
        self.calls = 0
        self.waits = 0
        self.pending: list[float] = []
        self.value = output
        self.log: list[str] = []

    def compile(self):
        self.log.append("compile")
        self.clock.advance(3.0)
        return CompileTimes(1.0, 2.0)

    def step(self):
        self.log.append("step")
        self.pending.append(self.duration(self.calls))
        self.calls += 1

    def wait(self):
        self.log.append("wait")
        self.waits += 1
        self.clock.advance(sum(self.pending))
        self.pending.clear()

    def output(self):
        return np.full((self.batch_size, 1), self.value)

    def weights(self):
        return {}

    def relocate(self):
        self.log.append("relocate")


class FakeFramework(Framework):
    """Builds what it is given; raises or refuses when told to."""

    def __init__(self, program=None, error=None, reason=None, products=None, offered=None) -> None:
        self.products = products
        # A call by the name of the method that offers it.
        self.offered = offered or {}
        self.program = program
        self.error = error
        self.reason = reason

    def unavailable(self, workload, model):
        return self.reason

    def weight_shapes(self, model, sizes):
        return {}

    def probe(self, workload, operands):
        return self.products or products(operands, np.float32)

    def matrix_product(self, workload, left, right):
        return self._offered("product", 2 * len(left) ** 3)

    def convolution(self, workload, images, kernel):
        assert images.shape[1:] == (28, 28, 256)
        return self._offered("convolution", 2 * images[..., 0].size * kernel.size)

    def copy(self, workload, numbers):
        return self._offered("copy", 8 * numbers)

    def _offered(self, name, amount):
        """A call that takes the time of so much at its rate; an exception in its place is raised."""
        call = self.offered.get(name)
        if isinstance(call, Exception):
            raise call
        return (lambda: call(amount), f"a {name}'s library") if call else None

    def build(self, workload, model, weights, horizon=0):
        if self.error:
            raise self.error
        if workload.mode == "inference" and isinstance(self.program, FakeProgram):
            self.program.batch_size = workload.batch_size
        return self.program


class FakeTrainer(FakeProgram, Trainer):
    """Evaluating a batch takes 0.25 s; losses count down from 10, half of a batch's answers are right."""

    def __init__(self, clock, duration=1.0, losses=None) -> None:
        super().__init__(clock, duration)
        self.losses = iter(losses or range(10, -1000, -1))
        self.scored = []
        self.made = []
        self.size = 1

    def feed(self, images, labels):
        self.log.append("feed")
        self.size = len(labels)

    def step(self):
        super().step()
        self.made.append((float(next(self.losses)), self.size / 2))

    def curve(self):
        made, self.made = self.made, []
        return made

    def score(self, images, labels):
        self.pending.append(0.25)
        self.scored.append(labels)

    def scores(self):
        samples = sum(int((labels >= 0).sum()) for labels in self.scored)
        self.scored.clear()
        return Scores(loss=float(samples), top1=0.5, top5=1.0)
