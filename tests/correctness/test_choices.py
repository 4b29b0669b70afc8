"""Choices that no random draw takes: inputs are steered there, and what is not tried is said."""

import pytest

import fwbench
from fwbench.ext.proofs.case import MAIN, Case
from fwbench.ext.proofs.choices import Choice, Choices
from fwbench.ext.proofs.choices import jax as in_jax
from fwbench.ext.proofs.choices.proof import _Asked, prove
from fwbench.ext.proofs.choices.torch import taken
from fwbench.ext.proofs.errors import NotTheSame
from fwbench.ext.proofs.jax import JaxSide
from fwbench.ext.proofs.torch import TorchSide
from tests.correctness.proofs import WithoutSteps

TORCH = """
import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.gain = nn.Embedding(50, 8), nn.Parameter(torch.ones(8))
        self.up, self.head = nn.Linear(8, 8), nn.Linear(8, 50)

    def forward(self, tokens, x, mask):
        x = self.up(x + self.table(tokens) * self.gain)
        return self.head(x)


def loss(y, t):
    return F.cross_entropy(y.flatten(0, 1), t.flatten())
"""

FLAX = """
import jax
import jax.numpy as jnp
import optax
from flax import nnx


class Net(nnx.Module):
    def __init__(self, rngs):
        self.table, self.gain = nnx.Embed(50, 8, rngs=rngs), nnx.Param(jnp.ones(8))
        self.up, self.head = nnx.Linear(8, 8, rngs=rngs), nnx.Linear(8, 50, rngs=rngs)

    def __call__(self, tokens, x, mask):
        x = self.up(x + self.table(tokens) * self.gain[...])
        return self.head(x)


def loss(y, t):
    return optax.softmax_cross_entropy_with_integer_labels(y, t).mean()
"""

INPUTS = {
    "tokens": fwbench.integers(6, low=0, high=50),
    "x": fwbench.normal(6, 8),
    "mask": fwbench.ones(6, dtype="int32"),
}

# By a choice: what stands in the place of which code of PyTorch's side, and the same of JAX's where that makes it too.
HEAD = "return self.head(x)"
FREE = "cross_entropy(y.flatten(0, 1), t.flatten()"
MEAN = "return optax.softmax_cross_entropy_with_integer_labels(y, t).mean()"
CHOICES = {
    "mask": (
        (HEAD, "x = x.masked_fill(mask[..., None] == 0, 0.0)\n        return self.head(x)"),
        (HEAD, "x = jnp.where(mask[..., None] == 0, 0.0, x)\n        return self.head(x)"),
    ),
    "mask that multiplies": (
        (HEAD, "return self.head(x * mask[..., None].to(x.dtype))"),
        (HEAD, "return self.head(x * mask[..., None].astype(x.dtype))"),
    ),
    "padding token": (
        (HEAD, "return self.head(torch.where(tokens.ne(7)[..., None], x, 0.0))"),
        (HEAD, "return self.head(jnp.where((tokens != 7)[..., None], x, 0.0))"),
    ),
    "gradient of the padding token": (
        ("nn.Embedding(50, 8)", "nn.Embedding(50, 8, padding_idx=1)"),
        (
            "self.table(tokens)",
            "jnp.where((tokens == 1)[..., None], jax.lax.stop_gradient(self.table(tokens)), self.table(tokens))",
        ),
    ),
    "ignored targets": (
        (FREE, f"{FREE}, ignore_index=3"),
        (
            MEAN,
            "kept = t != 3\n"
            "    each = optax.softmax_cross_entropy_with_integer_labels(y, t)\n"
            "    return (each * kept).sum() / kept.sum()",
        ),
    ),
    "norm of a row": (
        ("self.up(x +", "self.up(F.normalize(x, dim=-1) +"),
        ("self.up(x +", "self.up(x / jnp.maximum(jnp.sqrt((x * x).sum(-1, keepdims=True)), 1e-12) +"),
    ),
    "upper limit": ((HEAD, "return self.head(x.clamp(max=99))"), (HEAD, "return self.head(jnp.minimum(x, 99))")),
    "clip of a gradient": (
        (HEAD, "x.requires_grad and x.register_hook(lambda g: g.clamp(-9, 9))\n        return self.head(x)"),
        (
            HEAD,
            "clipped = jax.custom_vjp(lambda x: x)\n"
            "        clipped.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -9, 9),))\n"
            "        return self.head(clipped(x))",
        ),
    ),
    "norm beside a bias": (
        (HEAD, "return self.head(F.normalize(x, dim=-1))"),
        (HEAD, "return self.head(x / jnp.maximum(jnp.sqrt((x * x).sum(-1, keepdims=True)), 1e-12))"),
    ),
    "limit of a weight": (
        (HEAD, "return self.head(x * self.gain.clamp(max=9))"),
        (HEAD, "return self.head(x * jnp.minimum(self.gain[...], 9))"),
    ),
    "limit of a negative weight": (
        (HEAD, "return self.head(x * self.gain.sum().clamp(-9, 9))"),
        (HEAD, "return self.head(x * jnp.clip(self.gain[...].sum(), -9, 9))"),
    ),
}
# No draw of these sizes has the numbers 1, 3 and 7 among its tokens and targets, which a test below holds.
WRONG = {
    "norm of a row": ("self.up(x +", "self.up(x / jnp.sqrt((x * x).sum(-1, keepdims=True)) +"),
    "norm beside a bias": (HEAD, "return self.head(x / jnp.sqrt((x * x).sum(-1, keepdims=True)))"),
    "limit of a weight": (HEAD, "return self.head(x * self.gain[...])"),
    "limit of a negative weight": (HEAD, "return self.head(x * self.gain[...].sum())"),
}


