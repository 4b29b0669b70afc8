"""Pairs of networks of which one is wrong in one way: a proof names the place, and the cause where numbers show it.

One small Transformer for images in PyTorch, and its port to every kind of network that a model may name.
"""

import ast
import contextlib
import json
import re
import sys
from collections import namedtuple
from dataclasses import asdict
from types import ModuleType, SimpleNamespace

import pytest

import fwbench
from fwbench.ext.proofs.case import Case, side
from fwbench.ext.proofs.errors import BOUNDS
from fwbench.ext.proofs.process import prove
from fwbench.ext.proofs.proof import Proof, differences, modes
from fwbench.ext.proofs.where.place import Side, sentence
from fwbench.models.store import Proved
from tests.correctness.proofs import WithoutSteps
from tests.tensorflow import TENSORFLOW

TORCH = """
import torch
from torch import nn


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.fc2(self.act(self.fc1(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = nn.LayerNorm(8)
        self.q, self.k, self.v, self.proj = (nn.Linear(8, 8) for _ in range(4))
        self.mlp = Mlp()
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = self.stem(x).flatten(2).mT
        y = self.norm(x)
        w = (self.q(y) @ self.k(y).mT / 8**0.5).softmax(-1)
        x = self.mlp(x + self.proj(w @ self.v(y)))
        return self.head(x.mean(1))
"""

NNX = """
import jax
from flax import nnx


class Turned(nnx.Linear):
    def __call__(self, x):
        return x @ self.kernel[...].T + self.bias[...]


class Mlp(nnx.Module):
    def __init__(self, rngs):
        self.fc1, self.fc2 = nnx.Linear(8, 16, rngs=rngs), nnx.Linear(16, 8, rngs=rngs)

    def __call__(self, x):
        return x + self.fc2(jax.nn.gelu(self.fc1(x), approximate=False))


class Net(nnx.Module):
    def __init__(self, rngs):
        self.stem = nnx.Conv(3, 8, (3, 3), strides=2, padding=1, rngs=rngs)
        self.norm = nnx.LayerNorm(8, epsilon=1e-5, use_fast_variance=False, rngs=rngs)
        self.q, self.v, self.proj = (nnx.Linear(8, 8, rngs=rngs) for _ in range(3))
        self.k = nnx.Linear(8, 8, rngs=rngs)
        self.mlp = Mlp(rngs)
        self.head = nnx.Linear(8, 5, rngs=rngs)

    def __call__(self, x):
        x = self.stem(x).reshape(len(x), -1, 8)
        y = self.norm(x)
        w = jax.nn.softmax(self.q(y) @ self.k(y).mT / 8**0.5)
        x = self.mlp(x + self.proj(w @ self.v(y)))
        return self.head(x.mean(1))
"""

LINEN = """
import jax
from flax import linen as nn


class Turned(nn.Module):
    features: int

    @nn.compact
    def __call__(self, x):
        kernel = self.param("kernel", nn.initializers.zeros, (8, 8))
        return x @ kernel.T + self.param("bias", nn.initializers.zeros, (8,))


class Mlp(nn.Module):
    @nn.compact
    def __call__(self, x):
        return x + nn.Dense(8, name="fc2")(jax.nn.gelu(nn.Dense(16, name="fc1")(x), approximate=False))


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Conv(8, (3, 3), strides=2, padding=1, name="stem")(x).reshape(len(x), -1, 8)
        y = nn.LayerNorm(epsilon=1e-5, use_fast_variance=False, name="norm")(x)
        q, v = nn.Dense(8, name="q")(y), nn.Dense(8, name="v")(y)
        k = nn.Dense(8, name="k")(y)
        w = jax.nn.softmax(q @ k.mT / 8**0.5)
        x = Mlp(name="mlp")(x + nn.Dense(8, name="proj")(w @ v))
        return nn.Dense(5, name="head")(x.mean(1))
"""

