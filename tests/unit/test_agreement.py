"""Whether two lanes computed the same, by what their records hold: no right twin refuted, no wrong one let through."""

import functools
import math

import numpy as np
import pytest

from fwbench.compare.agreement import KINKS, MOVEMENTS, UNITS, Agreement, agreement
from fwbench.meters.generation import margins
from fwbench.meters.sketching import _all_folded, sketches_of
from fwbench.models import CATALOG
from fwbench.record.sketch import STEPS, UNIT
from tests.unit.recorded import measured

NAMES = [f"layer{n}.{kind}" for n in range(40) for kind in ("weight", "bias")]
SHAPES = {name: (30, 20) if name.endswith("weight") else (30,) for name in NAMES}


OUTPUT = np.random.default_rng(4).standard_normal(50)


def drawn(seed=0):
    """A training step's quantities."""
    rng = np.random.default_rng(seed)
    gradients = {name: rng.standard_normal(shape) * 10.0 ** -(n % 5) for n, (name, shape) in enumerate(SHAPES.items())}
    statistics = {f"norm{n}.running_{what}": rng.random(30) for n in range(4) for what in ("mean", "var")}
    updates = {name: -1e-3 * gradient for name, gradient in gradients.items()}
    return {"loss": np.array([2.31]), "gradients": gradients, "updates": updates, "statistics": statistics}


def rounded(result, unit, seed):
    """Each number a little off, as another order of summing makes it."""
    if isinstance(result, dict):
        return {name: rounded(array, unit, [seed, n]) for n, (name, array) in enumerate(result.items())}
    return result * (1 + unit * np.random.default_rng(seed).standard_normal(result.shape))


def lane(name, results, moved=None, precision="fp32", mode="train_step", **others):
    """A measurement with the sketches of these results, which moved so far."""
    check = {**sketches_of(_all_folded(results, lengths=True), [_all_folded(moved)] if moved else []), **others}
    return measured(name, mode=mode, precision=precision, parity={"weights": "abc", "check": check})


def step(name, results, seed, unit=UNIT["fp32"], **fields):
    """A training step whose results moved by some rounding units."""
    return lane(name, results, {what: rounded(part, 4 * unit, seed) for what, part in results.items()}, **fields)


@functools.cache
def reference(precision="fp32"):
    """A training step in one lane."""
    return step("torch", drawn(), 1, UNIT[precision], precision=precision)


def twins(change=lambda results: results, precision="fp32"):
    """What is said of a training step in two lanes, the second one rounded differently and then changed."""
    unit = UNIT[precision]
    others = change({name: rounded(part, 2 * unit, 7) for name, part in drawn().items()})
    return agreement(reference(precision), step("jax", others, 2, unit, precision=precision))


def changed(quantity, name, array):
    """One array of a quantity changed by a function of it, or by a factor."""

    def change(results):
        old = results[quantity][name]
        return {**results, quantity: {**results[quantity], name: array(old) if callable(array) else old * array}}

    return change


@pytest.mark.parametrize("precision", UNIT)
def test_right_twins_agree(precision):
    found = twins(precision=precision)
    assert found.agrees is True
    assert 0 < found.difference <= found.bound < 1e4 * UNIT[precision]
    assert found.reason == ""


def test_a_lane_agrees_with_itself():
    found = twins(lambda results: drawn())
    assert (found.agrees, found.difference) == (True, 0.0)


GRADIENTS = ("layer0.weight", "layer17.bias", "layer39.weight")


@pytest.mark.parametrize(
    ("quantity", "name", "factor", "least", "most", "said"),
    [
        # Also of a tensor whose gradient is ten thousand times as small as another's.
        *(("gradients", name, 1.003, 5e-4, 2e-2, f"gradients of {name} differ by ") for name in GRADIENTS),
        ("gradients", "layer3.weight", 0.0, 0.1, 10.0, "gradients of layer3.weight differ by "),
        ("statistics", "norm2.running_var", 1.001, 1e-4, 1e-2, "running statistics of norm2.running_var differ by "),
        ("statistics", "norm2.running_var", 1.5, 0.1, 1.0, "running statistics of norm2.running_var differ by "),
        ("loss", "", 1.001, 1e-4, 1e-2, "losses differ by "),
    ],
)
def test_one_number_or_array_among_many_that_differs_is_found_and_named(quantity, name, factor, least, most, said):
    if name:
        found = twins(changed(quantity, name, factor))
    else:
        found = twins(lambda results: {**results, quantity: results[quantity] * factor})
    assert (found.agrees, found.quantity, found.name) == (False, quantity, name)
    assert least < found.difference < most
    assert str(found) == f"{said}{found.difference:.1e} (bound {found.bound:.0e})"


