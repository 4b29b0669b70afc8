"""Training steps of the user's own: programs, the run's check, and the proof that names the first leaf apart."""

import functools

import numpy as np
import pytest
import torch

import fwbench
from fwbench import frameworks
from fwbench.compare.agreement import agreement
from fwbench.ext.own_steps.states import Names
from fwbench.ext.own_steps.torch import _leaves
from fwbench.ext.proofs import own_steps
from fwbench.frameworks.own_steps import Stepping
from fwbench.meters.own_steps import of_own_steps
from fwbench.models import Model, ModelError
from fwbench.record.lanes import OWN
from fwbench.record.measurement import Measurement
from fwbench.record.workload import Workload
from tests import programs

_HERE = "tests.correctness.training_steps"


def model(state="nnx_state", step="nnx_step", net="JaxNet", torch_state="torch_state", torch_step="torch_step"):
    return Model(
        "stepping",
        torch=f"{_HERE}:TorchNet",
        jax=f"{_HERE}:{net}",
        inputs=fwbench.normal(6),
        targets=fwbench.integers(high=4),
        train_step={"torch": f"{_HERE}:{torch_step}", "jax": f"{_HERE}:{step}"},
        train_state={"torch": f"{_HERE}:{torch_state}", "jax": f"{_HERE}:{state}"},
    )


def planted(name):
    return model(f"{name}.state", f"{name}.step", "by_hand")


def built(model, lane):
    program, weights = programs.built(Workload(lane, model.name, "train_step", 8), model)
    program.compile()
    assert isinstance(program, Stepping)
    return program, weights


@functools.cache
def checked(model, lane):
    """A measurement as a run would make it, of the check alone."""
    program, weights = built(model, lane)
    check = of_own_steps(program, weights, "fp32")
    return Measurement(Workload(lane, model.name, "train_step", 8), parity={"check": check})


@pytest.mark.parametrize("lane", ["torch", "jax"])
def test_a_restart_makes_the_first_steps_again(lane):
    program, weights = built(model(), lane)
    program.restart(weights)
    program.call_and_wait()
    first = program.metrics(), program.state_leaves()
    program.call_and_wait()
    assert program.metrics()["loss"] != first[0]["loss"]
    program.restart(weights)
    program.call_and_wait()
    assert program.metrics() == first[0]
    assert program.output().tolist() == list(first[0].values())
    assert program.state_leaves().keys() == first[1].keys()
    for name, array in program.state_leaves().items():
        np.testing.assert_array_equal(array, first[1][name])


def test_weights_are_those_of_the_state_that_the_last_step_returned():
    program, weights = built(model(torch_state="torch_bare", torch_step="torch_anew"), "torch")
    before = program.weights()
    assert before.keys() == weights.keys()
    program.call_and_wait()
    after, leaves = program.weights(), program.state_leaves()
    for name, array in before.items():
        np.testing.assert_array_equal(array, weights[name])
        assert not np.array_equal(after[name], array)
        np.testing.assert_array_equal(after[name], leaves[f"weights.{name}"])


def test_a_state_that_holds_itself_is_walked_once_and_what_it_holds_twice_twice():
    shared = [torch.ones(2)]
    state = {"a": shared, "b": shared}
    state["self"] = state
    assert [path for path, _ in _leaves(state)] == ["a.0", "b.0"]


def test_leaves_have_the_same_names_and_layouts_in_both_frameworks():
    shapes = []
    for lane in ("torch", "jax"):
        program, _ = built(model(), lane)
        program.call_and_wait()
        shapes.append({name: array.shape for name, array in program.state_leaves().items()})
    one, other = shapes
    names = [f"{part}.{of}" for part in ("up", "down") for of in ("weight", "bias")]
    roles = ("weights", "first moment", "second moment", "ema")
    assert {f"{role}.{name}" for role in roles for name in names} | {"step"} == one.keys() & other.keys()
    assert all(one[name] == other[name] for name in one.keys() & other.keys())
    assert one["weights.up.weight"] == (8, 6)


@pytest.mark.parametrize(
    ("keys", "roles"),
    [
        (("copy", "params"), ("copy", "weights")),
        (("ema_params", "params"), ("ema", "weights")),
        (("ema.module", "network"), ("ema", "weights")),
        (("opt.0.mu", "opt.0.nu", "w"), ("first moment", "second moment", "weights")),
        (("a.exp_avg", "b.exp_avg", "w"), ("first moment", "first moment (2)", "weights")),
    ],
)
def test_arrays_have_a_role_by_their_names(keys, roles):
    names = Names(model(), {f"{key}.up.weight": (8, 6) for key in keys}, {"up.weight": (8, 6), "weight": (8, 6)})
    assert [names.of[f"{key}.up.weight"] for key in keys] == [(role, "up.weight") for role in roles]


def test_a_state_without_the_weights_is_refused():
    with pytest.raises(ModelError, match="does not hold the weights"):
        Names(model(), {"opt.mu.weight": (8, 6), "params.weight": (6, 8)}, {"weight": (8, 6)})


@pytest.mark.parametrize(
    "twins",
    [
        model(),
        model(torch_state="torch_fused"),
        model(torch_state="torch_scaled", torch_step="torch_scaled_step"),
        planted("RIGHT"),
        model("tree_state", "tree_step", "LinenNet"),
        model("tree_state", "tree_step", "EquinoxNet"),
        model("split_state", "split_step", torch_state="torch_averaged", torch_step="torch_averaged_step"),
        model(step="nnx_mixed", torch_step="torch_mixed"),
    ],
    ids=["optax", "fused", "scaled", "by hand", "linen", "equinox", "averaged", "bf16"],
)
def test_right_twins_agree_in_the_run_and_are_proved(twins):
    found = agreement(checked(twins, "torch"), checked(twins, "jax"))
    assert found.agrees, str(found)
    steps = own_steps.prove(twins, "jax")
    assert not steps.failure
    assert steps.nearest[0].error < 1e-9
    assert ("'scale' of torch" in steps.note) == ("scaled" in str(twins.train_step))
    assert ("16 bits" in steps.note) == ("mixed" in str(twins.train_step))


