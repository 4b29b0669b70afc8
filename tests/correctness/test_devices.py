"""Programs over several devices: N devices equal one, and a proof that would find it if they did not."""

import functools
import os
import socket
import sys
from pathlib import Path

import pytest

from fwbench import frameworks
from fwbench.ext.proofs.errors import NotTheSame
from fwbench.frameworks.contract import Ranks
from fwbench.frameworks.jax import parallel
from fwbench.models import CATALOG, Model
from fwbench.models.inputs import image
from fwbench.models.project import complete
from fwbench.record.lanes import OWN
from fwbench.record.workload import Workload
from tests.proving.devices import FIRST, PARTS, WHOLE, Trial, found
from tests.proving.devices_mutations import MISTAKES, STATISTICAL
from tests.tensorflow import needs_tensorflow
from tests.unit.shared import ALONE, finish

LANES = ("torch", "jax")
NORMALISED = Model(
    "normalised",
    torch="tests.correctness.normalised:torch_net",
    jax="tests.correctness.normalised:jax_net",
    inputs=image(6, 6, 3),
    classes=3,
)
# On small images, for the sake of time.
CNN = Model.from_json({**CATALOG["cnn"].to_json(), "inputs": {"": image(8, 8, 3).to_json()}})
RIGHT = (Trial(CATALOG["mlp"]), Trial(CNN), Trial(NORMALISED, optimizers=("sgd",)))
WRONG = [(CATALOG["mlp"], mistake.__name__) for mistake in MISTAKES]
WRONG += [(NORMALISED, mistake.__name__) for mistake in STATISTICAL]


@functools.cache
def proofs(lane):
    """All trials of a lane in one pair of processes, whose start costs more than they do."""
    trials = [*RIGHT, *(Trial(*wrong, ("sgd",)) for wrong in WRONG)]
    return {(answer.trial.model.name, answer.trial.mistake): answer for answer in found(lane, trials)}


@pytest.mark.slow
@pytest.mark.parametrize("model", [trial.model.name for trial in RIGHT])
@pytest.mark.parametrize("lane", LANES)
def test_two_devices_make_the_steps_of_one(lane, model):
    proof = proofs(lane)[model, ""]
    errors = proof.check()
    # As exact as sums in another order: the bounds are for deep networks.
    assert max(error for of in errors.values() for error in of.values()) < 1e-12
    steps = {"gradients", "sgd", "adam"}
    normalised = {PARTS: {"gradients", "sgd"}, FIRST: {"statistics"}}
    compared = normalised if model == "normalised" else {PARTS: steps, WHOLE: steps}
    assert {against: set(of) for against, of in errors.items()} == compared


@pytest.mark.slow
@needs_tensorflow
def test_two_devices_of_tensorflow_make_the_steps_of_one():
    for proof in found("tensorflow", [Trial(complete(model)) for model in (CATALOG["mlp"], CNN)]):
        errors = proof.check()
        assert max(error for of in errors.values() for error in of.values()) < 1e-12
        assert {against: set(of) for against, of in errors.items()} == {
            against: {"gradients", "sgd", "adam"} for against in (PARTS, WHOLE)
        }


@pytest.mark.slow
@pytest.mark.parametrize(("model", "mistake"), [(model.name, mistake) for model, mistake in WRONG])
@pytest.mark.parametrize("lane", LANES)
def test_the_proof_finds_a_planted_mistake(lane, model, mistake):
    proof = proofs(lane)[model, mistake]
    with pytest.raises(NotTheSame, match="the difference in"):
        proof.check()
    apart = {"one_parameter_forgotten", "other_weights_on_a_rank"}
    assert bool(proof.apart) == (mistake in apart)


@pytest.mark.slow
def test_programs_over_two_devices_in_one_process():
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    variables |= {**OWN["jax"].variables(1, "cpu"), "JAX_NUM_CPU_DEVICES": "2"}
    done = finish(sys.executable, "-m", "pytest", Path(__file__).with_name("two_devices.py"), *ALONE, env=variables)
    assert done.returncode == 0, done.stdout + done.stderr


class Two(Ranks):
    """One of two ranks, of which no other is asked anything."""

    def __init__(self, rank, address="127.0.0.1:1"):
        self.rank, self.size, self.local, self.address = rank, 2, rank, address

    def agree(self, value):
        return value

    def gather(self, value):
        return [value, None]


@pytest.mark.parametrize(
    ("fields", "ranks", "reason"),
    [
        ({"devices": 2}, None, "the workload needs 2 CPU devices, and JAX has 1"),
        ({"devices": 4}, Two(0), "the workload needs 2 CPU devices in each of 2 processes, and JAX has those of 1"),
        ({"devices": 3}, Two(0), "3 devices cannot be shared equally by 2 processes"),
        ({"devices": 2, "target": "h100"}, None, "JAX compiles for a GPU that is not here as one device, and not as"),
        ({"devices": 1}, None, None),
    ],
)
def test_too_few_devices_are_a_sentence(fields, ranks, reason, monkeypatch):
    framework = frameworks.load(OWN["jax"].adapter)
    monkeypatch.setattr(framework, "ranks", ranks)
    said = framework.unavailable(Workload("jax", "mlp", batch_size=12, **fields), CATALOG["mlp"])
    assert (said or "").startswith(reason or "")
    assert (said is None) == (reason is None)


def test_a_port_in_use_is_a_sentence_in_place_of_the_end_of_the_process():
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(OSError, match=f"^JAX's ranks cannot meet at {address}: Address already in use$"):
            parallel.join(Two(0, address))


def test_a_first_rank_that_is_not_there_is_a_sentence(monkeypatch):
    monkeypatch.setattr(parallel, "_FINDING", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    ranks = Two(1, address)
    monkeypatch.setattr(ranks, "gather", lambda value: [None, value])
    with pytest.raises(OSError, match=f"^JAX's first rank was not found at {address} within 0.2 s .Connection"):
        parallel.join(ranks)