def scaled(factor, precision, moved):
    """What is said of updates of which one lane's are by a factor longer; in either they move by this share."""

    def one(name, size):
        return lane(name, {"updates": {"w": OUTPUT * size}}, {"updates": {"w": OUTPUT * size * (1 + moved)}}, precision)

    return agreement(one("torch", 1.0), one("jax", factor))


@pytest.mark.parametrize(
    ("factor", "precision", "moved", "agrees"),
    [
        # A hundredth too long, though its loss and its gradients are right: the optimizer is wrong.
        (1.01, "fp32", 1e-7, False),
        (1.01, "tf32", 1e-7, False),
        # As much too long as Adam's corrections are rounded: Optax's are float32, and a CNN's were 3e-5 too long.
        (1 + 3e-5, "fp32", 1e-7, True),
        # What moves far, and what is in bf16, says nothing.
        (-1.0, "fp32", 0.2, None),
        (-1.0, "bf16", 1e-7, None),
        (math.nan, "bf16", 1e-7, False),
    ],
)
def test_updates_are_compared_by_their_length(factor, precision, moved, agrees):
    found = scaled(factor, precision, moved)
    assert found.agrees is agrees
    if agrees is False:
        assert (found.quantity, found.name) == ("updates", "w")
        assert str(found).startswith("updates of w differ by 1.") or math.isnan(factor)


def inference(change=lambda array: array, moved=True, unit=UNIT["fp32"], **fields):
    output = np.random.default_rng(3).standard_normal((8, 1000))
    lanes = []
    for name, array in (("torch", output), ("jax", change(rounded(output, unit, 5)))):
        shifted = {"output": rounded(array, 3 * unit, 11)} if moved else None
        lanes.append(lane(name, {"output": array}, shifted, mode="inference", **fields))
    return agreement(*lanes)


def test_an_output_that_differs_is_found():
    assert inference().agrees is True
    found = inference(lambda array: array + 1e-3 * (array > 1))
    assert (found.agrees, found.quantity, found.name) == (False, "output", "")
    assert str(found) == f"outputs differ by {found.difference:.1e} (bound {found.bound:.0e})"
    assert str(inference()).startswith("outputs agree within ")
    # One number of it is enough.
    assert inference(lambda array: array + 0.5 * (array == array[3, 500])).agrees is False


def next_tokens(*outputs):
    """The agreement of lanes whose outputs are logits over the decoder's tokens."""
    lanes = [
        lane(name, {"output": array}, mode="decode", margins=margins(CATALOG["decoder"], array))
        for name, array in zip(("torch", "jax"), outputs, strict=True)
    ]
    return agreement(*lanes)


LOGITS = np.random.default_rng(4).standard_normal((8, 8192))


@pytest.mark.parametrize(("unit", "least", "most"), [(1e-7, 8, 8), (1e-6, 7, 8), (1e-4, 1, 7), (1e-2, 0, 0)])
def test_tokens_that_count_as_the_same_are(unit, least, most):
    for seed in range(20):
        other = rounded(LOGITS, unit, seed)
        same, every = next_tokens(LOGITS, other).tokens
        assert every == 8
        assert least <= same <= min(most, sum(LOGITS.argmax(1) == other.argmax(1)))


def test_a_token_that_differs_is_a_difference_if_its_margin_is_above_one_and_a_half_bounds():
    found = []
    for sequence, (second, best) in enumerate(LOGITS.argsort(1)[:, -2:]):
        other = LOGITS.copy()
        # The nearest logits of which another token is the best.
        other[sequence, best] = other[sequence, second] = other[sequence, [second, best]].mean()
        other[sequence, second] += 1e-9
        compared = next_tokens(LOGITS, other)
        assert compared.tokens[0] < 8
        margin = margins(CATALOG["decoder"], LOGITS)[sequence]
        found.append((margin > 1.5 * compared.bound, compared.agrees))
    assert sorted(found) == [(False, True)] + 7 * [(True, False)]


def output(name, size=1.0, moved=None, **fields):
    """A lane whose output is by a factor longer, and moved to another such one; None: it cannot be moved."""
    other = None if moved is None else {"output": OUTPUT * moved}
    return lane(name, {"output": OUTPUT * size}, other, **{"mode": "inference", **fields})