SWEEP = _Asked.sweep


@pytest.fixture
def no_sweep(monkeypatch):
    """Ranges are not swept, which compiles further programs; `test_sweeps.py` is about them."""
    monkeypatch.setattr(_Asked, "sweep", lambda *_: None)


@pytest.fixture
def no_sizes(monkeypatch):
    """Nor are sizes tried."""
    monkeypatch.setattr(_Asked, "size", lambda *_: None)


pytestmark = pytest.mark.usefixtures("no_sweep", "no_sizes")


@pytest.fixture
def model(pair):
    """A pair of networks, given replacements in both sources."""

    def build(torch=(), flax=(), **fields):
        sources = []
        for source, replaced in ((TORCH, torch), (FLAX, flax)):
            for right, wrong in replaced:
                assert source.count(right) == 1
                source = source.replace(right, wrong)
            sources.append(source)
        described = {"inputs": INPUTS, "targets": fwbench.integers(6, high=50), "loss": "loss", **fields}
        return pair(*sources, **described)

    return build


def test_without_choices_nothing_is_tried_but_a_mask_of_ones(model):
    further = prove(model(), "jax", {})
    partly = "drawn weights, `mask` with 0"
    assert list(map(str, further.points)) == [partly, f"{partly} in a whole sample"]
    assert (further.untried, further.left_out) == ([], {})


@pytest.mark.parametrize("choice", CHOICES)
def test_a_port_without_the_choice_is_found(model, choice):
    torch, _ = CHOICES[choice]
    wrong = [WRONG[choice]] if choice in WRONG else []
    with pytest.raises(NotTheSame, match=r"difference in .* at drawn weights"):
        prove(model([torch], wrong), "jax", {})


# The others are masks and limits as well.
@pytest.mark.parametrize(
    "choice",
    [
        pytest.param(choice, marks=pytest.mark.slow if choice in ("mask that multiplies", "padding token") else ())
        for choice in CHOICES
    ],
)
def test_a_right_port_is_the_same_and_everything_is_tried(model, choice):
    further = prove(model(*([each] for each in CHOICES[choice])), "jax", {})
    assert further.points
    assert (further.untried, further.left_out) == ([], {})


