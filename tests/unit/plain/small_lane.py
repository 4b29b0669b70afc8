"""A lane in NumPy with networks that have a fault each: they remember, go wrong later, keep memory or stop."""

import os
import subprocess
from itertools import cycle

import numpy as np

from fwbench.frameworks.contract import CompileTimes, Framework, Program
from fwbench.frameworks.precision import reference
from fwbench.frameworks.training import HORIZON
from fwbench.models.importing import load
from fwbench.models.inputs import draw
from fwbench.record.lanes import Lane

BOTH = {"framework": "small", "distributions": ("numpy",), "processes": {"cpu": "device"}}
LANE = Lane(name="small", title="NumPy", adapter="small_lane:FRAMEWORK", **BOTH)
# One that always takes the batch of its build.
FIXED = Lane(name="fixed", title="NumPy, one batch", adapter="small_lane:OF_ONE_BATCH", **BOTH)

SIDE = 64


class Net:
    """One without a fault, of a millisecond or less."""

    def __init__(self):
        self.calls = 0

    def __call__(self, weights, x):
        self.calls += 1
        return self.compute(weights, x)

    def compute(self, weights, x):
        for _ in range(50):
            result = np.tanh(np.tanh(x @ weights["w"]) @ weights["w"])
        return result


class Heavy(Net):
    """As long as a lane's calls usually are, so that what is remembered is far faster on any machine."""

    def compute(self, weights, x):
        for _ in range(20):
            result = super().compute(weights, x)
        return result


class Remembers(Heavy):
    """By the array that it is given."""

    def __init__(self):
        super().__init__()
        self.kept = {}

    def key(self, weights, x):
        return id(x)

    def compute(self, weights, x):
        key = self.key(weights, x)
        if key not in self.kept:
            # The array is kept, too, or another one might come to lie where it was.
            self.kept[key] = super().compute(weights, x), x
        return self.kept[key][0]


class RemembersByValue(Remembers):
    def key(self, weights, x):
        return hash(x.tobytes())


class RemembersByAddress(Remembers):
    def key(self, weights, x):
        return x.ctypes.data


class RemembersForWeights(Remembers):
    def key(self, weights, x):
        return x.tobytes(), weights["w"].tobytes()


class RemembersTheLast(Remembers):
    """One output alone."""

    def compute(self, weights, x):
        if id(x) not in self.kept:
            self.kept.clear()
        return super().compute(weights, x)


class Constant(Net):
    def compute(self, weights, x):
        return np.ones((len(x), SIDE))


class Largest(Net):
    """Whose output is a number of a class, which no rounding moves."""

    def compute(self, weights, x):
        return super().compute(weights, x).argmax(1)[:, None].astype(np.float32)


class Later(Net):
    """All is well for twenty calls."""

    def __call__(self, weights, x):
        result = super().__call__(weights, x)
        return self.late(result) if self.calls > 20 else result

    def late(self, result):
        return result * np.nan


class InfiniteLater(Later):
    def late(self, result):
        return result + np.inf


class FewerLater(Later):
    def late(self, result):
        return result[: len(result) // 2]


class NoneLater(Later):
    def late(self, result):
        return result[:0]


class OtherLater(Later):
    def late(self, result):
        return result * 1.001


class Fewer(Net):
    def compute(self, weights, x):
        return super().compute(weights, x[:1])


class Random(Net):
    def compute(self, weights, x):
        return super().compute(weights, x) * np.random.default_rng().random(x.shape)


class Grows(Net):
    def __init__(self):
        super().__init__()
        self.kept = []

    def compute(self, weights, x):
        self.keep()
        return super().compute(weights, x)

    def keep(self):
        self.kept.append(bytearray(2**16))


class GrowsInArrays(Grows):
    def keep(self):
        self.kept.append(np.ones(2**13))


class GrowsInPieces(Grows):
    """Of which none is large."""

    def keep(self):
        self.kept.append([bytearray(1000) for _ in range(64)])


class GrowsAtFirst(Grows):
    """A cache that is full after a while."""

    def keep(self):
        if len(self.kept) < 50:
            super().keep()


class Stops(Net):
    """Once, for a second, at its first latency pass, in the midst of a call or before it."""

    at, seconds = (30,), 1
    signals = "STOP", "CONT"

    def __call__(self, weights, x):
        result = super().__call__(weights, x)
        if self.calls in self.at:
            stop, go_on = self.signals
            pid = os.getpid()
            command = f"kill -{stop} {pid}; sleep {self.seconds}; kill -{go_on} {pid}"
            # It goes on as soon as it is stopped and continued.
            subprocess.run(["sh", "-c", command], check=True)
        return result


class StopsInEachPass(Stops):
    at, seconds = range(30, 10**6, 100), 0.5


class OfOneBatch(Program):
    def __init__(self, network, workload, model, weights):
        self.settings = {}
        self.network, self.held = network, dict(weights)
        self.take([draw(model.inputs, workload.batch_size, workload.seed, {})])

    def compile(self):
        return CompileTimes(None, None, "nothing is compiled")

    def take(self, batches):
        self.batches = cycle([np.array(batch[""]) for batch in batches])

    def step(self):
        self.result = self.network(self.held, next(self.batches))

    def wait(self):
        pass

    def output(self):
        return self.result

    def weights(self):
        return self.held

    def restart(self, weights, draw=0):
        self.held = {name: weights[name] for name in self.held}

    def relocate(self):
        pass


class Call(OfOneBatch):
    def rotate(self, batches):
        self.take(batches)


class Small(Framework):
    def __init__(self, program):
        self.program = program

    def unavailable(self, workload, model):
        return None if "small" in model.networks else f"{model.name} names no network in this lane"

    def weight_shapes(self, model, sizes):
        return {"w": (SIDE, SIDE)}

    def build(self, workload, model, weights, horizon=HORIZON):
        return self.program(load(model.networks["small"])(), workload, model, weights)

    def probe(self, workload, operands):
        return reference(operands, np.float32)


FRAMEWORK = Small(Call)
OF_ONE_BATCH = Small(OfOneBatch)
