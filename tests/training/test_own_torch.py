"""Networks that users bring along, in the lanes of PyTorch: built, fed, called and trained as their authors meant."""

import functools
import inspect

import numpy as np
import pytest
import torch
import torch_networks
from torch.nn import functional

from fwbench import frameworks
from fwbench.frameworks.torch.networks import load_weights, network, shapes
from fwbench.frameworks.torch.program import Placed
from fwbench.frameworks.training import targets
from fwbench.meters.sketching import of_inference, of_training
from fwbench.models import CATALOG, Model, inputs
from fwbench.models.importing import ModelError
from fwbench.models.weights import draw
from fwbench.record.lanes import OWN
from fwbench.record.sketch import Sketch
from fwbench.record.workload import Workload
from tests import programs

BATCH = 4
TOKENS = {
    "input_ids": inputs.tokens("length", vocabulary=1000),
    "attention_mask": inputs.ones("length", dtype="int32"),
}


@pytest.fixture(scope="module", autouse=True)
def libraries():
    """Imported before a network is built, and not by every process that collects these tests."""
    import timm  # noqa: F401
    from transformers import BertForTokenClassification  # noqa: F401


def model(name, given, **fields):
    """A model whose network has the same name in the module of this folder."""
    return Model(name, torch=f"torch_networks:{name}", inputs=given, **fields)


IMAGE = inputs.image(32, 32, 3)
VECTOR = inputs.normal(8)
TRAINED = (
    model("vision_transformer", inputs.image("image_size", "image_size", 3), axes={"image_size": 32}),
    model("resnet", IMAGE, classes=7),
    model("swin", IMAGE),
    model("bert", TOKENS, axes={"length": (16, 32)}, output="logits"),
    model("GPT", inputs.tokens("length", vocabulary=1000), axes={"length": 16}),
    model("Normalised", VECTOR, output=1, loss="mse"),
    model("Named", {"x": VECTOR, "mask": inputs.integers(8, high=2, dtype="bool")}, output="kept"),
    model("Curious", VECTOR),
)
SEQUENCES = dict.fromkeys(("query", "key", "value"), inputs.normal(6, 8))
FUNCTIONS = (
    model("attention", SEQUENCES),
    Model("sdpa", torch="torch.nn.functional:scaled_dot_product_attention", inputs=SEQUENCES),
    model("roll", VECTOR, axes={"by": (3, 2)}),
    model("attention_of", inputs.normal(6, 8), axes={"heads": 2}),
)


def named(models):
    return pytest.mark.parametrize("row", models, ids=lambda row: row.name)


def built(row, mode="inference", lane="torch", **fields):
    return programs.built(Workload(lane, row.name, mode, BATCH, **fields), row)[0]


def given(row, axes=()):
    """The inputs as PyTorch takes them, made here once more."""
    arrays = inputs.draw(row.inputs, BATCH, 0, row.sizes(axes))
    found = {}
    for name, array in arrays.items():
        tensor = torch.from_numpy(array)
        found[name] = tensor.long() if tensor.dtype is torch.int32 else tensor
        if row.inputs[name].image:
            found[name] = tensor.permute(0, 3, 1, 2)
    return found


def own(row, axes=()):
    """The user's network, built without fwbench, with the canonical weights; and a call of it with its inputs."""
    torch.manual_seed(0)
    builder = getattr(torch_networks, row.name)
    parameters = inspect.signature(builder).parameters
    module = builder(**{axis: size for axis, size in row.sizes(axes).items() if axis in parameters})
    weights = draw(row, {name: tuple(tensor.shape) for name, tensor in canonical(module).items()}, 0)
    with torch.no_grad():
        for name, tensor in canonical(module).items():
            tensor.copy_(torch.from_numpy(np.asarray(weights[name])))
    batch = given(row, axes)

    def call():
        returned = module(batch[""]) if "" in batch else module(**batch)
        return returned if row.output is None else returned[row.output]

    return module, call


def canonical(module):
    trained = {name: tensor for name, tensor in module.named_parameters() if tensor.is_floating_point()}
    return trained | {name: tensor for name, tensor in module.named_buffers() if "running_" in name}


def inferred(program):
    with program.session():
        program.compile()
        return programs.outputs(program, 1)[0]


def stepped(program, steps=2):
    """The losses of the first steps, of which compiling makes one."""
    return programs.outputs(program, steps)[:, 0].tolist()


@named(TRAINED)
def test_inference_is_the_users_network_on_its_inputs(row):
    module, call = own(row)
    with torch.no_grad():
        module.eval()
        expected = call()
    np.testing.assert_allclose(inferred(built(row)), expected, rtol=1e-4, atol=1e-5)


