"""What few random inputs hold and few draws show: each number of a range, samples without anything, sizes, rates."""

import random

import numpy as np
import pytest

import fwbench
from fwbench.ext.proofs import randomness
from fwbench.ext.proofs.case import Case
from fwbench.ext.proofs.choices import TARGETS
from fwbench.ext.proofs.choices.proof import prove
from fwbench.ext.proofs.choices.steering import at, sweep
from fwbench.ext.proofs.errors import NotTheSame
from fwbench.ext.proofs.torch import TorchSide
from fwbench.models import ModelError
from tests.correctness.proofs import WithoutSteps, first_of_each
from tests.correctness.test_choices import HEAD, INPUTS, MEAN, model, no_sizes, no_sweep  # noqa: F401 (fixtures)

ROW = "self.table(tokens)"
EXCHANGED = "self.table.embedding[...][jnp.where(tokens == 13, 14, jnp.where(tokens == 14, 13, tokens))]"
WRONG = {
    "a token without a row": ((ROW, f"jnp.where((tokens == 13)[..., None], 0, {ROW})"), "`tokens`"),
    "two exchanged rows": ((ROW, EXCHANGED), "`tokens`"),
    "a row without a gradient": (
        (ROW, f"jnp.where((tokens == 13)[..., None], jax.lax.stop_gradient({ROW}), {ROW})"),
        "`tokens`",
    ),
    "a target that is left out": (
        (MEAN, "return jnp.where(t == 13, 0, optax.softmax_cross_entropy_with_integer_labels(y, t)).mean()"),
        "`targets`",
    ),
}


def test_the_draws_of_these_tests_leave_the_numbers_out(model):  # noqa: F811
    case = Case(model())
    assert not set(case.inputs()["tokens"].ravel()) & {13, 14}
    assert 13 not in case.targets(())


@pytest.mark.parametrize("wrong", first_of_each([(wrong,) for wrong in WRONG], lambda wrong: WRONG[wrong][1]))
def test_each_number_of_a_range_is_tried(model, wrong):  # noqa: F811
    replaced, name = WRONG[wrong]
    with pytest.raises(NotTheSame, match=f"at drawn weights, {name} from "):
        prove(model(flax=[replaced]), "jax", {})


def test_what_was_tried_is_said(no_sizes, model):  # noqa: F811
    numbers = [f"drawn weights, `{name}` with each of its numbers" for name in ("tokens", "targets")]
    assert prove(model(), "jax", {}).swept == numbers


@pytest.mark.parametrize(
    ("high", "room", "points", "batch", "end"),
    [(50, 1000, 5, 2, 50), (7, 1000, 1, 2, 7), (1000, 1000, 56, 3, 1000), (50, 1, 1, 2, 12), (10**6, 100, 50, 2, 600)],
)
def test_a_sweep_takes_each_number_once_as_far_as_there_is_room(high, room, points, batch, end):
    own = fwbench.Model("own", torch="none:Net", inputs=fwbench.integers(6, high=high))
    case = Case(own)
    swept, reached = sweep(case, "", own.inputs[""], room)
    taken = np.concatenate([at(case, point).inputs(point)[""].ravel() for point in swept])
    assert (len(swept), {point.batch_size for point in swept}, reached) == (points, {batch}, end)
    assert sorted(set(taken)) == list(range(end))


def test_targets_are_swept_at_one_point():
    own = fwbench.Model("own", torch="none:Net", inputs=fwbench.normal(6), targets=fwbench.integers(high=100))
    (point,), end = sweep(Case(own), TARGETS, own.targets, 1000)
    assert (point.batch_size, end) == (100, 100)


@pytest.mark.slow
def test_a_sample_that_is_masked_as_a_whole_is_tried(model):  # noqa: F811
    def pooled(count, floor):
        return f"return self.head((x * mask[..., None]).sum(1, {count}=True) / {floor})"

    inputs = {**INPUTS, "mask": fwbench.ones(6)}
    torch = (HEAD, pooled("keepdim", "mask.sum(1)[:, None, None].clamp(min=1)"))
    right = (HEAD, pooled("keepdims", "jnp.maximum(mask.sum(1), 1)[:, None, None]"))
    wrong = (HEAD, pooled("keepdims", "mask.sum(1)[:, None, None]"))
    one = {"inputs": inputs, "targets": fwbench.integers(1, high=50)}
    assert prove(model([torch], [right], **one), "jax", {}).untried == []
    with pytest.raises(NotTheSame, match="`mask` with 0 in a whole sample"):
        prove(model([torch], [wrong], **one), "jax", {})