@pytest.mark.parametrize(
    ("mistake", "quantities"),
    [
        ("ZEROS", {"state", "updates"}),
        ("L2", {"moments", "updates"}),
        ("UNCLIPPED", {"moments", "updates"}),
        ("AHEAD", {"updates", "state", "metrics"}),
        ("KEEPS", {"updates"}),
    ],
)
def test_the_run_finds_a_mistake(mistake, quantities):
    found = agreement(checked(model(), "torch"), checked(planted(mistake), "jax"))
    assert found.agrees is False
    assert found.quantity in quantities
    assert found.beside == "norm (torch)"


def test_steps_that_draw_random_numbers_are_not_compared():
    twins = model(torch_step="torch_dropout")
    program, weights = built(twins, "torch")
    assert "draws random numbers" in of_own_steps(program, weights, "fp32")["reason"]
    with pytest.raises(ModelError, match="in torch draws random numbers"):
        own_steps.prove(twins, "jax")


def test_in_16_bits_the_run_finds_an_average_that_begins_at_zero():
    twins = model(step="nnx_mixed", torch_step="torch_mixed", torch_state="torch_zeros")
    measured = [checked(twins, lane) for lane in ("torch", "jax")]
    assert [one.parity["check"]["precision"] for one in measured] == ["bf16", "bf16"]
    found = agreement(*measured)
    assert found.agrees is False
    assert (found.quantity, found.name.partition(".")[0]) == ("state", "ema")


# By the first leaf that differs: mistakes of `training_steps`, and the cause that a proof names.
MISTAKES = {
    "at step 1 in 'first moment.": {
        "BETA": "keeps 0.9 of the first moment and 0.999 of the second, and jax keeps 0.8",
        "L2": "jax adds 0.1 times the weights to the gradients (L2)",
        "CLIP": "torch clips gradients to a norm of 0.1, and jax clips gradients to a norm of 0.05",
        "UNCLIPPED": "torch clips gradients to a norm of 0.1, and jax does not clip them",
        "PARTS": "jax clips the gradients of 4 parts of the batch and averages them then",
    },
    "at step 1 in 'weights.": {
        "INSIDE": "takes an epsilon of 1e-08 beside the root, and jax takes an epsilon of 1e-06 inside",
        "EPSILON": "jax takes an epsilon of 1e-06 beside the root",
        "UNCORRECTED": "jax does not correct the moments' bias",
        "DECAY": "jax decays the weights by 0.01 times the learning rate",
        "AHEAD": "the learning rate of torch is a step behind that of jax",
    },
    "before the first step in 'ema.": {
        "ZEROS": "torch begins `ema` with the weights, and jax begins `ema` with zeros",
    },
    "at step 1 in 'ema.": {
        "COPIES": "jax takes the weights over at its first step, and keeps 0.99 of the average then",
        "KEEPS": "torch keeps 0.99 of the average, and jax keeps 0.999 of the average",
        "EARLY": "jax takes in the weights before each step",
    },
}
# Their causes are told by the same words as others with another number.
SAID_BY_OTHERS = ("CLIP", "EPSILON", "DECAY", "KEEPS")


@pytest.mark.parametrize(
    ("mistake", "place", "cause"),
    [
        pytest.param(mistake, place, cause, marks=pytest.mark.slow if mistake in SAID_BY_OTHERS else ())
        for place, of in MISTAKES.items()
        for mistake, cause in of.items()
    ],
)
def test_a_proof_names_the_first_leaf_apart_and_the_cause(mistake, place, cause):
    found = own_steps.prove(planted(mistake), "jax")
    assert place in found.failure
    assert cause in found.failure
    assert not found.nearest[0].error <= found.nearest[0].bound


def test_the_first_value_of_an_average_of_pytorchs_own_is_named():
    twins = model("split_state", "split_lerp", torch_state="torch_averaged", torch_step="torch_averaged_step")
    found = own_steps.prove(twins, "jax").failure
    assert "at step 1 in 'ema." in found
    assert "torch takes the weights over at its first step" in found


def test_a_model_with_a_step_names_it_in_its_json_and_others_do_not():
    own = model()
    assert Model.from_json(own.to_json()) == own
    assert not {"train_step", "train_state"} & Model("plain", torch="a:B", inputs=fwbench.normal(2)).to_json().keys()
    with pytest.raises(ValueError, match="same frameworks"):
        Model("half", torch="a:B", inputs=fwbench.normal(2), train_step={"torch": "a:step"})


@pytest.mark.parametrize(
    ("settings", "word"),
    [({"optimizer": "sgd"}, "optimizer"), ({"accumulate": 2}, "accumulate"), ({"mode": "fit"}, "measure train_step")],
)
@pytest.mark.parametrize("lane", ["torch", "jax"])
def test_a_setting_that_the_step_decides_is_refused(lane, settings, word):
    workload = Workload(lane, "stepping", batch_size=8, **{"mode": "train_step", **settings})
    assert word in frameworks.load(OWN[lane].adapter).unavailable(workload, model())


def test_a_step_that_fails_is_one_sentence():
    for step, sentence in (
        ("no_pair", r"training step of stepping in .* returns the pair \(state, metrics\)"),
        ("raises", "the training step of stepping raised ZeroDivisionError"),
    ):
        for lane in ("torch", "jax"):
            with pytest.raises(ModelError, match=sentence):
                built(model(step=step, torch_step=step), lane)[0].step()