EQUINOX = """
import equinox as eqx
import jax


class Turned(eqx.nn.Linear):
    def __call__(self, x):
        return self.weight.T @ x + self.bias


class Mlp(eqx.Module):
    fc1: eqx.nn.Linear
    fc2: eqx.nn.Linear

    def __init__(self, key):
        self.fc1, self.fc2 = eqx.nn.Linear(8, 16, key=key), eqx.nn.Linear(16, 8, key=key)

    def __call__(self, x):
        return x + self.fc2(jax.nn.gelu(self.fc1(x), approximate=False))


class Net(eqx.Module):
    stem: eqx.nn.Conv2d
    norm: eqx.nn.LayerNorm
    q: eqx.nn.Linear
    k: eqx.nn.Linear
    v: eqx.nn.Linear
    proj: eqx.nn.Linear
    mlp: Mlp
    head: eqx.nn.Linear

    def __init__(self, key):
        self.stem = eqx.nn.Conv2d(3, 8, 3, stride=2, padding=1, key=key)
        self.norm = eqx.nn.LayerNorm(8, eps=1e-5)
        self.q, self.v, self.proj = (eqx.nn.Linear(8, 8, key=key) for _ in range(3))
        self.k = eqx.nn.Linear(8, 8, key=key)
        self.mlp = Mlp(key)
        self.head = eqx.nn.Linear(8, 5, key=key)

    def __call__(self, x):
        x = self.stem(x).reshape(8, -1).T
        y = jax.vmap(self.norm)(x)
        q, k, v = (jax.vmap(layer)(y) for layer in (self.q, self.k, self.v))
        w = jax.nn.softmax(q @ k.T / 8**0.5)
        x = jax.vmap(self.mlp)(x + jax.vmap(self.proj)(w @ v))
        return self.head(x.mean(0))
"""

KERAS = """
import keras
import numpy as np


class Turned(keras.layers.Dense):
    def call(self, x):
        return x @ keras.ops.transpose(self.kernel) + self.bias


class Mlp(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = keras.layers.Dense(16), keras.layers.Dense(8)

    def call(self, x):
        y = self.fc1(x)
        return x + self.fc2(y * (1 + keras.ops.erf(y / np.sqrt(2.0))) / 2)


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.stem = keras.layers.Conv2D(8, 3, strides=2)
        self.norm = keras.layers.LayerNormalization(epsilon=1e-5)
        self.q, self.v, self.proj = (keras.layers.Dense(8) for _ in range(3))
        self.k = keras.layers.Dense(8)
        self.mlp = Mlp()
        self.head = keras.layers.Dense(5)

    def call(self, x):
        x = keras.ops.reshape(self.stem(keras.ops.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]])), (-1, 20, 8))
        y = self.norm(x)
        w = keras.ops.softmax(self.q(y) @ keras.ops.transpose(self.k(y), (0, 2, 1)) / 8**0.5)
        x = self.mlp(x + self.proj(w @ self.v(y)))
        return self.head(keras.ops.mean(x, 1))
"""

KINDS = {"nnx": NNX, "linen": LINEN, "equinox": EQUINOX, "keras": KERAS}

# What a port gets wrong: what stands in the place of which code, the place that a proof names, and the cause that it
# names, where it knows one.
TANH = "There torch computes the exact GELU, and {} GELU's tanh approximation"
MISTAKES = {
    "tanh GELU": (
        {
            **dict.fromkeys(("nnx", "linen", "equinox"), ("approximate=False", "approximate=True")),
            "keras": (
                "y * (1 + keras.ops.erf(y / np.sqrt(2.0))) / 2",
                "y * (1 + keras.ops.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y * y * y))) / 2",
            ),
        },
        r"between `mlp\.fc1` and `mlp\.fc2` \(torch: `mlp\.act`, GELU\(approximate=none\), twin\d+\.py, line 12; ",
        TANH,
    ),
    "no activation": (
        {
            **dict.fromkeys(("nnx", "equinox"), ("jax.nn.gelu(self.fc1(x), approximate=False)", "self.fc1(x)")),
            "linen": ('jax.nn.gelu(nn.Dense(16, name="fc1")(x), approximate=False)', 'nn.Dense(16, name="fc1")(x)'),
            "keras": ("y * (1 + keras.ops.erf(y / np.sqrt(2.0))) / 2", "y"),
        },
        r"between `mlp\.fc1` and `mlp\.fc2` ",
        "There torch computes the exact GELU, and {} no activation",
    ),
    "epsilon": (
        dict.fromkeys(KINDS, ("1e-5", "1e-6")),
        r"at `norm` \(torch: LayerNorm\(epsilon=1e-05\), twin\d+\.py, line 26; \w+: LayerNorm\w*\(epsilon=1e-06\), ",
        "Their epsilon differs: 1e-05 in torch and 1e-06 in {}",
    ),
    "SAME padding at stride 2": (
        {
            **dict.fromkeys(("nnx", "linen", "equinox"), ("padding=1", 'padding="SAME"')),
            "keras": (
                "strides=2)",
                'strides=2, padding="same")',
                "keras.ops.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]])",
                "x",
            ),
        },
        r"at `stem` \(torch: Conv2d\(",
        "SAME in {} pads less above and to the left at stride 2 than padding in numbers does",
    ),
    "no residual": (
        dict.fromkeys(KINDS, ("return x + ", "return ")),
        r"after `mlp\.fc2`, the last module with weights in `mlp` ",
        "There torch alone adds what enters `mlp.fc1`",
    ),
    "another residual": (
        {kind: ("(x + ", "(y + ") for kind in KINDS if kind != "equinox"} | {"equinox": ("(x + jax.", "(y + jax.")},
        r"between `proj` and `mlp\.fc1` ",
        "",
    ),
    "turned projection of keys": (
        {
            "nnx": ("self.k = nnx.Linear", "self.k = Turned"),
            "linen": ('nn.Dense(8, name="k")', 'Turned(8, name="k")'),
            "equinox": ("self.k = eqx.nn.Linear", "self.k = Turned"),
            "keras": ("self.k = keras.layers.Dense", "self.k = Turned"),
        },
        r"at `k` \(torch: Linear\(\), twin\d+\.py, line 27; \w+: Turned\(",
        "",
    ),
    "no scale in the attention": (
        dict.fromkeys(KINDS, (" / 8**0.5", "")),
        r"between `q`, `k`, `v` and `proj` \(torch: twin\d+\.py, lines 27-28; ",
        "There torch scales by 0.353553 (1 over the root of a head's size or 1 over the root of all heads' size), "
        "and {} by 1 (no scale)",
    ),
}


