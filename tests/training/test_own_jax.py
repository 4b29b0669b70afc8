"""Networks of a user's own in JAX: built, fed, trained, and their weights carried over, whatever library wrote them."""

import functools
import re
import subprocess
import sys

import equinox
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

import fwbench
from fwbench.frameworks.jax.adapter import FRAMEWORK
from fwbench.frameworks.jax.networks import network
from fwbench.frameworks.training import targets as draw_targets
from fwbench.models.importing import ModelError
from fwbench.models.inputs import draw as draw_inputs
from fwbench.models.weights import draw
from fwbench.record.workload import Workload
from tests.programs import built, outputs

BATCH = 8
IMAGE = fwbench.image(8, 8, 3)
NUMBERS = fwbench.normal(4, 6)


def model(name, path, **fields):
    given = {"inputs": IMAGE, **fields}
    return fwbench.Model(name, jax=f"own_jax:{path}", **given)


MODELS = {
    "nnx": model("nnx", "Nnx", axes={"width": 7}, classes=5),
    "linen": model("linen", "Linen", axes={"width": 7}, classes=5),
    "equinox": model("equinox", "Equinox", axes={"width": 7}, classes=5, output="logits"),
    "tuple": model("tuple", "pair", classes=5),
    # Without classes, which the network itself must tell.
    "object": model("object", "Pair"),
}
TOKENS = model(
    "tokens",
    "Embedded",
    axes={"length": (4, 9)},
    inputs={"tokens": fwbench.tokens("length", vocabulary=11), "mask": fwbench.ones("length", dtype="int64")},
    output=0,
)
FUNCTION = model("function", "attention", inputs=dict.fromkeys(("query", "key", "value"), NUMBERS))
ATTENTION = model("attention", "Attention", inputs=NUMBERS, loss="mse", torch="own_jax:nothing")
STOCHASTIC = ("nnx", "linen", "equinox")

every_kind = pytest.mark.parametrize("kind", MODELS)
# The object's functions are the tuple's.
every_trained_kind = pytest.mark.parametrize("kind", [kind for kind in MODELS if kind != "object"])


def weights_of(described, seed=0):
    return draw(described, FRAMEWORK.weight_shapes(described, described.sizes()), seed)


def program(described, mode="inference", **fields):
    fields = {"batch_size": BATCH, "learning_rate": 0.02, **fields}
    made, _ = built(Workload("jax", described.name, mode=mode, **fields), described)
    made.compile()
    return made


def assert_equal(found, expected):
    """The same weights, bit for bit."""
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], array) for name, array in expected.items())


def changed(described, **fields):
    return fwbench.Model.from_json({**described.to_json(), **fields})


def sentence(described, mode="inference", **fields):
    with pytest.raises(ModelError) as caught:
        program(described, mode, **fields)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@every_kind
def test_inference_is_the_network_at_the_canonical_weights(kind):
    """Against NumPy, through names and layouts of PyTorch's."""
    made, weights = program(MODELS[kind]), weights_of(MODELS[kind])
    assert_equal(made.weights(), weights)
    (output,) = outputs(made, 1)
    x = draw_inputs(MODELS[kind].inputs, BATCH, 0, {})[""]
    if kind in STOCHASTIC:
        nchw = torch.from_numpy(x).permute(0, 3, 1, 2)
        given = {name: torch.from_numpy(array) for name, array in weights.items()}
        x = torch.nn.functional.conv2d(nchw, given["conv.weight"], given["conv.bias"], padding=1)
        if kind != "equinox":
            statistics = given["norm.running_mean"], given["norm.running_var"]
            x = torch.nn.functional.batch_norm(x, *statistics, given["norm.weight"], given["norm.bias"])
        if kind == "nnx":
            x = x + torch.arange(7).reshape(7, 1, 1) / 7
        x = x.relu().numpy().transpose(0, 2, 3, 1)
    x = x.mean((1, 2)) + (np.arange(7) if kind == "equinox" else 0)
    np.testing.assert_allclose(output, x @ weights["head.weight"].T + weights["head.bias"], rtol=1e-4, atol=1e-5)


