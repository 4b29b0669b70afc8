"""Small pairs of networks of which one is wrong in one way: a proof finds each, and passes its right twin."""

import numpy as np
import pytest
from safetensors.numpy import save_file

import fwbench
from fwbench.ext.proofs.errors import BOUNDS, NotTheSame, gradient_errors
from fwbench.ext.proofs.proof import modes
from fwbench.ext.proofs.randomness import KEYS, compare
from fwbench.models import ModelError, inputs
from tests.correctness.planted_networks import TWINS
from tests.correctness.proofs import WithoutSteps

NUMBERS, IMAGE = inputs.normal(8), inputs.image(8, 8, 3)

# By the network in PyTorch: its input, the right twins in JAX, and by each wrong one what the proof says of it. These
# mistakes show least: `planted.py` and `test_twins.py` have coarser ones.
PAIRS = {
    "Decay": (
        NUMBERS,
        ["decay"],
        {
            "decay_bfloat16": "output",
            "decay_clipped_steps": "perturbed weights",
            "decay_scaled_gradient": "'dt'",
            "decay_scaled_log_gradient": "'A_log'",
        },
    ),
    "many_states": (NUMBERS, ["many_states"], {"many_states_clip": "initial weights"}),
    "Conv": (IMAGE, ["conv"], {"conv_frozen": "train", "conv_rate_half": "jax is random in training mode"}),
    "Frozen": (IMAGE, ["conv_frozen"], {"conv": "train"}),
    "dropping": (
        IMAGE,
        ["conv_rate_half"],
        {"conv_rate_third": "compare the rates", "conv": "torch is random in training mode"},
    ),
    "Dense": (
        NUMBERS,
        ["dense_rate_half"],
        {"dense_rate_third": "compare the rates", "dense": "torch is random in training mode"},
    ),
    "dense": (NUMBERS, ["dense"], {"dense_rate_half": "jax is random in training mode"}),
}


def prove(torch, jax, **settings):
    """What each mode's proof of a pair reaches."""
    networks = {"torch": f"tests.correctness.small_torch:{torch}", "jax": f"tests.correctness.small_jax:{jax}"}
    return proved(fwbench.Model(f"{torch}-{jax}", inputs=PAIRS[torch][0], **networks, **settings))


def proved(model):
    proofs = [WithoutSteps(model, "jax", mode) for mode in modes(model)]
    for proof in proofs:
        for quantity in proof.quantities:
            proof.prove(quantity)
    return proofs


def case(torch, *of):
    """A parameter; to compare rates takes many draws."""
    return pytest.param(torch, *of, marks=pytest.mark.slow if torch in ("dropping", "Dense") else ())


@pytest.mark.parametrize(
    ("torch", "jax"), [case(torch, jax) for torch, (_, right, _) in PAIRS.items() for jax in right]
)
def test_right_twins_pass(torch, jax):
    evaluated, trained = prove(torch, jax)
    assert evaluated.points == trained.points
    assert evaluated.points == (
        "drawn weights",
        "initial weights",
        "perturbed weights, inputs times 4",
        "unit weights, inputs times 0.25",
        "small weights",
    )
    assert ("random" in trained.note) == (torch in ("dropping", "Dense"))
    assert 0 <= trained.nearest.ratio < 1


def test_a_right_port_of_an_attention_block_passes(pair):
    """In Linen, with rotated queries, keys that heads share, and a gate."""
    twins = TWINS["rotary attention"]
    assert 0 <= proved(pair(twins.torch, twins.jax, inputs=twins.inputs))[0].nearest.ratio < 1


@pytest.mark.parametrize(
    ("torch", "jax", "says"), [case(torch, *each) for torch, (_, _, of) in PAIRS.items() for each in of.items()]
)
def test_wrong_ones_are_found(torch, jax, says):
    with pytest.raises(NotTheSame, match=says):
        prove(torch, jax)


@pytest.fixture
def checkpoint(project):
    """Writes weights of `Decay` with this value in A_log to a file of the project, and names it."""

    def write(value, shape=(16,)):
        shapes = {"A_log": shape, "dt": (16,), "fc.weight": (16, 8), "fc.bias": (16,)}
        rng = np.random.default_rng(0)
        shapes |= {"head.weight": (5, 16), "head.bias": (5,)}
        arrays = {name: rng.normal(size=of).astype(np.float32) for name, of in shapes.items()}
        arrays["A_log"][:] = value
        # A name of its own, as a process proves a model at a file once.
        name = f"trained{value}.safetensors"
        save_file(arrays, project / name, {"format": "pt"})
        return name

    return write


def test_a_checkpoint_reaches_what_no_other_point_does(checkpoint):
    # The smallest of sixteen draws at unit scale lies above the clip at -12.
    prove("Decay", "decay_floor")
    prove("Decay", "decay_floor", checkpoint=checkpoint(-11.0))
    *_, trained = prove("Decay", "decay", checkpoint=checkpoint(-14.0))
    assert trained.points[-1] == "checkpoint weights"
    with pytest.raises(NotTheSame, match="checkpoint weights"):
        prove("Decay", "decay_floor", checkpoint=checkpoint(-14.1))


def test_a_checkpoint_that_does_not_fit_is_told(checkpoint, project):
    with pytest.raises(ModelError, match=r"'A_log' has the shape \(15,\) in the checkpoint 'trained"):
        prove("Decay", "decay", checkpoint=checkpoint(1.0, shape=(15,)))
    (project / "other.safetensors").write_bytes(b"no tensors")
    with pytest.raises(ModelError, match=r"'other\.safetensors' cannot be read as safetensors"):
        prove("Decay", "decay", checkpoint="other.safetensors")
    with pytest.raises(ModelError, match=r"there is no checkpoint 'none\.safetensors'"):
        prove("Decay", "decay", checkpoint="none.safetensors")


def test_gradients_are_held_to_their_own_length():
    expected = {"large": np.full(4, 1e6), "small": np.full(4, 1e-6), "rounding": np.full(4, 1e-17)}
    rounding = {"large": 1e-10, "small": 1e-22, "rounding": 2e-17}
    actual = expected | {"small": expected["small"] * 1.003, "rounding": -expected["rounding"]}
    errors = gradient_errors(actual, expected, rounding)
    assert errors["small"] == pytest.approx(3e-3)
    # Twice its own length, and well within a thousand of its roundings.
    assert errors["rounding"] < BOUNDS["gradients"] < errors["small"]
    assert errors["large"] == 0


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.slow if seed >= 5 else ()) for seed in range(20)]
)
def test_rates_are_told_apart(seed):
    rng = np.random.default_rng(seed)

    def outputs(rate):
        return (rng.random((KEYS, 64)) > rate).astype(float) @ weights / (1 - rate)

    weights = rng.normal(size=(64, 16))
    assert compare(outputs(0.5), outputs(0.5)).alike
    unlike = compare(outputs(0.5), outputs(0.3))
    assert not unlike.alike
    assert unlike.spread < 0.9
