"""Anybody's twins: a model that is in no catalog, with the mistakes that a port makes, each of which a proof must find.

The networks lie in modules of a project of their own, and come in by their import paths alone.
"""

import math
import re

import pytest

import fwbench
from fwbench.ext.proofs import client as proving
from fwbench.ext.proofs.case import Case
from fwbench.ext.proofs.errors import BOUNDS, NotTheSame, check
from fwbench.ext.proofs.matching import match, shapes
from fwbench.ext.proofs.process import prove as prove_here
from fwbench.ext.proofs.process import run
from fwbench.ext.proofs.proof import Proof, modes
from fwbench.models import CATALOG, ModelError
from fwbench.models.project import Project
from fwbench.models.store import stamp
from fwbench.models.weights import is_statistic
from fwbench.record.reading import PROOFS
from tests.correctness.proofs import WithoutSteps

TORCH = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.bn = nn.BatchNorm2d(8)
        self.mix = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = nn.functional.gelu(self.bn(self.conv(x)))
        return self.head(self.norm(self.mix(x.mean((2, 3)))))
"""

FLAX = """
import jax
from flax import nnx
from fwbench.frameworks.jax.layers import BatchNorm


class Net(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(3, 8, (3, 3), strides=2, padding=1, rngs=rngs)
        self.bn = BatchNorm(8, rngs=rngs)
        self.mix = nnx.Linear(8, 8, rngs=rngs)
        self.norm = nnx.LayerNorm(8, epsilon=1e-5, use_fast_variance=False, rngs=rngs)
        self.head = nnx.Linear(8, 5, rngs=rngs)

    def __call__(self, x):
        x = jax.nn.gelu(self.bn(self.conv(x)), approximate=False)
        return self.head(self.norm(self.mix(x.mean((1, 2)))))
"""

STOPPED = '''
class Stopped(BatchNorm):
    """Batch statistics through which no gradient flows, as if they were constants."""

    def __call__(self, x):
        y = super().__call__(x)
        if self.use_running_average:
            return y
        mean, var = jax.lax.stop_gradient((x.mean((0, 1, 2)), x.var((0, 1, 2))))
        return (x - mean) * jax.lax.rsqrt(var + self.epsilon) * self.scale[...] + self.bias[...]


class Net('''

# What the port gets wrong: one replacement in the source, and the quantity in which it shows.
MISTAKES = {
    "tanh GELU": ("approximate=False", "approximate=True", "output"),
    "epsilon of a layer norm": ("epsilon=1e-5", "epsilon=1e-6", "output"),
    "SAME padding at stride 2": ("padding=1", 'padding="SAME"', "output"),
    "dropped bias": ("(x.mean((1, 2)))", "(x.mean((1, 2))) - self.mix.bias[...]", "output"),
    "transposed square weight": (
        "self.mix(x.mean((1, 2)))",
        "x.mean((1, 2)) @ self.mix.kernel[...].T + self.mix.bias[...]",
        "output",
    ),
    "batch statistics behind stop_gradient": ("\nclass Net(", STOPPED, "gradients"),
}


@pytest.fixture
def twins(pair):
    return lambda torch=TORCH, flax=FLAX, loss="cross_entropy", **fields: pair(torch, flax, loss=loss, **fields)


def prove(model, kind=WithoutSteps):
    """The largest error of each quantity over all modes."""
    errors = {}
    for mode in modes(model):
        proof = kind(model, "jax", mode)
        for quantity in proof.quantities:
            errors[quantity] = max(errors.get(quantity, 0.0), proof.prove(quantity))
    return errors


def test_a_right_port_is_proved(twins):
    model = twins()
    assert modes(model) == ("eval", "train")
    errors = prove(model, Proof)
    assert errors.keys() == BOUNDS.keys()
    assert all(errors[quantity] < BOUNDS[quantity] / 100 for quantity in errors)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_port_is_caught(twins, mistake):
    right, wrong, quantity = MISTAKES[mistake]
    assert FLAX.count(right) == 1
    flax = FLAX.replace(right, wrong)
    if mistake == "batch statistics behind stop_gradient":
        flax = flax.replace("self.bn = BatchNorm", "self.bn = Stopped")
    with pytest.raises(NotTheSame, match=rf"difference in {quantity} is \d") as caught:
        prove(twins(flax=flax))
    assert "float32" not in str(caught.value)


def test_a_renamed_weight_is_told_with_its_nearest_name(twins):
    with pytest.raises(NotTheSame) as caught:
        match(twins(flax=FLAX.replace("self.mix", "self.mixer")), "jax")
    heading, *lines = str(caught.value).splitlines()
    assert heading.endswith("Rename them, or map names with weights={...} of the model:")
    assert lines == [
        "  'mixer.bias' (8,) is in jax alone; the nearest in torch is 'mix.bias' (8,)",
        "  'mixer.weight' (8, 8) is in jax alone; the nearest in torch is 'mix.weight' (8, 8)",
        "  'mix.weight' (8, 8) is in torch alone; the nearest in jax is 'mixer.weight' (8, 8)",
        "  'mix.bias' (8,) is in torch alone; the nearest in jax is 'mixer.bias' (8,)",
    ]


def test_networks_with_other_weights_are_a_failed_proof(twins):
    found = prove_here(twins(flax=FLAX.replace("self.mix", "self.mixer")), "jax", lambda message: None, patient=False)
    assert (found.state, found.points) == ("failed", ())
    assert "'mixer.bias' (8,) is in jax alone" in found.sentence


def test_a_mapping_makes_a_renamed_weight_right(twins):
    match(twins(flax=FLAX.replace("self.mix", "self.mixer"), weights={r"^mixer\.": "mix."}), "jax")


def test_of_many_unmatched_weights_some_are_described_and_then_all_are_listed(twins):
    flax = FLAX
    for part in ("conv", "bn", "mix", "norm", "head"):
        flax = flax.replace(f"self.{part}", f"self.my_{part}")
    model = twins(flax=flax)
    with pytest.raises(NotTheSame) as caught:
        match(model, "jax")
    # Five layers of two, and two statistics, on both sides.
    assert str(caught.value).splitlines()[7] == "  and 18 more"
    lists = str(caught.value).split(" without a counterpart:")
    assert [text.rpartition("all of ")[2] for text in lists[:2]] == ["torch", "jax"]
    for framework, text in zip(("torch", "jax"), lists[1:], strict=True):
        listed = re.findall(r"^ +'([\w.]+)' \(", text, re.MULTILINE)
        assert listed == list(shapes(model, framework))


def test_a_network_that_has_none_of_many_unmatched_weights_heads_no_list(monkeypatch):
    many = {f"{number}.weight": (2, 2) for number in range(8)}
    monkeypatch.setattr(
        "fwbench.ext.proofs.matching.shapes",
        lambda model, framework: many if framework == "jax" else {"0.weight": (2, 2)},
    )
    with pytest.raises(NotTheSame) as caught:
        match(CATALOG["mlp"], "jax")
    headings = [line for line in str(caught.value).splitlines() if "without a counterpart" in line]
    assert headings == ["  all of jax without a counterpart:"]


@pytest.mark.parametrize("tolerance", [float("inf"), float("nan"), -1.0, 0.0])
def test_a_tolerance_that_bounds_nothing_is_one_sentence(twins, tolerance):
    sent, model = [], twins(tolerance={"gradients": tolerance}).to_json()
    run({"model": model, "candidate": "jax", "path": [], "patient": False}, sent.append)
    (answer,) = sent
    assert f"gradients is {tolerance}" in answer["unavailable"]


def test_another_shape_is_told_once(twins):
    flax = FLAX.replace("nnx.Linear(8, 5", "nnx.Linear(8, 6")
    with pytest.raises(NotTheSame) as caught:
        match(twins(flax=flax), "jax")
    assert sorted(str(caught.value).splitlines()[1:]) == [
        "  'head.bias' is (6,) in jax and (5,) in torch",
        "  'head.weight' is (6, 8) in jax and (5, 8) in torch",
    ]


FLAXS_OWN = FLAX.replace("BatchNorm(8, rngs", "nnx.BatchNorm(8, momentum=0.9, use_fast_variance=False, rngs")


def prove_training(model):
    """The proof of running statistics, which inference leaves as they are."""
    WithoutSteps(model, "jax", "train").prove("statistics")


def test_flaxs_own_batch_norm_differs_in_its_statistics_by_name(twins):
    with pytest.raises(NotTheSame, match="difference in statistics is") as caught:
        prove_training(twins(flax=FLAXS_OWN))
    assert "in 'bn.running_var'" in str(caught.value)
    assert "jax updates them with the biased estimate of a batch's variance, as Flax's own" in str(caught.value)
    assert "use fwbench.frameworks.jax.layers.BatchNorm" in str(caught.value)
    assert 'accept it with tolerance={"statistics": 0.01}' in str(caught.value)


def test_flaxs_own_batch_norm_can_be_accepted_and_the_proof_says_so(twins):
    model = twins(flax=FLAXS_OWN, tolerance={"statistics": 0.01})
    errors = prove(model)
    assert BOUNDS["statistics"] < errors["statistics"] < 0.01
    assert WithoutSteps(model, "jax", "train").note.startswith("The running variances differ because jax updates them")


@pytest.mark.parametrize(
    ("flax", "times", "biased"),
    [
        (FLAXS_OWN.replace("momentum=0.9", "momentum=0.99"), "0.1 times", True),
        (FLAXS_OWN.replace("momentum=0.9", "momentum=0.1"), "9 times", True),
        (FLAX.replace("BatchNorm(8, rngs", "BatchNorm(8, momentum=0.01, rngs"), "0.1 times", False),
    ],
    ids=["Flax's default momentum", "PyTorch's number in Flax", "another momentum"],
)
def test_another_momentum_is_named(twins, flax, times, biased):
    with pytest.raises(NotTheSame, match="difference in statistics is") as caught:
        prove_training(twins(flax=flax))
    assert f"because jax moves them {times} as far towards a batch's as torch" in str(caught.value)
    assert ("jax also takes the biased estimate" in str(caught.value)) == biased


def test_another_difference_of_statistics_has_neither_name(twins):
    wrong = FLAX.replace("self.bn = BatchNorm", "self.bn = Shifted").replace(
        "class ",
        """class Shifted(BatchNorm):
    def __call__(self, x, use_running_average=None, *, mask=None):
        y = super().__call__(x, use_running_average, mask=mask)
        if not self.use_running_average:
            self.mean[...] = self.mean[...] + 0.01 * jax.numpy.abs(self.mean[...])
        return y


class """,
        1,
    )
    with pytest.raises(NotTheSame, match="difference in statistics is") as caught:
        prove_training(twins(flax=wrong))
    assert "The running" not in str(caught.value)


def test_a_model_without_running_statistics_is_proved_in_both_modes(twins):
    torch, flax = (source.replace("self.bn(self.conv(x))", "self.conv(x)") for source in (TORCH, FLAX))
    torch = torch.replace("self.bn = nn.BatchNorm2d(8)", "self.drop = nn.Dropout(0.5)")
    model = twins(torch, flax.replace("self.bn = BatchNorm(8, rngs=rngs)", "self.drop = nnx.Dropout(0.5)"))
    assert modes(model) == ("eval", "train")
    assert "statistics" not in prove(model)


def test_a_function_without_weights_has_an_output_alone(twins):
    torch = "def Net(q, k):\n    return (q @ k.mT).softmax(-1)\n"
    flax = "import jax\n\n\ndef Net(q, k):\n    return jax.nn.softmax(q @ k.swapaxes(1, 2))\n"
    inputs = {"q": fwbench.normal(3, 4), "k": fwbench.normal("length", 4)}
    assert prove(twins(torch, flax, inputs=inputs, axes={"length": (5, 7)})).keys() == {"output"}
    wrong = flax.replace("q @", "0.999 * q @")
    with pytest.raises(NotTheSame, match="difference in output is"):
        prove(twins(torch, wrong, inputs=inputs, axes={"length": (5, 7)}))


LINEAR = (
    "from torch import nn\n\n\ndef Net():\n    return nn.Linear(3, 5)\n",
    "from flax import nnx\n\n\ndef Net(rngs):\n    return nnx.Linear(3, 5, rngs=rngs)\n",
)
ALONE = "\n\ndef own(y):\n    return (y**2).mean()\n"
BESIDE = "\n\ndef own(y, t):\n    return ((y - 2 * t) ** 2).mean()\n"


@pytest.mark.parametrize(
    ("loss", "function", "fields"),
    [("mse", "", {}), ("own", ALONE, {}), ("own", BESIDE, {"targets": fwbench.normal(5)})],
    ids=["mse", "own", "own with targets"],
)
def test_losses_of_every_kind(twins, loss, function, fields):
    prove(twins(*(source + function for source in LINEAR), loss, inputs=fwbench.normal(3), **fields))


def test_another_loss_is_caught(twins):
    torch, flax = LINEAR
    with pytest.raises(NotTheSame, match=r"difference in loss is \d"):
        prove(twins(torch + ALONE, flax + ALONE.replace("mean", "sum"), "own", inputs=fwbench.normal(3)))


def test_a_tolerance_is_of_its_quantity_alone(twins):
    right, wrong, _ = MISTAKES["tanh GELU"]
    with pytest.raises(NotTheSame, match="difference in loss is"):
        prove(twins(flax=FLAX.replace(right, wrong), tolerance={"output": 0.1}))


def test_rounding_to_float32_is_named_as_a_possible_cause(twins):
    flax = FLAX.replace("self.norm(self.mix(x.mean((1, 2))))", "self.norm(self.mix(x.mean((1, 2))).astype('float32'))")
    with pytest.raises(NotTheSame, match=r"difference in output is \d.*a part that computes in float32"):
        prove(twins(flax=flax))


@pytest.mark.parametrize(("beyond", "named"), [([], True), ([2e-8], True), ([1e-3], False), ([math.nan], False)])
def test_float32_is_no_cause_where_another_error_is_larger(twins, beyond, named):
    with pytest.raises(NotTheSame) as error:
        check("output", {"output": 1e-7}, Case(twins()), beyond=beyond)
    assert ("computes in float32" in str(error.value)) is named


BUFFER = ("self.mix = nn", 'self.register_buffer("centre", torch.zeros(8))\n        self.mix = nn')
SCALE = ("self.mix = nn", "self.scale = nn.Parameter(torch.ones(8))\n        self.mix = nn")


@pytest.mark.parametrize(
    ("torch", "name", "says"),
    [
        (BUFFER, "centre", r"'centre' \(8,\) is a weight in jax and a buffer in torch$"),
        (SCALE, "scale", r"if it is the same, weights=\{'\^weight\$': 'scale'\} says so"),
    ],
    ids=["buffer", "scale"],
)
def test_weights_that_do_not_match_for_a_known_reason(twins, torch, name, says):
    flax = FLAX.replace("self.mix = nnx", f"self.{name} = nnx.Param(jax.numpy.ones(8))\n        self.mix = nnx")
    with pytest.raises(NotTheSame, match=re.compile(says, re.MULTILINE)):
        match(twins(TORCH.replace(*torch), flax), "jax")


def test_the_mapping_that_is_proposed_matches(twins):
    flax = FLAX.replace("self.mix = nnx", "self.scale = nnx.Param(jax.numpy.ones(8))\n        self.mix = nnx")
    match(twins(TORCH.replace(*SCALE), flax, weights={"^weight$": "scale"}), "jax")


DRAWN = (
    "return self.head(",
    "x = x * (torch.rand(len(x), 1, 1, 1) < 0.5) if self.training else x\n        return self.head(",
)


@pytest.mark.slow
def test_what_could_be_compared_differs_although_training_could_not(twins):
    torch = TORCH.replace(*DRAWN)
    with pytest.raises(ModelError, match="what torch draws cannot be switched off"):
        prove_here(twins(torch), "jax", lambda _: None, patient=False)
    right, wrong, _ = MISTAKES["tanh GELU"]
    proved = prove_here(twins(torch, FLAX.replace(right, wrong)), "jax", lambda _: None, patient=False)
    assert proved.state == "failed"
    assert "(eval): the difference in output" in proved.sentence
    assert "cannot be switched off" in proved.sentence


@pytest.mark.slow
def test_a_proof_in_a_process_of_its_own_holds_until_a_network_is_edited(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "import torch\n\nprint('noise')\n\n\ndef Net():\n    return torch.nn.Linear(3, 2)\n"
    )
    flax = tmp_path / "mine_flax.py"
    right = "from flax import nnx\n\n\ndef Net(rngs):\n    return nnx.Linear(3, 2, rngs=rngs)\n"
    flax.write_text(right)
    model = fwbench.Model("mine", torch="mine:Net", jax="mine_flax:Net", inputs=fwbench.normal(3))
    project = Project(tmp_path, (tmp_path,))

    def state():
        return stamp(model, "jax", tmp_path / PROOFS)["state"]

    assert state() == "missing"
    proved = proving.prove(model, "jax", project)
    assert (proved.state, proved.errors.keys()) == ("proved", BOUNDS.keys() - {"statistics"})
    assert state() == "proved"
    flax.write_text(right.replace("rngs=rngs", "use_bias=False, rngs=rngs"))
    assert state() == "stale"
    proved = proving.prove(model, "jax", project)
    assert proved.state == state() == "failed"
    assert "'bias' (2,) is in torch alone" in proved.sentence


def test_a_network_that_cannot_be_built_is_no_difference(twins):
    with pytest.raises(ModelError, match="has no 'Net'"):
        prove(twins(flax=FLAX.replace("class Net", "class Missing")))


def test_statistics_are_told_by_their_names():
    assert is_statistic("bn.running_mean")
    assert not is_statistic("bn.weight")
