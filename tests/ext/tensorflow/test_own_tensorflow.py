"""Networks of a user's own in TensorFlow: built, fed, trained, and their weights carried over."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision  # noqa: F401 (before TensorFlow, whose LLVM its compiler's would clash with)

import fwbench
from fwbench.models.importing import ModelError
from fwbench.models.weights import draw
from fwbench.record.workload import Workload
from tests.programs import built, outputs
from tests.tensorflow import needs_tensorflow

pytestmark = needs_tensorflow

BATCH = 8
IMAGE = fwbench.image(8, 8, 3)
PAIR = {"left": fwbench.normal(6), "right": fwbench.normal(6)}


def model(path, **fields):
    return fwbench.Model(
        path.lower(), **{"inputs": IMAGE, "classes": 5, "tensorflow": f"own_tensorflow:{path}", **fields}
    )


MODELS = {
    "sequential": model("sequential"),
    "functional": model("functional", inputs=PAIR, output="scores"),
    "subclassed": model("Subclassed", inputs=fwbench.normal(6), axes={"width": 7}),
    "normalised": model("Normalised"),
}


def build(model, mode="inference", **fields):
    return built(Workload("tensorflow", model.name, mode, BATCH, **fields), model)


def called(program, steps=1):
    program.compile()
    return outputs(program, steps)


@pytest.fixture(autouse=True)
def beside(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent)


@pytest.mark.parametrize("name", MODELS)
def test_weights_go_in_and_come_out_bit_for_bit(name):
    program, weights = build(MODELS[name])
    found = program.weights()
    assert found.keys() == weights.keys()
    assert all(np.array_equal(found[key], weights[key]) for key in weights)
    assert np.isfinite(called(program)[0]).all()


def test_weights_have_pytorchs_names_and_layouts():
    shapes = {name: {key: array.shape for key, array in build(MODELS[name])[1].items()} for name in MODELS}
    assert shapes == {
        "sequential": {
            **{"0.weight": (4, 3, 3, 3), "0.bias": (4,), "1.weight": (4, 1, 3, 3), "1.bias": (4,)},
            **{"4.weight": (5, 64), "4.bias": (5,)},
        },
        "functional": {"mix.weight": (7, 12), "mix.bias": (7,), "head.weight": (5, 7), "head.bias": (5,)},
        "subclassed": {
            **{"steps.0.weight": (7, 6), "steps.0.bias": (7,), "steps.1.weight": (7,), "steps.1.bias": (7,)},
            **{"steps.1.running_mean": (7,), "steps.1.running_var": (7,), "head.weight": (5, 7), "head.bias": (5,)},
        },
        "normalised": {
            **{"conv.weight": (4, 3, 3, 3), "conv.bias": (4,), "bn.weight": (4,), "bn.bias": (4,)},
            **{"bn.running_mean": (4,), "bn.running_var": (4,), "head.weight": (5, 4), "head.bias": (5,)},
        },
    }


def test_a_kernel_means_what_pytorchs_does():
    """Depthwise kernels above all, whose axes are others than a convolution's."""
    program, weights = build(MODELS["sequential"])
    (found,) = called(program)
    own = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Conv2d(4, 4, 3, groups=4))
    of = {"0": "0", "2": "1"}
    own.load_state_dict(
        {f"{to}.{leaf}": torch.tensor(weights[f"{at}.{leaf}"]) for to, at in of.items() for leaf in ("weight", "bias")}
    )
    with torch.no_grad():
        x = own(torch.tensor(program.inputs[""].numpy()).permute(0, 3, 1, 2)).permute(0, 2, 3, 1).flatten(1)
        expected = x @ torch.tensor(weights["4.weight"]).T + torch.tensor(weights["4.bias"])
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", MODELS)
def test_every_kind_trains(name, precision):
    program, before = build(MODELS[name], "train_step", precision=precision, learning_rate=1e-3)
    losses = [float(loss[0]) for loss in called(program, 12)]
    assert np.isfinite(losses).all()
    # Dropout makes a loss jump.
    assert np.mean(losses[-4:]) < np.mean(losses[:4])
    after = program.weights()
    assert all(not np.array_equal(after[key], before[key]) for key in before)


