"""A proof's power: mistakes planted in small networks, those it finds, and those it cannot."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fwbench
from fwbench.ext.proofs.case import MAIN, Case
from fwbench.ext.proofs.jax import JaxSide
from fwbench.ext.proofs.power.facts import Known, results
from fwbench.ext.proofs.power.mistakes import KINDS
from fwbench.ext.proofs.power.program import NONE, Planted
from fwbench.ext.proofs.power.search import power
from fwbench.ext.proofs.power.sites import sites
from fwbench.ext.proofs.proof import elsewhere
from fwbench.ext.proofs.torch import TorchSide
from fwbench.models import CATALOG
from fwbench.models.store import Power
from tests.correctness.planted import written

NETWORK = """
import jax
import jax.numpy as jnp
from flax import nnx


class Net(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(6, 6, rngs=rngs)
        self.norm = nnx.LayerNorm(6, epsilon=1e-5, use_fast_variance=False, use_scale=False, rngs=rngs)
        self.last = nnx.Linear(6, 4, rngs=rngs)

    def __call__(self, x):
        x = self.norm(jax.nn.gelu(self.first(x), approximate=True))
        return self.last(x * jax.nn.sigmoid(x))
"""

DECAY = """
import jax.numpy as jnp
from flax import nnx


class Net(nnx.Module):
    def __init__(self, rngs):
        self.decay = nnx.Param(jnp.zeros(5))

    def __call__(self, x):
        return x * -jnp.exp(self.decay[...])
"""


@pytest.fixture
def side(project):
    """Writes a module with a network, and returns the candidate's side of its proof."""

    def write(source, size):
        model = fwbench.Model("powered", jax=written(source, project), inputs=fwbench.normal(size), loss="mse")
        return JaxSide(Case(model))

    return write


def every_point(side):
    return [MAIN, *elsewhere(side.case.model)]


def of(function, *arguments, parameters=1):
    """The program of a function, and the mistakes that can be planted in it."""
    program = jax.make_jaxpr(function)(*arguments)
    return program, sites(program, [f"argument {index}" for index in range(len(arguments))], parameters)


def kinds(found, kind):
    return [site for site in found if site.mistake.kind == kind]


def but_clips(answer):
    """What was missed, but for clips: some stand beyond what a point's few weights reach."""
    return [name for name in answer.missed if not name.startswith("clip at ")]


@pytest.mark.slow
def test_a_small_network_s_mistakes_are_found(side):
    small = side(NETWORK, 6)
    answer = power(small, small, every_point(small), most=60)
    assert but_clips(answer) == []
    assert answer.planted >= answer.found >= answer.planted - 2 > 50


def test_a_clip_beyond_the_values_seen_needs_another_point(side):
    decay = side(DECAY, 5)
    alone, everywhere = power(decay, decay, [MAIN]), power(decay, decay, every_point(decay))
    clips = [name for name in alone.missed if name.startswith("clip at -")]
    assert any(name.endswith(".py:11)") for name in clips)
    assert alone.planted == everywhere.planted
    assert everywhere.missed == ()


def test_a_blind_comparison_has_no_power(side):
    blind = side(DECAY.replace("return x * -jnp.exp(", "return 0 * x * -jnp.exp("), 5)
    answer = power(blind, blind, every_point(blind))
    assert answer.found < answer.planted / 4
    assert any("stop_gradient" in name and name.endswith(".py:11)") for name in answer.missed)


def test_no_time_plants_nothing(side):
    decay = side(DECAY, 5)
    answer = power(decay, decay, [MAIN], seconds=0)
    assert (answer.planted, answer.found, answer.missed) == (0, 0, ())
    assert answer.possible > 10


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_the_suite_s_smallest_models(model):
    model = CATALOG[model]
    case = Case(model)
    answer = power(JaxSide(case), TorchSide(case), [MAIN, *elsewhere(model)], most=40)
    assert but_clips(answer) == []
    assert answer.found >= answer.planted - 1 > 30


def everything(x):
    """Has a place for a mistake of each kind."""
    y = 3.5 * x @ x + jax.nn.sigmoid(x) - jnp.cos(x)
    y = jax.lax.rsqrt(jnp.exp(y) + 1e-5) / jnp.cos(x)
    return (y + jnp.tanh(x) + jax.nn.gelu(x, approximate=False)).sum()


def test_each_kind_changes_its_value_or_gradient_alone():
    with jax.enable_x64(True):
        x = jnp.asarray(np.random.default_rng(0).random((3, 3)))
        program, planted = of(everything, x)
        chosen = [kinds(planted, kind)[0] for kind in KINDS]
        limits = np.array([0.9 if site.mistake.low else 0.1 for site in chosen])
        run = Planted(program, chosen)
        differentiate = jax.jit(jax.value_and_grad(lambda x, which: run(which, limits, [x])[0][0]))
        right, slope = jax.jit(jax.value_and_grad(everything))(x)
        value, gradient = differentiate(x, NONE)
        assert np.allclose(value, right, rtol=1e-14)
        assert np.allclose(gradient, slope, rtol=1e-13)
        for number, site in enumerate(chosen):
            wrong, changed = differentiate(x, number)
            assert np.isfinite(wrong)
            assert (wrong != value) == site.mistake.forward, site
            assert site.mistake.forward or not np.allclose(changed, gradient, rtol=1e-5), site


@pytest.mark.parametrize(("right", "wrong"), [(False, "erfc"), (True, "tanh")], ids=["exact to tanh", "tanh to exact"])
def test_gelu_s_other_form_is_the_one_that_jax_has(right, wrong):
    with jax.enable_x64(True):
        x = jnp.linspace(-3.0, 3.0, 50)
        program, found = of(lambda x: jax.nn.gelu(x, approximate=right), x)
        (site,) = kinds(found, "GELU's other form")
        assert site.mistake.what.startswith(wrong)
        ((value,), _) = jax.jit(Planted(program, [site]))(0, np.zeros(1), [x])
        assert np.allclose(value, jax.nn.gelu(x, approximate=not right), rtol=0, atol=1e-14)


@jax.custom_jvp
def straight(x):
    """Rounds in steps of a half, with a gradient as if it did not."""
    return 0.5 * jnp.round(2.0 * x)


straight.defjvps(lambda slope, answer, x: slope)


def inside(x):
    """A number in each kind of inner program."""
    x = jax.checkpoint(lambda x: jnp.sin(1.5 * x))(x)
    x, _ = jax.lax.scan(lambda carry, each: (1.25 * carry + each, None), x, jnp.ones((3, 4)))
    x = jax.lax.cond(x.sum() > 0, lambda x: 1.75 * x, lambda x: x, x)
    x = jax.lax.fori_loop(0, 2, lambda _, x: 2.25 * x, x)
    return (x + straight(x)).sum()


def test_mistakes_go_into_inner_programs():
    with jax.enable_x64(True):
        x = jnp.array([0.1, 0.2, 0.3, 0.4])
        program, found = of(inside, x)
        numbers = ("1.5", "1.25", "1.75", "2.25", "0.5", "2")
        chosen = [site for site in found if site.mistake.what in [f"constant {n} moved by 0.1 %" for n in numbers]]
        assert {site.mistake.what.split()[1] for site in chosen} == set(numbers)
        assert all(site.place.startswith("test_power.py:") for site in chosen)
        planted = jax.jit(Planted(program, chosen))
        limits = np.zeros(len(chosen))
        assert planted(NONE, limits, [x])[0][0] == inside(x)
        differ = {
            site.mistake.what.split()[1]: planted(n, limits, [x])[0][0] != inside(x) for n, site in enumerate(chosen)
        }
        # Twice a number, moved by a thousandth, rounds to the same.
        assert differ == {number: number != "2" for number in numbers}


def test_a_loop_that_ends_by_itself_is_gone_into():
    def function(x):
        return jax.lax.while_loop(lambda x: x.sum() < 10.5, lambda x: 1.5 * x, x).sum()

    x = jnp.ones(3)
    program, found = of(function, x)
    (site,) = [site for site in found if site.mistake.what == "constant 1.5 moved by 0.1 %"]
    planted = jax.jit(Planted(program, [site]))
    assert planted(NONE, np.zeros(1), [x])[0][0] == function(x) != planted(0, np.zeros(1), [x])[0][0]


def test_a_rule_for_a_gradient_stays():
    with jax.enable_x64(True):
        x = jnp.array([0.1, 0.2, 0.3, 0.4])
        program, found = of(lambda x: (x * straight(x)).sum(), x)
        (site,) = [site for site in found if site.mistake.what == "constant 0.5 moved by 0.1 %"]
        planted = Planted(program, [site])
        gradient = jax.jit(jax.grad(lambda x: planted(0, np.zeros(1), [x])[0][0]))(x)
        assert np.allclose(gradient, 0.5005 * jnp.round(2 * x) + x, rtol=1e-12)


@pytest.mark.parametrize("function", [jax.nn.softmax, jax.nn.log_softmax, jax.nn.logsumexp])
def test_the_largest_logit_is_left_alone(function):
    """Whatever is done to it, what a softmax makes of the logits stays the same."""
    with jax.enable_x64(True):
        x = jnp.asarray(np.random.default_rng(0).normal(size=(1, 7)))
        program, planted = of(lambda x: (function(x) * x).sum(), x)
        chosen = [site for site in planted if site.mistake.forward and not site.mistake.clips]
        run = jax.jit(lambda which: Planted(program, chosen)(which, np.zeros(len(chosen)), [x])[0][0])
        assert len(chosen) > 8
        assert [site for number, site in enumerate(chosen) if abs(run(number) / run(NONE) - 1) < 1e-13] == []


def test_what_changes_nothing_at_any_weights_is_not_planted():
    x = jnp.arange(6.0).reshape(2, 3)
    # The sign of what is squared; a size that is compared with a size.
    assert not kinds(of(lambda x: jnp.square(x - 1.5).sum(), x)[1], "difference swapped")
    assert kinds(of(lambda x: (x - 1.5).sum(), x)[1], "difference swapped")
    found = of(lambda x: jnp.var(x), x)[1]
    assert not [site for site in found if site.mistake.what == "constant 0 moved by 0.1 %"]
    # A gradient that ends at a comparison, or that was cut off already.
    assert not kinds(of(lambda x: jnp.where(jnp.sin(x) > 0, 1.0, 2.0).sum(), x)[1], "gradient stopped")
    assert not kinds(of(lambda x: jax.lax.stop_gradient(jnp.sin(x)).sum(), x)[1], "gradient stopped")
    # What nobody uses.
    assert not [
        site for site in of(lambda x: (jnp.exp(x), x.sum())[1], x)[1] if site.mistake.kind == "clip" and site.path
    ]


@pytest.mark.parametrize(("filling", "found"), [(2.0, (0.0, 2.0)), (-1.0, (-1.0, 1.0)), (None, (0.0, 1.0))])
def test_a_gather_may_find_the_number_that_stands_for_an_index_out_of_range(filling, found):
    """By default that is NaN, which no limit cuts off."""
    dimensions = jax.lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,))
    program = jax.make_jaxpr(lambda x, at: jax.lax.gather(x, at, dimensions, (1,), mode="fill", fill_value=filling))(
        jnp.ones(3), jnp.array([[0], [9]])
    )
    (eqn,) = [eqn for eqn in program.eqns if eqn.primitive.name == "gather"]
    assert results(eqn, [Known((0.0, 1.0)), Known()], subtracts_largest=False)[0].range == found


