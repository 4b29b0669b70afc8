"""A proof of training steps of the user's own, with a program that counts what is asked of it."""

import pytest

from fwbench.ext.proofs import own_steps
from fwbench.models import CATALOG
from tests.unit.test_own_steps import Program


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
