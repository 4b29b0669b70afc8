"""A lane without a framework, whose server starts at once: a network is a class, and its program what it names."""

import numpy as np

from fwbench.frameworks.contract import CompileTimes, Framework, Program
from fwbench.frameworks.precision import reference
from fwbench.frameworks.training import HORIZON
from fwbench.models.importing import load
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.lanes import Lane

LANE = Lane(
    name="plain",
    framework="plain",
    title="no framework",
    adapter="plain_lane:FRAMEWORK",
    distributions=("numpy",),
    processes={"cpu": "device"},
)


class Call(Program):
    """Calls a network, which returns what it has computed and names the operators that it has run."""

    def __init__(self, network, ranks=None, batch_size=1):
        self.settings = {}
        self.batch_size = batch_size
        self.network = network
        network.batch_size = batch_size
        self.ranks = ranks

    def agree(self, value):
        return self.ranks.agree(value) if self.ranks else value

    def compile(self):
        return CompileTimes(None, None, "nothing is compiled")

    def step(self):
        self.result = self.network()

    def wait(self):
        pass

    def output(self):
        return np.full((self.batch_size, 1), self.result, np.float32)

    def weights(self):
        return {}

    def relocate(self):
        pass

    def fingerprint(self):
        self.network.operators = {}
        self.step()
        operators = self.network.operators
        absent = dict.fromkeys(
            Fingerprint.untold("no compiler").absent.keys() - {"digest", "form", "operators"}, "none"
        )
        return Fingerprint(form="operators", digest=str(sorted(operators.items())), operators=operators, absent=absent)


class Plain(Framework):
    def join(self, ranks):
        self.ranks = ranks

    def unavailable(self, workload, model):
        return None if "plain" in model.networks else f"{model.name} names no network in the plain lane"

    def weight_shapes(self, model, sizes):
        return {}

    def build(self, workload, model, weights, horizon=HORIZON):
        return Call(load(model.networks["plain"])(), self.ranks, workload.batch_size)

    def probe(self, workload, operands):
        return reference(operands, np.float32)


FRAMEWORK = Plain()