INFINITE = float("inf")


@pytest.mark.parametrize(
    ("function", "window"),
    [
        (lambda x: jax.nn.relu(-x).sum(), (0.0, INFINITE)),
        (lambda x: jax.nn.relu6(-x).sum(), (0.0, 6.0)),
        (lambda x: jnp.exp(x).sum(), (0.0, INFINITE)),
        (lambda x: jnp.exp(x - x.max()).sum(), (0.0, 1.0)),
        (lambda x: jnp.log(jax.nn.sigmoid(x)).sum(), (-INFINITE, 0.0)),
        (lambda x: jnp.sin(-x).sum(), (-INFINITE, INFINITE)),
        # It is used a second time.
        (lambda x: (jax.nn.relu(y := -x) * y).sum(), (-INFINITE, INFINITE)),
    ],
    ids=["before ReLU", "before ReLU6", "after exp", "softmax", "below a sigmoid", "anywhere", "beside ReLU"],
)
def test_where_a_clip_changes_something(function, window):
    assert {site.range for site in kinds(of(function, jnp.ones((2, 3)))[1], "clip") if site.path} == {window}


def test_power_goes_through_json():
    answer = Power(2, 1, ("clip at -2 (mixer.py:2)",), 9)
    assert Power.from_json(json.loads(json.dumps(dataclasses.asdict(answer)))) == answer


def test_a_kernel_s_taps_that_read_padding_alone_are_left_alone():
    def shifted(x):
        padded = jnp.pad(x, ((0, 0), (2, 2)))
        return sum(weight * jax.lax.slice(padded, (0, i), (2, i + 1)) for i, weight in enumerate((0.1, 0.2, 0.3))).sum()

    found = of(shifted, jnp.ones((2, 1)))[1]
    # One tap of the three reads the image: nothing is added to it, and it is added to nothing.
    assert len(kinds(found, "term dropped")) == 1