@pytest.mark.parametrize(
    ("torch", "words"),
    [
        (
            (HEAD, "x.requires_grad and x.register_hook(lambda g: g.clamp(min=-1e30))\n        return self.head(x)"),
            "a value below -1e+30",
        ),
        ((HEAD, "return self.head(x * self.gain.tanh().clamp(max=3))"), "a value above 3"),
        (("return F.", "t = torch.where(t == -100, 0, t)\n    return F."), "`targets` = -100"),
        ((HEAD, "return self.head(x if (tokens >= 50).sum() == 0 else x * 2)"), "`tokens` >= 50"),
        ((HEAD, "return self.head(x) + 0 * F.huber_loss(x, 2 * x, delta=1e30)"), "a value above 1e+30"),
        ((HEAD, "return self.head(x) + 0 * F.smooth_l1_loss(x, 2 * x, beta=1e30)"), "a value above 1e+30"),
    ],
    ids=["hook", "of weights", "outside what is drawn", "branch", "Huber's loss", "smooth L1"],
)
def test_what_no_point_takes_is_said_with_its_line(model, torch, words):
    flax = [(HEAD, "return self.head(x * jnp.tanh(self.gain[...]))")] if "tanh()" in torch[1] else []
    built = model([torch], flax)
    untried = prove(built, "jax", {}).untried
    line = TORCH[: TORCH.index(torch[0])].count("\n") + 1
    assert any(each.startswith(f"{words} (twin") and each.endswith(f".py, line {line})") for each in untried)


@pytest.mark.parametrize(
    ("torch", "flax"),
    [
        (
            (FREE, f"{FREE}, label_smoothing=0.1"),
            (
                MEAN,
                "t = optax.smooth_labels(jax.nn.one_hot(t, 50), 0.1)\n"
                "    return optax.softmax_cross_entropy(y, t).mean()",
            ),
        ),
        (
            (HEAD, "assert torch.isfinite(x).all()\n        return self.head(F.relu6(x))"),
            (HEAD, "return self.head(jax.nn.relu6(x))"),
        ),
        (
            ("self.up, self", "nn.init.trunc_normal_(self.gain)\n        self.up, self"),
            (HEAD, HEAD),
        ),
        (
            (HEAD, "return self.head((x @ x.mT).masked_fill(torch.ones(6, 6).tril() == 0, -1e9).softmax(-1) @ x)"),
            (HEAD, "return self.head(jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((6, 6))) == 0, -1e9, x @ x.mT)) @ x)"),
        ),
    ],
    ids=["smoothed labels", "ReLU6", "constructor", "causal attention"],
)
def test_what_is_no_choice_of_the_networks_or_taken_both_ways_is_not_said(model, torch, flax):
    assert prove(model([torch], [flax]), "jax", {}).untried == []


@pytest.mark.parametrize(
    ("flax", "words"),
    [
        (HEAD, []),
        ("return self.head(x * jnp.where(mask == 0, 2.0, 1.0)[..., None])", ["`mask` = 0", "a condition that holds"]),
        ("return self.head(jnp.minimum(x, 99.0))", ["a value above 99"]),
        ("return self.head(jnp.clip(x, -1e4, 0.1))", ["a value below -10000"]),
        ("return self.head(jax.nn.relu6(x))", ["a value above 6"]),
        (
            "x = jax.lax.cond((tokens >= 50).any(), lambda x: 2 * x, lambda x: x, x)\n        return self.head(x)",
            ["`tokens` >= 50", "a condition that holds"],
        ),
        (
            "return self.head(jax.nn.softmax(x) + jax.nn.gelu(x) + x[:, tokens[0] % 6] + x.std() + jnp.tril(x[0])[0])",
            [],
        ),
    ],
    ids=["none", "where", "minimum", "clip", "relu6", "cond", "of JAX's own"],
)
def test_a_reference_in_jax_is_watched_too(model, flax, words):
    from fwbench.ext.proofs.choices.jax import taken as taken_in_jax

    two = model(flax=[(HEAD, flax)])
    alone = fwbench.Model(
        "alone", jax=two.networks["jax"], inputs=two.inputs, targets=two.targets, loss={"jax": two.loss["jax"]}
    )
    untried = taken_in_jax(JaxSide(Case(alone)), MAIN).untried()
    assert [each.partition(" (twin")[0] for each in untried] == words