@pytest.mark.parametrize(
    "decided",
    ["jnp.where((x == 0).all(-1, keepdims=True), 1, x)", "jnp.where(jnp.abs(x) > 1e3, 0, x)"],
    ids=["rows of zeros", "large numbers"],
)
def test_what_the_candidate_alone_decides_is_tried(no_sweep, no_sizes, model, decided):  # noqa: F811
    with pytest.raises(NotTheSame, match=r"at drawn weights, (`x` with 0|inputs times 10000)"):
        prove(model(flax=[("self.up(x +", f"self.up({decided} +")]), "jax", {})


def test_what_the_candidate_alone_decides_elsewhere_is_said(no_sweep, no_sizes, model):  # noqa: F811
    untried = prove(model(flax=[(HEAD, "return jnp.clip(self.head(x), -1e30, 1e30)")]), "jax", {}).untried
    assert [words.partition(" (twin")[0] for words in untried] == ["a value below -1e+30", "a value above 1e+30"]


def test_what_both_decide_is_said_once(no_sweep, no_sizes, model):  # noqa: F811
    limited = (HEAD, "return self.head(x).clamp(max=1e30)"), (HEAD, "return jnp.minimum(self.head(x), 1e30)")
    untried = prove(model([limited[0]], [limited[1]]), "jax", {}).untried
    assert [words.partition(" (twin")[0] for words in untried] == ["a value above 1e+30"]


SIZED = {
    "a value of an axis": ("jnp.arange(x.shape[1])[:, None] < 6", "length of 9"),
    "a batch of one": ("x.shape[0] > 1", "a batch of 1"),
    "a large batch": ("x.shape[0] < 12", "a batch of 16"),
}


@pytest.mark.parametrize(
    "size", [pytest.param(size, marks=pytest.mark.slow if size != "a batch of one" else ()) for size in SIZED]
)
def test_sizes_that_the_model_declares_and_other_batches_are_tried(no_sweep, model, size):  # noqa: F811
    condition, words = SIZED[size]
    inputs = {
        "tokens": fwbench.integers("length", high=50),
        "x": fwbench.normal("length", 8),
        "mask": fwbench.ones("length"),
    }
    described = {"inputs": inputs, "targets": fwbench.integers("length", high=50), "axes": {"length": (6, 9)}}
    assert f"drawn weights, {words}" in prove(model(**described), "jax", {}).swept
    with pytest.raises(NotTheSame, match=f"at drawn weights, {words}, more than"):
        prove(model(flax=[(HEAD, f"return self.head(jnp.where({condition}, x, 0))")], **described), "jax", {})


def test_a_batch_that_a_network_does_not_take_is_left_out(no_sweep, model):  # noqa: F811
    torch = (HEAD, "assert len(x) > 1, 'alone'\n        return self.head(x)")
    left_out = prove(model([torch]), "jax", {}).left_out
    assert "alone" in left_out.pop("drawn weights, a batch of 1 (eval)")
    assert left_out == {}


def dropped(model, rate):  # noqa: F811
    torch = ("return self.head(x)", "return self.head(F.dropout(x, 0.1, self.training))")
    flax = [
        ("self.table, self.gain =", f"self.drop = nnx.Dropout({rate}, rngs=rngs)\n        self.table, self.gain ="),
        (HEAD, "return self.head(self.drop(x))"),
    ]
    return WithoutSteps(model([torch], flax), "jax", "train")


@pytest.mark.slow
def test_a_rate_of_twelve_percent_is_not_one_of_ten(model):  # noqa: F811
    assert dropped(model, 0.1).worst("output").ratio <= 1
    with pytest.raises(NotTheSame, match=r"over 1024 keys each .* spread 1\.1\d* times as far"):
        dropped(model, 0.12).worst("output")


RARE = "return self.head(x * {} if self.training else x)"


@pytest.mark.parametrize(
    "drawn",
    [
        "torch.bernoulli(torch.full((len(x), 1, 1), 0.98)) / 0.98",
        "(0 if __import__('random').random() < 0.02 else 1)",
    ],
    ids=["PyTorch's generator", "Python's"],
)
def test_what_is_seldom_dropped_is_random_all_the_same(model, drawn):  # noqa: F811
    random.seed(0)  # of other seeds one in twenty drops nothing
    built = model([(HEAD, RARE.format(drawn))])
    assert randomness.is_random(TorchSide(Case(built, mode="train")))


def test_draws_without_a_switch_are_no_difference(model):  # noqa: F811
    torch = (HEAD, "return self.head(x * (torch.rand(len(x), 1, 1) < 0.5).to(x.dtype) if self.training else x)")
    with pytest.raises(ModelError, match="what torch draws cannot be switched off"):
        WithoutSteps(model([torch]), "jax", "train").worst("output")


def test_a_draw_without_effect_is_steady(model):  # noqa: F811
    torch = (HEAD, "torch.rand(3)\n        return self.head(x)")
    assert WithoutSteps(model([torch]), "jax", "train").worst("output").error < 1e-12