@pytest.fixture
def twins(pair):
    def write(source, *, torch=TORCH, replacing=(), **fields):
        for right, wrong in zip(replacing[::2], replacing[1::2], strict=True):
            assert right in source
            source = source.replace(right, wrong)
        return pair(torch, source, **fields)

    return write


def where(model, framework="jax", mode="eval", bound=1e-10):
    """What is said of where two networks part, without any other comparison."""
    case = Case(model, mode)
    return sentence(*(Side(name, side(name)(case).calls()) for name in ("torch", framework)), bound)


def cases(mistakes, everywhere):
    """Parameters: each mistake in each kind of network. Outside of Flax NNX, those not found `everywhere` are slow."""
    return [
        pytest.param(
            kind,
            "tensorflow" if kind == "keras" else "jax",
            mistake,
            marks=[
                *(TENSORFLOW.marks if kind == "keras" else ()),
                *([pytest.mark.slow] if kind != "nnx" and mistake not in everywhere else ()),
            ],
        )
        for kind in KINDS
        for mistake in mistakes
    ]


@pytest.mark.parametrize(("kind", "framework", "mode"), cases(("eval", "train"), ["eval"]))
def test_twins_part_nowhere(twins, kind, framework, mode):
    model = twins(KINDS[kind], framework=framework)
    assert where(model, framework, mode) == ""
    calls = side(framework)(Case(model)).calls()
    assert {"stem", "norm", "q", "k", "v", "proj", "mlp", "mlp.fc1", "mlp.fc2", "head", ""} == {
        call.module.path for call in calls
    }


# A module's settings and a module of the user's own, of which each kind tells in its own way.
READ = ("epsilon", "turned projection of keys")


@pytest.mark.parametrize(("kind", "framework", "mistake"), cases(MISTAKES, READ))
def test_the_place_and_the_cause_of_a_mistake_are_named(twins, kind, framework, mistake):
    replacing, place, cause = MISTAKES[mistake]
    said = where(twins(KINDS[kind], framework=framework, replacing=replacing[kind]), framework)
    assert re.search(rf"^First apart {place}", said), said
    assert re.search(rf"; {framework}: [^;]*twin\d+\.py, lines? \d+(-\d+)?\)", said), said
    assert said.endswith(cause.format(framework)), said
    assert cause or "There" not in said


# Batch normalisation of another epsilon, so that everything differs that a proof compares.
SMALL_TORCH = """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.bn, self.head = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.bn(self.fc(x)).relu())
"""
SMALL_NNX = """
import jax
from flax import nnx


class Net(nnx.Module):
    def __init__(self, rngs):
        self.fc, self.head = nnx.Linear(6, 8, rngs=rngs), nnx.Linear(8, 5, rngs=rngs)
        self.bn = nnx.BatchNorm(8, epsilon=1.1e-5, momentum=0.9, use_fast_variance=False, rngs=rngs)

    def __call__(self, x):
        return self.head(jax.nn.relu(self.bn(self.fc(x))))
"""