def test_a_point_left_out_has_tried_nothing(model):
    """As nothing was compared there."""
    torch = (HEAD, "x = x / mask[..., None] * torch.where(mask == 0, 1.0, 1.0)[..., None]\n        return self.head(x)")
    further = prove(model([torch]), "jax", {})
    assert further.points == []
    partly = "drawn weights, `mask` with 0"
    assert list(further.left_out) == [f"{partly} (eval)", f"{partly} in a whole sample (eval)"]
    assert [words.partition(" (")[0] for words in further.untried] == ["`mask` = 0", "a condition that holds"]


IN_TRAINING = (HEAD, "return self.head(x.clamp(-3, 3) if self.training else x)")


def test_training_that_differs_at_another_point_than_the_main_one_is_compared_there(model):
    wrong = model([IN_TRAINING])
    trained = WithoutSteps(wrong, "jax", "train")
    assert trained.worst("output").error < 1e-12
    with pytest.raises(NotTheSame, match=r"\(train\): the difference in gradients .* at perturbed weights"):
        prove(wrong, "jax", {})


def test_twins_that_train_alike_stay_right(model):
    """As `deterministic` is what Flax sets in training mode."""
    flax = [
        ("def __init__(self, rngs):\n", "def __init__(self, rngs):\n        self.deterministic = True\n"),
        (HEAD, "return self.head(x if self.deterministic else jnp.clip(x, -3, 3))"),
    ]
    assert prove(model([IN_TRAINING], flax), "jax", {}).untried == []


BUILT = "self.up, self.head = nn"


@pytest.mark.parametrize(
    ("used", "untried"),
    [
        ("2 * x if self.calls > 100 else x", ["`calls` > 100"]),
        ("x / max(self.calls % 100, 1)", ["`calls` beyond 100"]),
        ("x / (1 + self.calls * self.training)", ["`calls` beyond 1"]),
        ("x", []),
    ],
    ids=["branch", "remainder", "number", "none"],
)
def test_what_a_counter_of_calls_decides_is_not_tried(model, used, untried):
    counting = f"self.calls += self.training\n        return self.head({used})"
    net = model([(BUILT, f"self.calls = 0\n        {BUILT}"), (HEAD, counting)])
    side = TorchSide(Case(net, mode="train"))
    assert [words.partition(" (twin")[0] for words in taken(side, MAIN).untried()] == untried
    # No network is asked in another way because it counts.
    assert side.forward(MAIN).loss == TorchSide(Case(net, mode="train")).forward(MAIN).loss


@pytest.mark.parametrize(("side", "watch"), [(TorchSide, taken), (JaxSide, in_jax.taken)], ids=["torch", "jax"])
def test_comparisons_of_two_inputs_on_one_line_are_two_choices(model, side, watch):
    """Tokens are below 25 and above, which says nothing of the mask."""
    kept = (HEAD, "return self.head(x * ((tokens > 25) & (mask > 25))[..., None])")
    untried = watch(side(Case(model([kept], [kept]))), MAIN).untried()
    assert [words.partition(" (")[0] for words in untried] == ["`mask` > 25"]