# What a user of each library holds, and hands to its jit.
HELD = {"nnx": nnx.Module, "linen": dict, "equinox": equinox.Module, "tuple": dict, "object": dict}


# The work of whose jits a compiled program's call leaves out; those of others hand arrays over as it does.
LEFT_OUT = {"nnx": "flax.nnx.jit", "equinox": "equinox.filter_jit"}


def settled(made, count):
    """The outputs of calls that compile nothing."""
    before = made.compilations()
    found = outputs(made, count)
    assert made.compilations() == before
    return list(found)


@every_kind
def test_a_module_is_called_as_its_users_call_it(kind):
    """Its outputs are the program's own, also of other batches, of other weights and in other memory."""
    described = MODELS[kind]
    program_of, module_of = (program(described, call=call) for call in ("program", "module"))
    assert isinstance(module_of._held, HELD[kind])
    assert "call_leaves_out" not in module_of.settings
    assert program_of.settings.get("call_leaves_out") == LEFT_OUT.get(kind)
    del module_of.compiled
    others = weights_of(described, seed=1)
    batches = [draw_inputs(described.inputs, BATCH, seed, {}) for seed in (1, 2)]
    made_by = []
    for made in (program_of, module_of):
        found = settled(made, 1)
        made.rotate(batches)
        found += settled(made, 2)
        made.restart(others)
        found += settled(made, 1)
        made.relocate()
        made_by.append([*found, *settled(made, 1)])
    np.testing.assert_allclose(made_by[1], made_by[0], rtol=1e-5, atol=1e-6)
    # The last is of the batch and the weights of the one before.
    assert len({array.tobytes() for array in made_by[1]}) == 4


@pytest.mark.parametrize("fields", [{"mode": "prefill"}, {"devices": 2}])
def test_a_module_is_called_in_inference_on_one_device(fields):
    workload = Workload("jax", "nnx", batch_size=BATCH, call="module", **fields)
    assert FRAMEWORK.unavailable(workload, MODELS["nnx"])


