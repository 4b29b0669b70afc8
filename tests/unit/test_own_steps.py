"""Training steps of the user's own, with a program that counts what is asked of it."""

import numpy as np
import pytest

from fwbench.frameworks.own_steps import Arithmetic
from fwbench.meters.own_steps import of_own_steps
from fwbench.models import CATALOG
from fwbench.parity import own_steps


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


@pytest.fixture
def pair():
    runners = [own_steps._Runner(framework, Program(), {}) for framework in ("torch", "jax")]
    for runner in runners:
        runner.begin({})
    return runners


def test_a_proof_copies_a_state_once_a_step(pair):
    found = own_steps._compared(CATALOG["mlp"], *pair)
    assert (found.failure, found.note) == ("", "")
    assert [runner.program.copies for runner in pair] == [1 + own_steps._STEPS] * 2


def test_a_proof_names_the_first_step_and_leaf_apart(pair):
    pair[1].program.metrics = lambda: {"loss": 0.9 ** pair[1].program.steps + (pair[1].program.steps > 2)}
    found = own_steps._compared(CATALOG["mlp"], *pair)
    assert found.failure.startswith("mlp: the training steps of torch and jax part at step 3 in 'the metric loss', by ")


def test_a_runs_check_copies_a_state_at_the_start_and_at_the_end_of_its_steps():
    program = Program()
    parts = of_own_steps(program, lambda: {"w": np.arange(1.0, 4.0)}, "fp32")
    assert next(parts) == {}
    program.call_and_wait()
    assert next(parts).keys() == {"metrics", "moments", "state", "updates"}
    # Once more from moved weights.
    assert program.copies == 2 * 2