def test_each_counter_is_told_at_its_own_line_and_one_that_is_not_used_at_none(model):
    counting = """self.calls += self.training
        self.steps += self.training
        self.idle += self.training
        x = x * (self.calls < 100)
        x = x * (self.steps < 100)
        return self.head(x)"""
    net = model([(BUILT, f"self.calls = self.steps = self.idle = 0\n        {BUILT}"), (HEAD, counting)])
    untried = taken(TorchSide(Case(net, mode="train")), MAIN).untried()
    # Three lines of additions, after one more in the constructor, stand before the first use.
    first = TORCH[: TORCH.index(HEAD)].count("\n") + 1 + 4
    assert [(words.partition(" (")[0], words.rpartition(", ")[2]) for words in untried] == [
        ("`calls` >= 100", f"line {first})"),
        ("`steps` >= 100", f"line {first + 1})"),
    ]


@pytest.mark.parametrize("bound", ["9", "1e30"])
def test_a_gradient_that_the_candidate_alone_clips_is_tried(model, bound):
    """Rules of JAX's own compare at the same lines, and are no choices of the network."""
    flax = CHOICES["clip of a gradient"][1][1].replace("9", bound).replace("clipped(x)", "clipped(jnp.maximum(x, 0.1))")
    alone = model([(HEAD, "return self.head(x.clamp(min=0.1))")], [(HEAD, flax)])
    if bound == "9":
        with pytest.raises(NotTheSame, match=r"difference in gradients .* (loss|weights) times"):
            prove(alone, "jax", {})
    else:
        untried = prove(alone, "jax", {}).untried
        assert [words.partition(" (")[0] for words in untried] == ["a value below -1e+30", "a value above 1e+30"]


BEND = {"inputs": fwbench.normal(8), "targets": fwbench.normal(8)}
LINE = "from torch import nn\n\n\nclass Net(nn.Linear):\n    def __init__(self):\n        super().__init__(8, 8)\n"
LOSS = "def loss(y, t):\n    return nn.functional.huber_loss(y{}, t, delta=40.0)\n"
FLAX_LINE = """
import jax.numpy as jnp
import optax
from flax import nnx


class Net(nnx.Linear):
    def __init__(self, rngs):
        super().__init__(8, 8, rngs=rngs)


def loss(y, t):
    return {}.mean()
"""


@pytest.mark.parametrize("output", ["", ".tanh()"], ids=["of the output", "of the targets"])
def test_the_bend_of_a_loss_is_tried(pair, output):
    """No output is large if a tanh bounds it, so the targets are."""
    bounded = "jnp.tanh(y)" if output else "y"
    right, wrong = f"optax.huber_loss({bounded}, t, delta=40.0)", f"(({bounded} - t) ** 2 / 2)"
    port = pair(f"{LINE}\n\n{LOSS.format(output)}", FLAX_LINE.format(right), loss="loss", **BEND)
    assert prove(port, "jax", {}).untried == []
    with pytest.raises(NotTheSame, match=r"difference in \w+ is .* (inputs|targets|weights) times 1000"):
        prove(pair(f"{LINE}\n\n{LOSS.format(output)}", FLAX_LINE.format(wrong), loss="loss", **BEND), "jax", {})


def test_numbers_beyond_those_that_there_is_time_for_are_left_out(model, monkeypatch):
    monkeypatch.setattr(_Asked, "sweep", SWEEP)
    monkeypatch.setattr(TorchSide, "room", 1)
    further = prove(model(), "jax", {})
    assert (further.untried, list(further.left_out)) == ([], ["`tokens` from 12 on", "`targets` from 12 on"])


def test_a_side_is_taken_once_any_pass_takes_it():
    choice = Choice(("net.py", 3, 20), "lt", 5.0, "x")
    known, more = Choices(), Choices()
    known.note(choice, False, True)
    assert known.untried() == ["`x` < 5 (net.py, line 3)"]
    assert not known.adds(known)
    more.note(choice, True, False)
    assert known.adds(more)
    known.add(more)
    assert known.untried() == []