@named(TRAINED)
def test_a_training_step_is_the_users_network_with_its_loss_and_adam(row):
    module, call = own(row)
    optimizer = torch.optim.Adam([p for p in module.parameters() if p.requires_grad], lr=1e-4)
    module.train()
    expected = []
    # Swin drops paths at random.
    torch.manual_seed(0)
    for _ in range(2):
        output = call()
        wanted = torch.from_numpy(targets(Workload("torch", row.name, "train_step", BATCH), row, tuple(output.shape)))
        if row.loss == "mse":
            loss = (output - wanted).square().mean()
        else:
            loss = functional.cross_entropy(output.movedim(-1, 1), wanted.long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    assert stepped(built(row, "train_step")) == pytest.approx(expected, rel=1e-4)


# Inductor's kernels take a C++ compiler half a minute of a language model: these have of one what is fwbench's matter.
@pytest.mark.slow
@named([model("Tagger", TOKENS, axes={"length": 16}, output="logits")])
def test_compiling_changes_no_output(row):
    compiled = built(row, lane="torch-compile")
    np.testing.assert_allclose(inferred(compiled), inferred(built(row)), rtol=1e-4, atol=1e-5)
    assert compiled.fingerprint().operators["embedding"]


@pytest.mark.slow
@named([model("Bigram", inputs.tokens(16, vocabulary=1000)), model("Head", {"x": VECTOR}, classes=3)])
def test_compiling_changes_no_training_step(row):
    """With weights that are tied, and with an input that has a name."""
    expected = stepped(built(row, "train_step"))
    compiled = built(row, "train_step", "torch-compile")
    compiled.compile()
    # Compiling made the first step.
    assert stepped(compiled, 1) == pytest.approx(expected[1:], rel=1e-4)


@pytest.mark.parametrize(
    ("row", "lane"),
    [
        *(pytest.param(row, "torch", id=row.name) for row in FUNCTIONS),
        pytest.param(FUNCTIONS[0], "torch-compile", id="compiled", marks=pytest.mark.slow),
    ],
)
def test_a_function_without_weights_is_a_model(row, lane):
    batch = given(row)
    expected = {
        "attention": lambda: torch_networks.attention(**batch),
        "sdpa": lambda: functional.scaled_dot_product_attention(**batch),
        "roll": lambda: batch[""].roll(3, -1),
        "attention_of": lambda: torch_networks.attention_of(2)(batch[""]),
    }[row.name]()
    assert shapes(network(row, row.sizes())) == {}
    np.testing.assert_allclose(inferred(built(row, lane=lane)), expected, rtol=1e-4, atol=1e-5)
    training = Workload("torch", row.name, "train_step", BATCH)
    assert frameworks.load(OWN["torch"].adapter).unavailable(training, row) == f"{row.name} has no weights to train"


def test_a_workloads_axes_reach_builders_functions_and_inputs():
    bert, roll = TRAINED[3], FUNCTIONS[2]
    assert inferred(built(bert, axes=(("length", 32),))).shape == (BATCH, 32, 5)
    found = inferred(built(roll, axes=(("by", 2),)))
    np.testing.assert_array_equal(found, given(roll)[""].roll(2, -1))


def test_whole_numbers_and_truth_values_stay_such_in_bf16():
    bert, mixed = TRAINED[3], TRAINED[6]
    program = built(bert, precision="bf16")
    assert {tensor.dtype for tensor in program.inputs.values()} == {torch.int64}
    for name, tensor in given(bert).items():
        assert torch.equal(program.inputs[name], tensor)
    # Token numbers of more than 256 would have become others.
    np.testing.assert_allclose(inferred(program), inferred(built(bert)), rtol=0.1, atol=0.05)
    for mode, dtype in (("inference", torch.bfloat16), ("train_step", torch.float32)):
        program = built(mixed, mode, precision="bf16")
        assert {name: tensor.dtype for name, tensor in program.inputs.items()} == {"x": dtype, "mask": torch.bool}
        # The real part would not be enough.
        assert program.module.turn.dtype is torch.complex64


def test_tied_weights_are_drawn_once_and_stay_tied():
    program = built(TRAINED[4], "train_step")
    assert [name for name in program.weights() if "head" in name or "embedding" in name] == ["embedding.weight"]
    before = program.weights()["embedding.weight"]
    stepped(program)
    program.relocate()
    stepped(program)
    assert program.module.head.weight is program.module.embedding.weight
    assert not np.array_equal(program.weights()["embedding.weight"], before)


def test_buffers_that_are_no_running_statistics_are_no_weights():
    assert set(shapes(network(TRAINED[6], {}))) == {"fc.weight", "fc.bias"}
    assert {name for name in shapes(network(TRAINED[5], {})) if "norm" in name} == {
        f"norm.{leaf}" for leaf in ("weight", "bias", "running_mean", "running_var")
    }
    module = network(TRAINED[6], {})
    load_weights(module, {"fc.weight": np.ones((3, 8)), "fc.bias": np.ones(3)})
    # A proof computes in float64, constants included.
    assert {tensor.dtype for name, tensor in module.state_dict().items() if name != "turn"} == {torch.float64}
    assert torch.equal(module.factor, torch.full((8,), 3.0, dtype=torch.float64))


@pytest.mark.parametrize("name", [name for name, row in CATALOG.items() if "torch" in row.networks])
def test_the_catalogs_state_is_all_canonical_but_for_counters(name):
    row = CATALOG[name]
    module = network(row, row.sizes())
    assert set(shapes(module)) == {key for key in module.state_dict() if not key.endswith("num_batches_tracked")}


def test_a_constructor_finds_the_weights_that_it_has_initialised():
    row = TRAINED[7]
    found = network(row, {})
    # Of 24 numbers with a standard deviation of 1.
    assert found.mean.item() == pytest.approx(4, abs=0.8)
    assert torch.equal(found.mean, found.fc.weight.mean())
    assert torch.equal(found.first, found.fc(torch.ones(1, 8)))
    # No canonical weight replaces whole numbers.
    assert found.count.tolist() == [2, 2, 2]
    again = network(row, {})
    assert all(torch.equal(getattr(again, name), getattr(found, name)) for name in ("mean", "first", "noise"))


@pytest.mark.parametrize("name", ["resnet50", "bert"])
def test_weights_that_are_replaced_are_not_drawn_before(name):
    row = CATALOG.get(name, TRAINED[3])
    network(row, row.sizes())
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(1)
    network(row, row.sizes())
    assert torch.equal(torch.rand(1), expected)


def test_the_search_for_the_outputs_shape_leaves_running_statistics_alone():
    row = TRAINED[5]
    weights = draw(row, shapes(network(row, {})), 0)
    found = built(row, "train_step").weights()
    assert all(np.array_equal(found[name], weights[name]) for name in weights)


@pytest.mark.parametrize("mode", ["inference", "train_step"])
def test_a_parameter_without_axes_is_checked(mode):
    """NumPy makes a number of it as soon as it is moved."""
    row = model("Tempered", VECTOR)
    weights = draw(row, shapes(network(row, {})), 0)
    program = built(row, mode)
    with program.session():
        program.call_and_wait()
        check = of_inference(program, "fp32") if mode == "inference" else of_training(program, weights, "fp32")
    for packed in check.values():
        assert np.isfinite(Sketch.from_json(packed).moved).all()


@named([row for row in TRAINED if row.name in ("bert", "Named")])
def test_accumulation_cuts_every_input_and_target(row):
    whole = stepped(built(row, "train_step"))
    assert stepped(built(row, "train_step", accumulate=2)) == pytest.approx(whole, rel=1e-4)


def test_parameters_that_are_not_trained_get_no_gradients(monkeypatch):
    """Not even where gradients are tensors of our own, to which parts of a batch are added."""
    monkeypatch.setattr(Placed, "may_replay", True)
    program = built(TRAINED[7], "train_step", accumulate=2)
    stepped(program)
    assert program.module.fc.weight.grad is not None
    assert program.module.count.grad is None
    assert program.module.count.tolist() == [2, 2, 2]


def test_a_loss_of_the_users_own():
    def loss(name, **fields):
        row = model("Normalised", VECTOR, output=1, loss={"torch": f"torch_networks:{name}"}, **fields)
        return stepped(built(row, "train_step"), 1)

    module, call = own(TRAINED[5])
    module.train()
    output = call().detach()
    assert loss("sum_of") == pytest.approx([output.square().sum().item()], rel=1e-4)
    wanted = inputs.uniform(3, low=2, high=3)
    row = model("Normalised", VECTOR, targets=wanted)
    drawn = torch.from_numpy(targets(Workload("torch", row.name, "train_step", BATCH), row, ()))
    assert loss("distance", targets=wanted) == pytest.approx([(output - drawn).abs().mean().item()], rel=1e-4)
    with pytest.raises(ModelError, match=r"'torch_networks:per_sample', the loss of Normalised, returned .* \(4,\)"):
        loss("per_sample")
    with pytest.raises(ModelError, match="the loss of Normalised, returned an object of type float32"):
        loss("of_numpy")
    with pytest.raises(ModelError, match="the loss of Normalised, is an object of type int"):
        loss("LEARNING")


def test_targets_of_another_shape_are_not_stretched():
    for loss in ("mse", "cross_entropy"):
        row = model("Normalised", VECTOR, output=1, loss=loss, targets=inputs.normal(1))
        with pytest.raises(ModelError, match=r"the targets have the shape \(4, 1\)"):
            stepped(built(row, "train_step"))


@pytest.mark.parametrize(
    ("row", "mode", "sentence"),
    [
        (TRAINED[3], "fit", "fit trains a network that makes logits of one input of floating point, and bert is none"),
        (model("resnet", IMAGE), "fit", "and resnet is none"),
        (model("frozen", VECTOR), "train_step", "frozen has no weights to train"),
        (model("Mean", VECTOR, loss={"jax": "mine:loss"}), "train_step", "Mean names no loss in PyTorch"),
        (Model("other", jax="mine:Net", inputs=VECTOR), "inference", "other names no network in PyTorch"),
    ],
)
def test_what_a_model_cannot_do_is_unavailable(row, mode, sentence):
    assert sentence in frameworks.load(OWN["torch"].adapter).unavailable(Workload("torch", row.name, mode, BATCH), row)


def test_a_network_of_the_users_own_can_be_fitted():
    """With a name for its only input, which data has none of."""
    row = model("Mean", VECTOR, classes=3)
    assert frameworks.load(OWN["torch"].adapter).unavailable(Workload("torch", row.name, "fit", BATCH), row) is None
    program = built(model("Head", {"x": VECTOR}, classes=3), "fit")
    samples = np.random.default_rng(0).standard_normal((BATCH, 8), dtype=np.float32)
    program.feed(samples, np.array([0, 1, 2, 0], np.int32))
    program.step()
    program.score(samples, np.array([0, 1, 2, -1], np.int32))
    assert 0 < program.scores().loss < 10
    assert len(program.curve()) == 1


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (model("raising", VECTOR), r"'torch_networks:raising' raised ValueError: no such depth \(.*torch_networks.py"),
        (model("number", VECTOR), "returned an object of type int instead of a torch.nn.Module"),
        (model("a_class", VECTOR), "returned the class Normalised instead of a torch.nn.Module"),
        (model("built", VECTOR), "is an object of type Linear: name a class, a factory or a function"),
        (model("Configured", VECTOR), r"has the parameters config: .* \(it has none\).* its one input"),
        (model("configured", {"x": VECTOR, "y": VECTOR}), r"has the parameters config: .* its inputs \(x, y\)"),
        (model("attention", {"query": VECTOR, "key": VECTOR}), r"has the parameters query, key, value"),
        (model("lazy", VECTOR), "leaves the shape of 'weight' to the first call"),
        (model("meta", VECTOR), "leaves 'weight' without numbers on the meta device"),
        (model("Missing", VECTOR), "has no 'Missing'"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_wrong_builder_gets_one_sentence(row, sentence):
    with pytest.raises(ModelError, match=sentence) as caught:
        frameworks.load(OWN["torch"].adapter).weight_shapes(row, row.sizes())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("mode", ["inference", "train_step"])
@pytest.mark.parametrize("lane", ["torch", "torch-compile"])
@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (model("Failing", VECTOR), r"the network of Failing raised RuntimeError: .*torch_networks.py, line \d+\)"),
        (model("Mean", VECTOR, loss="mse"), r"Mean returns an output of shape \(3,\) for a batch of 4"),
        (model("Normalised", VECTOR, output="lost"), "has no output 'lost'"),
        (model("Normalised", VECTOR), "returns a tuple of 2 values instead of an array"),
    ],
    ids=["fails", "loses the batch", "no such output", "a tuple"],
)
def test_a_wrong_network_gets_one_sentence(monkeypatch, row, sentence, lane, mode):
    # Dynamo traces them all the same; Inductor's kernels would take the C++ compiler half a minute.
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))

    def run():
        program = built(row, mode, lane)
        program.step()
        program.output()

    with pytest.raises(ModelError, match=sentence) as caught:
        run()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("mode", ["inference", "train_step"])
def test_a_lack_of_memory_is_no_fault_of_the_model(mode):
    with pytest.raises(torch.OutOfMemoryError):
        built(model("Hungry", VECTOR), mode).step()


def test_a_fault_of_the_compiler_is_not_taken_for_the_networks(monkeypatch):
    row = TRAINED[6]
    for mode in ("inference", "train_step"):
        program = built(row, mode, "torch-compile")
        stance, eager = torch._dynamo.eval_frame._stance, []
        call = program.call

        def broken(*args, call=call, stance=stance, eager=eager, **kwargs):
            if torch._dynamo.eval_frame._stance is stance:
                raise RuntimeError("no such kernel")
            eager.append(call(*args, **kwargs))
            return eager[-1]

        program.call = broken
        with pytest.raises(RuntimeError, match="no such kernel"):
            program.step()
        assert eager


@pytest.mark.parametrize("row", [TRAINED[2], TRAINED[3]], ids=["swin", "bert"])
def test_a_program_tells_what_it_is_made_of_and_moves(row):
    program = built(row)
    expected = inferred(program)
    assert program.settings.get("memory_format") == ("channels_last" if row.name == "swin" else None)
    assert program.fingerprint().flops > 0
    program.relocate()
    assert np.array_equal(inferred(program), expected)