def test_what_is_small_beside_the_programs_own_movement_is_no_difference():
    """As in a network that multiplies rounding a thousandfold."""
    assert inference(lambda array: array * (1 + 2e-4)).agrees is False
    found = agreement(output("torch", moved=1 + 1e-4), output("jax", moved=1 + 1e-4))
    assert found.agrees is True
    # The weights moved by many units, and a bound is in movements of one.
    assert found.bound == pytest.approx(MOVEMENTS * 1e-4 / STEPS["fp32"], rel=0.02)


def gradients(difference, moved, precision):
    """What is said of gradients that are so far apart, and that moved so far in either lane."""

    def one(name, size, share):
        own, other = ({"gradients": {"w": OUTPUT * by}} for by in (size, size * (1 + share)))
        return lane(name, own, other, precision)

    return agreement(one("torch", 1.0, moved[0]), one("jax", 1 + difference, moved[1]))


@pytest.mark.parametrize(
    ("difference", "moved", "precision", "agrees"),
    [
        # Rounding turns a unit of a ReLU on in one lane; a right pair of CNNs was 5e-3 apart.
        (5e-3, (1e-2, 1e-2), "fp32", True),
        (5e-3, (1e-5, 1e-5), "fp32", False),
        # A gradient that vanishes may be rounding in one lane alone.
        (1.0, (1e-6, 2.0), "fp32", None),
        # Frameworks sum in bf16 in different formats: the bias of a right CNN was a third of its length apart.
        (0.34, (0.0, 0.0), "bf16", None),
        (-1.0, (0.0, 0.0), "bf16", False),
    ],
)
def test_gradients_may_jump_as_far_as_the_kinks_that_the_movement_passes(difference, moved, precision, agrees):
    found = gradients(difference, moved, precision)
    assert found.agrees is agrees
    assert not agrees or found.bound == pytest.approx(KINKS * moved[0], rel=0.02)


def test_the_bound_is_a_few_units_where_nothing_moves():
    output = {"output": np.ones(4)}
    still = (lane(name, output, output, mode="inference", follows=True) for name in ("torch", "jax"))
    assert agreement(*still).bound == UNITS * UNIT["fp32"]


def test_one_program_that_cannot_be_moved_is_judged_by_the_others_movement():
    own = output("torch", moved=1 + 64e-5)
    unmoved = [output("numpy", 1 + share) for share in (0.0, 1e-5, 3e-4)]
    assert [agreement(own, other).agrees for other in unmoved] == [True, True, False]
    # Nor does the order of the two matter.
    assert agreement(unmoved[2], own).agrees is False
    # Two of them: by rounding units alone.
    assert agreement(unmoved[0], unmoved[2]).bound == UNITS * UNIT["fp32"]


def test_a_wrong_program_that_moves_far_does_not_hide_behind_that():
    """The geometric mean of both movements, not the larger one."""
    assert agreement(output("torch", moved=1 + 1e-6), output("jax", 1.01, moved=1.02)).agrees is False


def test_what_moves_too_far_is_not_compared_closely_and_still_refuted_by_more():
    def wild(name, size):
        return output(name, size, 1.2 * size, precision="bf16")

    found = agreement(wild("torch", 1.0), wild("jax", 1.001))
    assert found.agrees is None
    assert str(found) == "what they computed is zero everywhere, or moves too far to be compared"
    assert agreement(wild("torch", 1.0), wild("jax", math.nan)).agrees is False


def test_gradients_that_are_noise_in_each_lane_are_no_difference():
    """As ResNet-50's first ones are in bf16: any weights' rounding draws others."""
    own = drawn()

    def noisy(name, seed):
        rng = np.random.default_rng(seed)
        one, other = (
            {**own, "gradients": {key: rng.standard_normal(array.shape) for key, array in own["gradients"].items()}}
            for _ in range(2)
        )
        return lane(name, one, other, precision="bf16")

    found = [agreement(noisy("torch", 2 * seed), noisy("jax", 2 * seed + 1)).agrees for seed in range(20)]
    assert False not in found


def test_zero_everywhere_says_nothing():
    found = agreement(*(output(name, 0.0, 0.0) for name in ("torch", "jax")))
    assert found.agrees is None
    assert "zero everywhere" in str(found)


def test_a_tensor_without_a_gradient_says_nothing_and_hides_nothing():
    """A bias before batch normalisation has none, at these weights and at others."""
    none = changed("gradients", "layer5.bias", np.zeros_like)
    results = none(drawn())
    both = [step(name, results, seed) for seed, name in enumerate(("torch", "jax"))]
    assert agreement(*both).agrees is True
    # In one lane alone it is the largest difference there is.
    found = agreement(both[0], step("jax", drawn(), 3))
    assert (found.agrees, found.name) == (False, "layer5.bias")