def test_a_function_needs_neither_a_new_flax_nor_another_library():
    """A search of older releases of JAX brings older releases of Flax along; and Equinox takes time to import."""
    code = """
import sys
from flax import nnx
new = nnx.List
del nnx.List
from fwbench.frameworks.jax.adapter import FRAMEWORK
from fwbench.models import CATALOG, Model
from fwbench.models.inputs import normal
from fwbench.record.workload import Workload
model = Model("double", jax="jax.numpy:square", inputs=normal(3))
made = FRAMEWORK.build(Workload("jax", "double"), model, {})
made.compile()
nnx.List = new
FRAMEWORK.weight_shapes(CATALOG["mlp"], {})
assert "equinox" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@every_kind
def test_training_lowers_the_loss_trains_every_parameter_and_lets_statistics_run_along(kind):
    made = program(MODELS[kind], "train_step")
    before = made.weights()
    assert_equal(before, weights_of(MODELS[kind]))
    losses = outputs(made, 2)
    after = made.weights()
    losses = [*losses, *outputs(made, 38)]
    # The mean of some steps, as dropout makes each another.
    assert np.mean(losses[-5:]) < 0.97 * np.mean(losses[:5])
    assert [name for name in before if np.array_equal(before[name], after[name])] == []
    for name in before:
        if name.endswith("running_mean"):
            # A step of 0.02 by Adam would have moved every number by about as much.
            moved = np.abs(after[name] - before[name])
            assert moved.max() - moved.min() > 1e-4


@pytest.mark.parametrize("kind", STOCHASTIC)
def test_dropout_is_on_in_training_alone_and_advances(kind):
    made = network(MODELS[kind], MODELS[kind].sizes())
    leaves = jax.device_put(made.load(weights_of(MODELS[kind])))
    x = made.place(draw_inputs(MODELS[kind].inputs, BATCH, 0, {}), jnp.float32, jax.devices("cpu")[0])
    train = functools.partial(made.apply, inputs=x, train=True)
    first, after = train(leaves, key=jax.random.key(0))
    # NNX keeps its streams in its state, the others are given a key at every step.
    following = train(after, key=jax.random.key(0)) if kind == "nnx" else train(leaves, key=jax.random.key(1))
    assert not np.allclose(first, following[0])
    off, _ = train(leaves, key=None)
    assert np.array_equal(off, train(after if kind == "nnx" else leaves, key=None)[0])
    assert not np.allclose(off, first)
    assert np.array_equal(made.apply(leaves, x)[0], made.apply(leaves, x)[0])


def test_dropout_of_a_program_advances_from_step_to_step():
    """At a learning rate that moves nothing, only another mask makes another loss."""
    # NNX's module has a stream of its own. All others are given a key in each step, as Linen's is.
    for kind in ("nnx", "linen"):
        losses = outputs(program(MODELS[kind], "train_step", learning_rate=1e-12), 3)
        assert len({float(loss[0]) for loss in losses}) == 3


def test_without_a_key_only_stochastic_layers_are_off():
    """Batch normalisation still uses its batch: what the proof in training mode compares."""
    for kind in ("nnx", "linen"):
        made = network(MODELS[kind], MODELS[kind].sizes())
        leaves = jax.device_put(made.load(weights_of(MODELS[kind])))
        x = made.place(draw_inputs(MODELS[kind].inputs, BATCH, 0, {}), jnp.float32, jax.devices("cpu")[0])
        trained, after = made.apply(leaves, x, train=True)
        assert not np.allclose(trained, made.apply(leaves, x)[0])
        moved, kept = made.canonical(after), made.canonical(leaves)
        assert not np.allclose(moved["norm.running_mean"], kept["norm.running_mean"])


def test_streams_are_no_arguments_of_inference():
    made = program(MODELS["nnx"])
    kinds = [leaf.kind for leaf in made.network.leaves]
    assert kinds.count("random") == 2
    assert len(jax.tree.leaves(made.arguments)) == len(kinds) - 2 + 1
    assert not any(jnp.issubdtype(array.dtype, jax.dtypes.prng_key) for array in jax.tree.leaves(made.arguments))


def test_a_restart_begins_a_networks_own_random_streams_again():
    """Only NNX keeps any in its state; another draw has other masks."""
    made = program(MODELS["nnx"], "train_step")
    first = outputs(made, 3)
    made.restart(weights_of(MODELS["nnx"]), draw=1)
    other = outputs(made, 3)
    made.restart(weights_of(MODELS["nnx"]))
    np.testing.assert_array_equal(outputs(made, 3), first)
    assert not np.isclose(other[0], first[0])


@every_trained_kind
def test_relocating_and_accumulating_change_no_step(kind):
    expected = outputs(program(MODELS[kind], "train_step"), 3)
    made = program(MODELS[kind], "train_step")
    found = list(outputs(made, 1))
    made.relocate()
    np.testing.assert_array_equal([*found, *outputs(made, 2)], expected)
    (parts,) = outputs(program(MODELS[kind], "train_step", accumulate=4), 1)
    # Parts have their own batch statistics and masks.
    assert parts == pytest.approx(expected[0], rel=1e-6 if kind == "tuple" else 0.5)


@pytest.mark.parametrize(("length", "precision"), [(4, "fp32"), (9, "bf16")])
def test_tokens_stay_integers_and_axes_reach_the_builder(length, precision):
    fields = {"axes": (("length", length),), "precision": precision}
    made = program(TOKENS, **fields)
    assert made.weights()["position"].shape == (length, 6)
    (output,) = outputs(made, 1)
    assert output.shape == (BATCH, length, 11)
    # Embeddings of Flax compute in their weights' format.
    assert made.out[0].dtype == {"fp32": "float32", "bf16": "bfloat16"}[precision]
    losses = outputs(program(TOKENS, "train_step", **fields), 20)
    assert losses[-1] < 0.9 * losses[0]


def test_a_function_has_no_weights_to_train():
    made = program(FUNCTION)
    assert made.weights() == FRAMEWORK.weight_shapes(FUNCTION, {}) == {}
    (output,) = outputs(made, 1)
    query, key, value = (draw_inputs(FUNCTION.inputs, BATCH, 0, {})[name] for name in FUNCTION.inputs)
    expected = torch.softmax(torch.from_numpy(query @ key.swapaxes(1, 2)), -1).numpy() @ value
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)
    reason = FRAMEWORK.unavailable(Workload("jax", "function", mode="train_step"), FUNCTION)
    assert reason == "function has no weights to train"


@pytest.mark.parametrize(
    ("loss", "targets"),
    [
        ("mse", None),
        ({"jax": "own_jax:without_targets"}, None),
        ({"jax": "own_jax:regression"}, fwbench.normal(5)),
    ],
    ids=["mse", "without-targets", "own-targets"],
)
def test_losses(loss, targets):
    """The first one against NumPy; then it falls."""
    described = model("loss", "Pair", loss=loss, targets=targets)
    losses = outputs(program(described, "train_step", accumulate=2), 20)
    weights, x = weights_of(described), draw_inputs(described.inputs, BATCH, 0, {})[""]
    output = x.mean((1, 2)) @ weights["head.weight"].T + weights["head.bias"]
    wanted = draw_targets(Workload("jax", "loss", batch_size=BATCH), described, output.shape)
    error = output if wanted is None else output - wanted
    assert losses[0] == pytest.approx(np.abs(error).mean() if targets else np.square(error).mean(), rel=1e-5)
    assert losses[-1] < losses[0]


# Weights of another framework's names and layouts.


def test_regular_expressions_make_the_references_names():
    described = model(
        "named", "Nnx", torch="own_jax:nothing", weights={r"^conv\.": "features.0.", r"^features\.(\d)": r"body.\1"}
    )
    weights = program(described).weights()
    assert weights["body.0.weight"].shape == (6, 3, 3, 3)
    assert "norm.running_var" in weights


def test_the_references_own_names_are_not_mapped():
    """A model in JAX alone is its own reference."""
    assert "conv.weight" in FRAMEWORK.weight_shapes(model("alone", "Nnx", weights={"conv": "other"}), {})


def test_two_weights_of_one_name_are_an_error():
    described = model("clash", "Nnx", torch="own_jax:nothing", weights={r"^(conv|head)\.bias": "bias"})
    assert sentence(described) == "clash names two weights of its network in JAX 'bias': 'conv.bias' and 'head.bias'"


@pytest.mark.parametrize("function", ["fuse", "tied"])
def test_a_function_fuses_an_attention_into_pytorchs(function):
    described = changed(ATTENTION, weights=f"own_jax:{function}")
    made, weights = program(described), weights_of(described)
    reference = torch.nn.ModuleDict(
        {"attention": torch.nn.MultiheadAttention(6, 2, batch_first=True), "frozen": torch.nn.Linear(6, 6, bias=False)}
    )
    if function == "tied":
        # One array of Flax's is two of the reference's.
        again = weights.pop("again")
        assert again.shape == (6, 6)
        assert np.array_equal(made.weights().pop("again"), made.weights()["frozen.weight"].T)
        weights["frozen.weight"] = again.T
    else:
        assert all(np.array_equal(made.weights()[name], array) for name, array in weights.items())
    reference.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in weights.items()})
    x = torch.from_numpy(draw_inputs(described.inputs, BATCH, 0, {})[""])
    with torch.inference_mode():
        expected = reference["frozen"](reference["attention"](x, x, x)[0]).numpy()
    (output,) = outputs(made, 1)
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-6)


def test_gradients_come_back_under_canonical_names():
    described = changed(ATTENTION, weights="own_jax:fuse")
    made, weights = network(described, {}), weights_of(described)
    x = {"": jnp.asarray(draw_inputs(described.inputs, BATCH, 0, {})[""])}

    @jax.jit
    @jax.grad
    def gradient(weights):
        return jnp.square(made.apply(made.load(weights), x)[0]).sum()

    found = gradient(weights)
    assert {name: array.shape for name, array in found.items()} == made.shapes
    of_leaves = jax.jit(jax.grad(lambda leaves: jnp.square(made.apply(leaves, x)[0]).sum()))
    own = of_leaves(list(map(jnp.asarray, made.load(weights))))
    for name, array in made.canonical(own).items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("forgetful", r"'own_jax:forgetful' leaves out 36 of the 36 numbers of 'frozen.kernel' \(6, 6\)"),
        ("scaled", "'own_jax:scaled' computes 'attention.in_proj_weight' instead of rearranging weights"),
        ("padded", "'own_jax:padded' computes 'frozen.bias' instead of rearranging weights"),
        ("listed", "'own_jax:listed' returned an object of type list, not weights by their names"),
        ("broken", r"'own_jax:broken' raised KeyError: 'nowhere' \(.*own_jax.py, line \d+\)"),
        ("number", "'own_jax:number', the weights of attention, is an object of type int"),
    ],
)
def test_a_function_that_only_rearranges_is_asked_for(function, expected):
    described = changed(ATTENTION, weights=f"own_jax:{function}")
    with pytest.raises(ModelError, match=f"^{expected}"):
        FRAMEWORK.weight_shapes(described, {})


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda weights: weights.pop("head.bias"), "'head.bias' (5,) is missing"),
        (
            lambda weights: weights.update({"heads.bias": weights.pop("head.bias")}),
            "'head.bias' (5,) is missing (the nearest that nobody needs is 'heads.bias' (5,))",
        ),
        (lambda weights: weights.update(more=np.zeros(2, np.float32)), "'more' (2,) is unknown"),
        (
            lambda weights: weights.update({"head.bias": np.zeros(4, np.float32)}),
            "'head.bias' has the shape (4,) instead of (5,)",
        ),
    ],
)
def test_weights_that_do_not_fit_are_named(change, expected):
    weights = weights_of(MODELS["tuple"])
    change(weights)
    with pytest.raises(ModelError) as caught:
        FRAMEWORK.build(Workload("jax", "tuple"), MODELS["tuple"], weights)
    assert str(caught.value) == f"the weights do not fit tuple's network in JAX: {expected}"


# Wrong networks.


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("Raising", r"'own_jax:Raising' raised RuntimeError: no such luck \(.*own_jax.py, line \d+\)"),
        ("RaisingInCall", r"the network of wrong raised TypeError: .*reshape.* \(.*own_jax.py, line \d+\)"),
        ("WithoutBatch", r"wrong returns an output of shape \(8, 8, 5\) for a batch of 6: the first axis must be the"),
        ("Stateful", r"'own_jax:Stateful' has layers with a state \(equinox.nn.State\)"),
        ("stateful_with_state", r"'own_jax:stateful_with_state' has layers with a state \(equinox.nn.State\)"),
        ("a_dict", "'own_jax:a_dict' returned an object of type dict instead of a module of Flax NNX"),
        ("number", "'own_jax:number' is an object of type int instead of a module of Flax NNX"),
        ("two_inputs_too_many", "'own_jax:two_inputs_too_many' has the parameters x, y, z: a builder of wrong's"),
        ("Equinox", "wrong returns a dict with the keys 'logits' instead of an array"),
        ("Missing", "the module 'own_jax' has no 'Missing', which 'own_jax:Missing' names"),
    ],
)
@pytest.mark.parametrize("mode", ["inference", "train_step"])
def test_a_wrong_network_gets_one_sentence(path, expected, mode):
    assert re.match(expected, sentence(model("wrong", path), mode, batch_size=6))


def test_a_loss_that_is_no_scalar_gets_one_sentence():
    described = model("wrong", "Pair", loss={"jax": "own_jax:vector_loss"})
    expected = "'own_jax:vector_loss', the loss of wrong, returned an array of shape (8,) instead of a scalar"
    assert sentence(described, "train_step") == expected


def test_what_is_not_the_output_is_computed_too():
    """As PyTorch does: XLA would leave out a head that nobody asks for, and win by it."""
    two = program(model("two-heads", "TwoHeads", inputs=fwbench.normal(3), output="first"))
    assert outputs(two, 1).shape == (1, BATCH, 5)
    assert two.fingerprint().operators["dot_general"] == 2