@pytest.fixture
def small(twins):
    return lambda **fields: twins(SMALL_NNX, torch=SMALL_TORCH, inputs=fwbench.normal(6), **fields)


# The MLP of the Transformer alone: whole proofs of it compile programs in a fifth of the time.
MLP_TORCH = """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.act, self.head = nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.act(self.fc(x)))
"""
MLP_NNX = """
import jax
from flax import nnx


class Net(nnx.Module):
    def __init__(self, rngs):
        self.fc, self.head = nnx.Linear(6, 8, rngs=rngs), nnx.Linear(8, 5, rngs=rngs)

    def __call__(self, x):
        return self.head(jax.nn.gelu(self.fc(x), approximate=False))
"""


@pytest.fixture
def mlp(twins):
    """The pair, of which the port has one piece replaced by another."""
    return lambda *replacing, torch=MLP_TORCH: twins(
        MLP_NNX, torch=torch, replacing=replacing, inputs=fwbench.normal(6)
    )


def proofs(model, kind=WithoutSteps):
    return [kind(model, "jax", mode) for mode in modes(model)]


@pytest.mark.slow
def test_a_failed_proof_says_all_that_differs_and_what_would_admit_it(small):
    said = differences(proofs(small(), Proof))
    assert said.startswith("twins (eval): the difference in output is ")
    assert "First apart at `bn` (torch: BatchNorm1d(epsilon=1e-05), " in said
    assert "Their epsilon differs: 1e-05 in torch and 1.1e-05 in jax" in said
    everything = re.search(r"All that differ: (.*)\. tolerance=({.*}) would admit them all$", said)
    tolerance = ast.literal_eval(everything[2])
    assert [part.split()[0] for part in everything[1].split("), ")] == list(tolerance)
    assert tolerance.keys() >= {"output", "loss", "gradients", "statistics"}
    assert re.search(r"statistics \d\.\de-\d+ in 'bn.running_var' \(train\)", everything[1])
    admitted = proofs(small(tolerance=tolerance), Proof)
    assert differences(admitted) == ""
    assert max(proof.nearest.ratio for proof in admitted) > 0.1
    # With what is admitted already.
    del tolerance["output"], tolerance["loss"]
    said = differences(proofs(small(tolerance=tolerance)))
    assert ast.literal_eval(re.search(r"tolerance=({.*}) would", said)[1]) == ast.literal_eval(everything[2])


def test_what_is_kept_of_a_failed_proof_is_finite_and_has_its_sentence(small):
    model = small(tolerance=dict.fromkeys(("gradients", "statistics", "sgd", "adam"), 1.0))
    stages = []
    proved = prove(model, "jax", stages.append, patient=False)
    assert (proved.state, proved.nearest, proved.power) == ("failed", None, None)
    assert proved.bounds.keys() == BOUNDS.keys()
    assert proved.errors.keys() == proved.bounds.keys() - {"output", "loss"}
    assert proved.sentence == differences(proofs(model, Proof))
    assert {"stage": "train: adam"} in stages
    assert Proved.from_json(json.loads(json.dumps(asdict(proved), allow_nan=False))) == proved


def test_a_difference_is_said_though_the_other_mode_cannot_be_compared(mlp):
    torch = MLP_TORCH.replace("nn.GELU(),", "nn.Sequential(nn.GELU(), nn.Dropout(0.5)),")
    model = mlp("approximate=False", "approximate=True", torch=torch)
    sentence = prove(model, "jax", lambda message: None, patient=False).sentence
    assert sentence.startswith("twins (eval): the difference in output is ")
    assert "First apart between `fc` and `head` (torch: `act.0`, GELU(" in sentence
    assert sentence.endswith("or take it out of torch")
    assert "twins (train): torch is random in training mode" in sentence


def test_where_nothing_is_the_same_no_tolerance_is_named(mlp):
    said = differences(proofs(mlp("self.fc(x)", "-self.fc(x)")))
    assert "All that differ: output " in said
    assert "tolerance=" not in said