def test_what_is_zero_and_moves_away_from_it_is_passed_over():
    """Where a unit dies exactly at these weights."""
    results = changed("gradients", "layer5.bias", np.zeros_like)(drawn())
    moved = changed("gradients", "layer5.bias", np.ones_like)(results)
    assert agreement(*(lane(name, results, moved) for name in ("torch", "jax"))).agrees is True


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("quantity", ["gradients", "updates", "statistics", "loss", "output"])
def test_no_number_agrees_with_nothing(value, quantity):
    if quantity == "output":
        found = inference(lambda array: array * value)
    elif quantity == "loss":
        found = twins(lambda results: {**results, "loss": np.array([value])})
    else:
        name = "norm0.running_var" if quantity == "statistics" else "layer2.weight"
        found = twins(changed(quantity, name, value))
        assert name in found.name
    assert (found.agrees, found.quantity) == (False, quantity)
    assert "not finite (NaN or infinity) in" in str(found)


def test_the_sentence_is_of_what_comes_nearest_to_its_bound():
    worst, other = changed("gradients", "layer9.weight", 1.1), changed("statistics", "norm1.running_mean", 1.001)
    found = twins(lambda results: other(worst(results)))
    assert (found.quantity, found.name) == ("gradients", "layer9.weight")


DRAWS = [2.30, 2.34, 2.28, 2.31, 2.33, 2.29, 2.32, 2.27]


def random(name, draws, results=None, seed=1):
    """A step with dropout: gradients behind it are others in every draw."""
    results = results or drawn()
    moved = changed("gradients", "layer7.weight", 1.02)(
        {what: rounded(part, UNIT["fp32"], seed) for what, part in results.items()}
    )
    return lane(name, {**results, "loss": np.array([draws[0]])}, moved, draws=draws)


def test_random_layers_on_one_side_alone_are_a_difference():
    # No draw has by chance the loss of the step without random layers.
    dropped = random("torch", [draw + 0.005 for draw in DRAWS])
    for pair in ((dropped, step("jax", drawn(), 2)), (step("jax", drawn(), 2), dropped)):
        found = agreement(*pair)
        assert found.agrees is False
        assert str(found) == "the training step has random layers in torch alone"


@pytest.mark.parametrize("sign", [1, -1])
def test_random_layers_that_seldom_act_are_no_difference(sign):
    """A dropped path of a small network: most draws leave it alone, and by chance all that a lane made to see."""
    draws = [sign * loss for loss in (2.34, 2.30, 2.30, 2.30, 2.28, 2.30, 2.30, 2.30)]
    still = {**drawn(), "loss": np.array([sign * 2.30])}
    pair = random("torch", draws), step("jax", still, 2)
    for found in (agreement(*pair), agreement(*pair[::-1])):
        assert found.agrees is None
        assert str(found) == "the training step has random layers in torch, and jax may have some that seldom act"
    still["loss"] = np.array([sign * 2.3001])
    assert agreement(random("torch", draws), step("jax", still, 2)).agrees is False


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_a_draw_near_the_others_loss_is_no_excuse_for_missing_random_layers(precision):
    results = drawn()
    check = lane("torch", results, precision=precision).parity["check"]
    for draws in (DRAWS, [2.30, 2.30, *DRAWS]):
        dropped = lane("torch", results, precision=precision, draws=draws)
        assert agreement(dropped, lane("jax", results, precision=precision)).agrees is False
    # Records of before have no such loss.
    before = {name: sketch for name, sketch in check.items() if name != "loss"}
    checks = {"torch": {**before, "draws": DRAWS}, "jax": before}
    pair = (measured(name, mode="train_step", parity={"check": check}) for name, check in checks.items())
    assert agreement(*pair).agrees is False


def test_random_layers_on_both_sides_are_compared_by_their_means_and_by_what_is_not_random():
    other = changed("gradients", "layer7.weight", 0.3)(drawn())
    found = agreement(random("torch", DRAWS), random("jax", [draw + 0.01 for draw in DRAWS[::-1]], other, 2))
    assert found.agrees is True
    found = agreement(random("torch", DRAWS), random("jax", [draw + 0.3 for draw in DRAWS], other, 2))
    assert (found.agrees, found.quantity) == (False, "draws")
    assert str(found).startswith("mean losses over several random draws differ by ")
    # Draws that tell nothing of their mean are no evidence.
    found = agreement(*(lane(name, {"loss": np.array([1.0])}, draws=[1.0, -1.0] * 4) for name in ("torch", "jax")))
    assert found.agrees is None
    # A tensor that the random layer does not reach is held as closely as ever.
    wrong = changed("gradients", "layer8.bias", 1.003)(drawn())
    found = agreement(random("torch", DRAWS), random("jax", DRAWS, wrong, 2))
    assert (found.agrees, found.name) == (False, "layer8.bias")