def test_running_statistics_train_once_a_step():
    """A user's model is traced once more by Keras, whose updates must not count."""
    program, before = build(MODELS["normalised"], "train_step", learning_rate=1e-9)
    called(program, 1)
    after = program.weights()
    x = torch.tensor(program.inputs[""].numpy()).permute(0, 3, 1, 2)
    own = torch.nn.BatchNorm2d(4)
    own.running_mean.data, own.running_var.data = (
        torch.tensor(before[f"bn.{name}"]) for name in ("running_mean", "running_var")
    )
    y = torch.nn.functional.conv2d(x, torch.tensor(before["conv.weight"]), torch.tensor(before["conv.bias"]), padding=1)
    for _ in range(2):  # compiling makes the first step
        own(y)
    np.testing.assert_allclose(after["bn.running_mean"], own.running_mean.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(after["bn.running_var"], own.running_var.numpy(), rtol=1e-4)


def test_a_function_of_the_inputs_has_an_output_alone():
    program, weights = build(model("function", inputs=PAIR))
    assert weights == {}
    (found,) = called(program)
    left, right = (program.inputs[name].numpy() for name in ("left", "right"))
    np.testing.assert_allclose(found, left[:, :, None] * right[:, None, :], rtol=1e-6)


def test_a_loss_of_ones_own():
    program, _ = build(model("sequential", loss={"tensorflow": "own_tensorflow:squared"}), "train_step")
    assert called(program)[0] > 0


@pytest.mark.parametrize(
    ("path", "fields", "sentence"),
    [
        ("missing", {}, "has no 'missing'"),
        ("number", {}, "returned an object of type int instead of a Keras layer or model, or a function of the inputs"),
        ("broken", {}, r"'own_tensorflow:broken' raised RuntimeError: no such thing"),
        ("Subclassed", {}, "'own_tensorflow:Subclassed' has the parameters width: a builder of "),
        ("sequential", {"output": "logits"}, "has no output 'logits'"),
        (
            "sequential",
            {"weights": "own_tensorflow:number", "torch": "elsewhere:Net"},
            r"'own_tensorflow:number' raised TypeError: number\(\) takes 0 positional arguments but 1 was given",
        ),
    ],
)
def test_what_is_wrong_is_told_in_one_sentence(path, fields, sentence):
    with pytest.raises(ModelError, match=sentence):
        called(build(model(path, **fields))[0])


def test_a_function_maps_weights():
    """As regular expressions do, where layouts differ too; and it may join variables."""
    from fwbench.ext.tensorflow import imported  # noqa: F401
    from fwbench.ext.tensorflow.networks import Network

    given = {"inputs": fwbench.normal(6), "torch": "elsewhere:Net"}
    with pytest.raises(ModelError, match="'own_tensorflow:nothing' leaves out "):
        Network(model("dense", weights="own_tensorflow:nothing", **given), {})
    mapped = Network(model("dense", weights="own_tensorflow:transposed", **given), {})
    usual = Network(model("dense", **given), {})
    assert mapped.shapes == usual.shapes
    weights = draw(mapped.model, mapped.shapes, seed=0)
    mapped.load(weights)
    usual.load(weights)
    assert all(np.array_equal(array, weights[name]) for name, array in mapped.export().items())
    for one, other in zip(mapped.module.weights, usual.module.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    joined = Network(model("dense", weights="own_tensorflow:joined", **given), {})
    joined.load({"all": np.concatenate([variable.numpy().ravel() for variable in usual.module.weights])})
    for one, other in zip(joined.module.weights, usual.module.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    assert joined.export().keys() == joined.gradients([one.numpy() for one in joined.module.weights]).keys() == {"all"}