def test_a_difference_in_gradients_alone_has_no_place(mlp):
    said = differences(proofs(mlp("self.fc(x)", "jax.lax.stop_gradient(self.fc(x))")))
    assert said.startswith("twins (eval): the difference in gradients is ")
    assert "apart" not in said
    assert "All that differ" not in said


def test_what_shows_at_another_point_has_its_place_there(mlp):
    said = differences(proofs(mlp("self.fc(x)", "jax.numpy.minimum(self.fc(x), 6)")))
    assert " at perturbed weights, inputs times 4, more than" in said
    assert "First apart between `fc` and `head`" in said


def test_a_block_that_names_its_activation_is_compared(twins):
    fields = ("self.fc1, self.fc2", "self.activation = 'gelu'\n        self.fc1, self.fc2")
    assert where(twins(NNX, replacing=fields)) == ""
    said = where(twins(NNX, replacing=(*fields, "return x + ", "return ")))
    assert said.startswith("First apart after `mlp.fc2`, the last module with weights in `mlp` "), said


def test_the_epsilon_of_a_variance_is_an_epsilon(twins):
    torch = """
import torch
from torch import nn


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.variance_epsilon = nn.Parameter(torch.ones(6)), 1e-6

    def forward(self, x):
        return self.weight * x * (x.square().mean(-1, keepdim=True) + self.variance_epsilon).rsqrt()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.head = Norm(), nn.Linear(6, 5)

    def forward(self, x):
        return self.head(self.norm(x))
"""
    flax = """
from flax import nnx


def Net(rngs):
    return nnx.Sequential(nnx.RMSNorm(6, epsilon=1e-5, rngs=rngs), nnx.Linear(6, 5, rngs=rngs))
"""
    names = {r"^layers\.0": "norm", r"^layers\.1": "head"}
    said = where(twins(flax, torch=torch, inputs=fwbench.normal(6), weights=names))
    assert said.endswith("Their epsilon differs: 1e-06 in torch and 1e-05 in jax"), said


CUT_TORCH = """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.head = nn.Conv1d(3, 8, 3, padding=2), nn.Conv1d(8, 8, 3, 2), nn.Linear(8, 5)

    def forward(self, x):
        x = self.b(self.a(x.mT)[..., :9]).mT
        return self.head(nn.functional.gelu(x))
"""
CUT_NNX = """
import jax
from flax import nnx


class Net(nnx.Module):
    def __init__(self, rngs):
        self.a = nnx.Conv(3, 8, (3,), padding=[(2, 0)], rngs=rngs)
        self.b = nnx.Conv(8, 8, (3,), 2, padding=0, rngs=rngs)
        self.head = nnx.Linear(8, 5, rngs=rngs)

    def __call__(self, x):
        return self.head(jax.nn.gelu(self.b(self.a(x)), approximate=False))
"""


@pytest.mark.parametrize(
    ("replacing", "place"),
    [
        (("False", "True"), "between `b` and `head` "),
        (
            ("(3,), padding=[(2, 0)]", "(3,), 2, padding=[(2, 0)]", "(3,), 2, padding=0", "(3,), padding=0"),
            "at `a` ",
        ),
    ],
)
def test_an_output_of_another_size_is_a_place_unless_it_is_cut_to_an_equal_one(twins, replacing, place):
    said = where(twins(CUT_NNX, torch=CUT_TORCH, inputs=fwbench.normal(9, 3), replacing=replacing))
    assert said.startswith(f"First apart {place}"), said
    assert ("its output has another size, and its input by 0" in said) == (place == "at `a` "), said


def test_a_plain_function_has_no_places(twins):
    inputs = {"q": fwbench.normal(3, 4), "k": fwbench.normal(5, 4)}
    torch = "def Net(q, k):\n    return (q @ k.mT).softmax(-1)\n"
    flax = "import jax\n\n\ndef Net(q, k):\n    return jax.nn.softmax(0.9 * q @ k.mT)\n"
    said = differences(proofs(twins(flax, torch=torch, inputs=inputs)))
    assert "Where they part cannot be said, as the network in torch has no modules with weights" in said


def test_a_network_that_fails_operator_by_operator_is_said_to(mlp):
    compiled = "assert isinstance(x, jax.core.Tracer), 'only compiled'\n        return self.head("
    said = differences(proofs(mlp("return self.head(", compiled, "approximate=False", "approximate=True")))
    assert "Where they part cannot be said: the network of twins raised AssertionError: only compiled (" in said