def test_what_a_random_layer_reaches_in_one_lane_s_draws_alone_is_not_compared():
    """By chance the other lane's draws left the layer alone; EfficientNet-B0's statistics were 3 % apart."""
    other = changed("statistics", "norm2.running_var", 1.03)(drawn())
    moved = changed("statistics", "norm2.running_var", 1.05)(other)
    assert agreement(random("torch", DRAWS), lane("jax", other, moved, draws=DRAWS)).agrees is not False


def test_what_draws_move_a_little_may_differ_by_as_much():
    """As a running mean behind dropout, of which a step keeps a tenth: it is too near to be taken for random."""
    shift = changed("statistics", "norm2.running_mean", 1 + 5e-4)
    apart = changed("statistics", "norm2.running_mean", 1 - 5e-4)
    lanes = [
        lane(name, {**results, "loss": np.array([DRAWS[0]])}, shift(results), draws=DRAWS)
        for name, results in (("torch", drawn()), ("jax", apart(drawn())))
    ]
    assert agreement(*lanes).agrees is True
    assert agreement(random("torch", DRAWS), random("jax", DRAWS, apart(drawn()))).agrees is False


def test_an_infinite_loss_among_the_draws_is_a_difference():
    found = agreement(random("torch", DRAWS), random("jax", [-math.inf, *DRAWS[1:]]))
    assert (found.agrees, found.quantity) == (False, "draws")


def test_losses_that_are_zero_in_every_draw_agree():
    assert agreement(random("torch", [0.0] * 8), random("jax", [0.0] * 8)).agrees is True


@pytest.mark.parametrize("side", [0, 1])
def test_a_reason_in_the_place_of_sketches_is_told_with_its_lane(side):
    pair = [reference(), step("jax", drawn(), 2)]
    name = ("torch", "jax")[side]
    pair[side] = measured(name, mode="train_step", parity={"check": {"reason": "it cannot start again"}})
    found = agreement(*pair)
    assert (found.agrees, str(found)) == (None, f"{name}: it cannot start again")
    pair[side] = measured(name, mode="train_step", parity={})
    assert str(agreement(*pair)) == f"{name}: the record does not say what was computed"


def test_other_names_and_damage_are_reasons():
    other = drawn()
    other["gradients"] = {f"module.{name}": array for name, array in other["gradients"].items()}
    found = agreement(reference(), step("jax", other, 2))
    assert (found.agrees, str(found)) == (None, "gradients have other names or shapes")
    damaged = step("jax", drawn(), 2)
    damaged.parity["check"]["loss"]["slots"] = "AAAA"
    found = agreement(reference(), damaged)
    assert found.agrees is None
    assert found.reason


def test_a_quantity_that_one_lane_does_not_tell_is_left_out():
    without = drawn()
    del without["gradients"]
    assert agreement(reference(), step("numpy", without, 2)).agrees is True
    wrong = changed("statistics", "norm1.running_mean", 1.01)(without)
    assert agreement(reference(), step("numpy", wrong, 2)).agrees is False


def test_where_nothing_was_compared_nothing_is_said():
    """As of a plain test, which its own assertions check."""
    assert str(Agreement(None)) == ""


@pytest.mark.parametrize("first", [0, 1])
def test_arrays_that_one_step_of_the_users_own_has_alone_are_named_whichever_lane_it_is(first):
    """Of the two lanes one alone tells metrics."""
    weights = {"weights.w": np.random.default_rng(4).standard_normal(50)}
    average = {"ema.w": np.random.default_rng(5).standard_normal(50)}
    pair = []
    for name, results in (
        ("torch", {"metrics": {"loss, step 1": np.array([2.3])}, "updates": {**weights, **average}}),
        ("jax", {"updates": weights}),
    ):
        pair.append(lane(name, results, {what: rounded(part, 1e-7, 3) for what, part in results.items()}))
    found = agreement(pair[first], pair[1 - first])
    assert (found.agrees, found.quantity, found.name) == (True, "updates", "weights.w")
    assert found.beside == "ema (torch)"


def test_an_output_that_stands_still_beside_a_check_without_one_says_nothing():
    output = {"output": np.random.default_rng(3).standard_normal((8, 10))}
    still = lane("torch", output, output, mode="inference")
    for pair in ((still, lane("jax", {}, mode="inference", follows=True)), (still, still)):
        assert agreement(*pair).agrees is not False
