"""Training steps of the user's own, with a program that counts what is asked of it."""

import numpy as np

from fwbench.frameworks.own_steps import Arithmetic
from fwbench.meters.own_steps import of_own_steps


class Program:
    """Each step takes a tenth off every weight."""

    def __init__(self):
        self.steps = self.copies = 0

    def restart(self, weights, draw=0):
        self.steps = 0

    def call_and_wait(self):
        self.steps += 1

    def arithmetic(self):
        return Arithmetic(frozenset({"float32"}), random=False)

    def metrics(self):
        return {"loss": 0.9**self.steps}

    def state_leaves(self):
        self.copies += 1
        return {"weights.w": 0.9**self.steps * np.arange(1.0, 4.0), "first moment.w": np.full(3, float(self.steps))}


def test_a_runs_check_copies_a_state_at_the_start_and_at_the_end_of_its_steps():
    program = Program()
    assert of_own_steps(program, {"w": np.arange(1.0, 4.0)}, "fp32").keys() == {
        "metrics",
        "moments",
        "state",
        "updates",
    }
    # Once more from moved weights.
    assert program.copies == 2 * 2