@pytest.mark.slow
def test_weights_in_another_layout_are_those_of_the_same_modules(twins, tmp_path):
    """Three projections in one matrix, as PyTorch's own attention has them: the whole has a counterpart, not a part."""
    torch = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Linear(6, 8), nn.Linear(8, 5)
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        x = self.stem(x)
        return self.head(self.attn(x, x, x, need_weights=False)[0])
"""
    flax = """
import jax
from flax import nnx


class Net(nnx.Module):
    def __init__(self, rngs):
        self.stem, self.head = nnx.Linear(6, 8, rngs=rngs), nnx.Linear(8, 5, rngs=rngs)
        self.attn = nnx.MultiHeadAttention(HEADS, 8, decode=False, rngs=rngs)

    def __call__(self, x):
        return self.head(self.attn(self.stem(x)))
"""
    (tmp_path / "mapping.py").write_text("""
import numpy as np


def to_torch(own):
    given = {}
    for layer in ("stem", "head"):
        given |= {f"{layer}.weight": own[f"{layer}.kernel"].T, f"{layer}.bias": own[f"{layer}.bias"]}
    parts = ("query", "key", "value")
    given["attn.in_proj_weight"] = np.concatenate([own[f"attn.{part}.kernel"].reshape(8, 8).T for part in parts])
    given["attn.in_proj_bias"] = np.concatenate([own[f"attn.{part}.bias"].reshape(8) for part in parts])
    given["attn.out_proj.weight"] = own["attn.out.kernel"].reshape(8, 8).T
    return {**given, "attn.out_proj.bias": own["attn.out.bias"]}
""")
    fields = {"torch": torch, "inputs": fwbench.normal(3, 6), "weights": "mapping:to_torch"}
    # The softmax of JAX's own attention is float32 whatever its inputs.
    assert where(twins(flax.replace("HEADS", "2"), **fields), bound=1e-6) == ""
    said = where(twins(flax.replace("HEADS", "4"), **fields), bound=1e-6)
    assert re.match(
        r"First apart at `attn` \(torch: MultiheadAttention\(heads=2\), twin\d+\.py, line 14; "
        r"jax: MultiHeadAttention\(heads=4\), twin\d+\.py, line 12\): its output differs by ",
        said,
    )
    assert said.endswith("Their heads differ: 2 in torch and 4 in jax")


HAIKU = """
import haiku
import jax
import jax.numpy as jnp


class Linear(haiku.Module):
    def __init__(self, name, weights):
        self.module_name, self.weights = name, weights[name]

    def call(self, x):
        return x @ self.weights["w"] + self.weights["b"]


def Net():
    def init(rng, x):
        sizes = {"net/~/up": (6, 8), "net/~/down": (8, 5)}
        return {name: {"w": jnp.zeros(size), "b": jnp.zeros(size[1])} for name, size in sizes.items()}

    def apply(params, rng, x):
        up, down = (Linear(name, params) for name in ("net/~/up", "net/~/down"))
        return down(jax.nn.silu(up(x)))

    return haiku.Transformed(init, apply)
"""


@pytest.fixture
def haiku(monkeypatch):
    """As much of Haiku as a network's calls need, as it need not be installed: modules whose calls are intercepted."""
    library = ModuleType("haiku")
    interceptors = []

    class Module:
        def __call__(self, x):
            context = SimpleNamespace(module=self, method_name="__call__")
            return interceptors[-1](self.call, (x,), {}, context) if interceptors else self.call(x)

    @contextlib.contextmanager
    def intercept_methods(interceptor):
        interceptors.append(interceptor)
        yield
        interceptors.pop()

    library.Module, library.intercept_methods, library.dropout = Module, intercept_methods, None
    library.Transformed = namedtuple("Transformed", ["init", "apply"], module="haiku._src.transform")
    monkeypatch.setitem(sys.modules, "haiku", library)


def test_places_in_a_network_of_haiku_are_named(twins, haiku):
    torch = """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 5)

    def forward(self, x):
        return self.down(nn.functional.silu(self.up(x)))
"""
    fields = {"torch": torch, "inputs": fwbench.normal(6), "weights": {r"^net\.": ""}}
    assert where(twins(HAIKU, **fields)) == ""
    said = where(twins(HAIKU, **fields, replacing=("silu", "relu")))
    assert said.startswith("First apart between `up` and `down` (torch: "), said
    assert said.endswith("There torch computes SiLU, and jax ReLU")
