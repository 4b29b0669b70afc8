"""Where two networks part, by the calls of their modules: which pair it is, what is said of it, and which cause."""

import itertools

import numpy as np
import pytest
from scipy import special

from fwbench.ext.proofs.where.arrays import apart
from fwbench.ext.proofs.where.calls import Call, Module, Recorder, recording, shown
from fwbench.ext.proofs.where.causes import Part, cause
from fwbench.ext.proofs.where.computations import FUNCTIONS
from fwbench.ext.proofs.where.place import Side, sentence

rng = np.random.default_rng(0)
X = rng.normal(size=(2, 5, 4))
WRONG = X + 1e-3 * rng.normal(size=X.shape)


class Calls:
    """Makes the calls of a network, in the order of their ends."""

    def __init__(self, framework, file):
        self.framework, self.file, self.calls = framework, file, []

    def __call__(
        self, path, entered=X, left=X, *, names=("weight",), kind="Linear", within=0, changes=True, **settings
    ):
        weights = frozenset(f"{path}.{name}" for name in names)
        site = (self.file, 10 + len(self.calls))
        inputs, output = ((entered,), left) if names else ((), None)
        begun = len(self.calls) - within
        self.calls.append(Call(Module(path, weights), kind, settings, site, begun, inputs, output, changes))
        return self

    def side(self):
        return Side(self.framework, self.calls)


@pytest.fixture
def torch():
    return Calls("torch", "mine/a.py")


@pytest.fixture
def jax():
    return Calls("jax", "mine/b.py")


def said(torch, jax):
    return sentence(torch.side(), jax.side(), 1e-10)


def test_a_module_with_equal_inputs_and_another_output_is_the_place(torch, jax):
    torch("a")("norm", kind="LayerNorm", epsilon=1e-5)("b", WRONG, WRONG)
    jax("a")("norm", X, WRONG, kind="LayerNorm", epsilon=1e-6)("b", X, X)
    assert said(torch, jax) == (
        "First apart at `norm` (torch: LayerNorm(epsilon=1e-05), a.py, line 11; jax: LayerNorm(epsilon=1e-06), b.py, "
        f"line 11): its output differs by {apart(WRONG, X):.1e}, and its input by 0. "
        "Their epsilon differs: 1e-05 in torch and 1e-06 in jax"
    )


def test_a_module_with_other_inputs_is_behind_the_place_which_names_what_does_something_there(torch, jax):
    torch("a")("act", names=(), kind="GELU", approximate="none")("drop", names=(), kind="Dropout", changes=False)("b")
    jax("a")("b", WRONG, WRONG)
    assert said(torch, jax) == (
        "First apart between `a` and `b` (torch: `act`, GELU(approximate=none), a.py, line 11; jax: b.py, lines 10-11)"
        f": what enters `b` differs by {apart(WRONG, X):.1e}, and what leaves `a` by 0"
    )


def test_the_place_may_be_before_the_first_module(torch, jax):
    torch("a")("b")
    jax("a", WRONG, WRONG)("b", WRONG, WRONG)
    assert said(torch, jax).startswith(
        "First apart before `a` (torch: before a.py, line 10; jax: before b.py, line 10)"
    )


def test_the_place_may_be_after_all_modules(torch, jax):
    torch("a")("", names=("a.weight",), within=1)
    jax("a")("", X, WRONG, names=("a.weight",), within=1)
    # Of the network itself, whose weights bear no prefix.
    network = Module("", frozenset({"a.weight", "b.weight"}))
    for calls in (torch, jax):
        calls.calls[1] = Call(network, "Net", {}, None, 0, (X,), calls.calls[1].output)
    assert said(torch, jax).startswith(
        "First apart after `a`, the last module with weights (torch: after a.py, line 10; jax: after b.py, line 10): "
        "what leaves the network differs by"
    )


def block(calls, left, *, inner=X, path="block"):
    """A module of two that are equal."""
    calls(f"{path}.a")(f"{path}.b", X, inner)(path, X, left, names=("a.weight", "b.weight"), within=2, kind="Block")
    return calls


def test_what_differs_inside_a_module_with_an_equal_output_is_no_place(torch, jax):
    block(torch, X)("head")
    block(jax, X, inner=WRONG)("head", X, WRONG)
    assert said(torch, jax).startswith("First apart at `head` ")


def test_a_module_may_leave_its_end_to_its_caller(torch, jax):
    block(torch, WRONG)("next")("head")
    block(jax, X)("next")("head", X, WRONG)
    assert said(torch, jax).startswith("First apart at `head` ")


def test_a_module_whose_parts_are_equal_is_a_place_after_them(torch, jax):
    block(torch, X)("head", X, X)
    block(jax, X / 3)("head", X / 3, X)
    assert said(torch, jax).startswith(
        "First apart after `block.a`, `block.b`, the last module with weights in `block` ("
    )
    assert said(torch, jax).endswith("There all values in jax are 0.333333 times those in torch")


def test_modules_are_paired_by_their_weights_and_how_often_they_were_called(torch, jax):
    y = X * 2 + 1
    torch("a")("wrapper", y, WRONG)("a", y, y)("b", y, y)
    torch.calls[1] = Call(Module("wrapper", frozenset({"a.weight"})), "Sequential", {}, None, 0, (y,), WRONG)
    jax("a")("a", y, WRONG)("b", WRONG, WRONG)
    assert said(torch, jax).startswith(
        "First apart at `a` (torch: Linear(), a.py, line 12; jax: Linear(), b.py, line 11)"
    )


def test_a_module_of_other_sizes_can_be_behind_the_place(torch, jax):
    torch("a")("b")("c")
    jax("a")("b", WRONG, X[1:])("c", WRONG, WRONG)
    assert said(torch, jax).startswith("First apart between `a` and `b` ")


def test_a_layer_with_an_activation_of_its_own_is_not_compared_to_one_without(torch, jax):
    torch("a")("b", np.maximum(X, 0))
    jax("a", X, np.tanh(X), activation="tanh")("b", np.tanh(X), WRONG)
    assert said(torch, jax).startswith("First apart before `b` ")


def test_three_projections_of_one_array_are_before_the_place_together(torch, jax):
    y, z = X + 1, X + 2
    torch("in")("q", y, y)("k", y, z)("v", y, X)("out", X)
    jax("in")("q", y, y)("k", y, z)("v", y, X)("out", WRONG, WRONG)
    assert said(torch, jax).startswith(
        "First apart between `q`, `k`, `v` and `out` (torch: a.py, lines 11-14; jax: b.py, lines 11-14): "
    )


def test_of_a_network_without_modules_that_is_said(torch, jax):
    torch("a")("b")
    jax("", names=(), kind="Function")
    assert said(torch, jax) == "Where they part cannot be said, as the network in jax has no modules with weights"


@pytest.mark.parametrize("mine", [[("a", X, X)], [("a", X, X), ("b", X, X)], [("c", X, WRONG), ("d", X, X)]])
def test_where_nothing_can_be_told_nothing_is_said(torch, jax, mine):
    """One module is the network itself; equal ones have no place; and others have no counterpart."""
    torch("a", X, WRONG if len(mine) == 1 else X)("b", X, X)
    for path, entered, left in mine:
        jax(path, entered, left)
    assert said(torch, jax) == ""


IMAGES = rng.normal(size=(2, 3, 5, 4))


@pytest.mark.parametrize(
    "array",
    [
        IMAGES,
        np.moveaxis(IMAGES, 1, -1),
        np.moveaxis(IMAGES, 1, -1).reshape(2, 20, 3),
        IMAGES.reshape(2, 3, 20),
        IMAGES.transpose(1, 0, 2, 3),
    ],
    ids=["NCHW", "NHWC", "tokens", "channels first", "batch second"],
)
def test_arrays_are_equal_in_every_layout_and_differ_in_none(array):
    assert apart(array, IMAGES) == 0
    wrong = array.copy()
    wrong.flat[7] += 1e-6
    assert 1e-8 < apart(wrong, IMAGES) < 1e-5
    assert apart(array[1:], IMAGES) is None


def test_numbers_that_are_not_finite_are_equal_to_themselves_alone():
    array = np.array([1.0, -np.inf, np.nan])
    assert apart(array, array) == 0
    assert not apart(np.array([1.0, 1.0, np.nan]), array) <= 1
    assert apart(np.zeros(3), np.zeros(3)) == 0
    assert apart(np.ones(3), np.zeros(3)) == 1


def why(one, other, *before, calls=(), mine=None, theirs=None):
    agreed = {f"`{name}`": array for name, array in zip("abc", before, strict=False)}
    return cause(Part("torch", agreed, one, mine or {}), Part("jax", agreed, other, theirs or {}), calls)


WIDE = np.linspace(-30, 30, 1001)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "ReLU"])
def test_two_functions_of_the_same_array_are_named(name):
    one, other = FUNCTIONS[name](WIDE), FUNCTIONS["ReLU"](WIDE)
    assert why(one, other, WIDE) == f"There torch computes {name}, and jax ReLU"


def test_no_two_functions_are_taken_for_each_other():
    for one, other in itertools.permutations(FUNCTIONS.values(), 2):
        assert why(one(WIDE), other(WIDE), WIDE)


def test_values_beyond_all_functions_are_no_fault():
    assert why(WIDE * 1e200, WIDE * 1e300 + 1, WIDE * 1e200) == why(np.full(3, np.inf), np.full(3, np.nan)) == ""


def test_a_constant_in_float32_is_named():
    rounded = WIDE * (1 + special.erf(WIDE / np.float64(np.sqrt(np.float32(2))))) / 2
    assert why(FUNCTIONS["the exact GELU"](WIDE), rounded, WIDE) == (
        "There torch computes the exact GELU, and jax the exact GELU to float32's precision alone"
    )


def test_a_term_a_factor_and_an_order_are_named():
    y = rng.normal(size=X.shape)
    calls = [Call(Module("norm"), "LayerNorm", {}, None, 0, (y,), WRONG)]
    assert why(X + y, X, calls=calls) == "There torch alone adds what enters `norm`"
    assert why(X, X + WRONG, calls=calls) == "There jax alone adds what leaves `norm`"
    assert why(X, X * 8**0.5) == "There all values in jax are 2.82843 times those in torch"
    assert why(X, X[::-1]) == "There both have the same values in another order"
    assert why(X, X + y) == why(X, None) == why(X, X[1:]) == ""


def test_a_gate_and_its_function_are_named():
    a, b = WIDE[:-1].reshape(2, -1), np.cos(WIDE[1:]).reshape(2, -1)
    silu, relu = FUNCTIONS["SiLU"], FUNCTIONS["ReLU"]
    assert why(silu(a) * b, relu(a) * b, a, b) == "There torch computes SiLU, and jax ReLU"
    assert why(silu(a) * b, silu(b) * a, a, b) == "There torch gates by `a`, and jax by `b`"
    halves = "the first half of `a`, and jax by the second half of `a`"
    assert why(silu(a) * b, silu(b) * a, np.concatenate([a, b], -1)) == f"There torch gates by {halves}"
    assert why(silu(a) * b, silu(a) * b + X[0, 0, 0], a, b) == ""


def test_a_clip_is_named_only_where_more_than_one_number_is_beyond_it():
    assert why(X, np.clip(X, -0.5, 1)) == "There jax alone clips below -0.5 and above 1"
    assert why(np.minimum(X, 0.25), X) == "There torch alone clips above 0.25"
    second = np.sort(X, axis=None)[-2]
    assert why(X, np.minimum(X, second)) == ""
    assert why(X, np.zeros(X.shape)) == why(X, np.clip(X, -0.5, 1) + 1e-6) == ""


def test_where_both_clip_neither_does_so_alone():
    assert why(X.clip(None, 0.25), X.clip(None, 1)) == "There torch clips above 0.25, and jax above 1"
    assert why(X.clip(-1), X.clip(-0.5, 1)) == "There jax clips below -0.5 and above 1, and torch below -1"
    assert why(X.clip(-1), X.clip(-1, 0.5)) == "There jax alone clips above 0.5"


def test_a_factor_is_named_with_the_digits_that_differ_and_of_several_numbers():
    assert why(X, X * (1 + 3e-9)) == "There all values in jax are 1.000000003 times those in torch"
    assert why(X[0, 0, :1], X[0, 0, :1] * 2) == ""


def test_the_network_as_a_whole_is_no_term_of_it():
    y = rng.normal(size=X.shape)
    assert why(X, X + y, calls=[Call(Module(""), "Net", {}, None, 0, (X,), y)]) == ""


def test_a_table_in_float32_is_named():
    table = rng.normal(size=X.shape[1:])
    rounded = table.astype(np.float32).astype(np.float64)
    assert why(X + table, X + rounded, X) == "There both add a table, and jax alone rounds it to float32"
    assert why(X + rounded, X + table, X) == "There both add a table, and torch alone rounds it to float32"
    assert why(X + table, X + table * (1 + 1e-8), X) == ""
    assert why(X + WRONG, X + WRONG.astype(np.float32), X) == ""


def layer_norm(x, epsilon=1e-5, ddof=0, outside=0.0):
    """With a scale and a bias of each channel."""
    normed = (x - x.mean(-1, keepdims=True)) / (np.sqrt(x.var(-1, ddof=ddof, keepdims=True) + epsilon) + outside)
    return normed * [0.5, 2, -1, 1] + [1, 2, 3, 4]


ADDED = "There torch adds 1e-05 to the variance, and jax"


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (layer_norm(X, 1e-3), f"{ADDED} 0.001 to the variance"),
        (layer_norm(X, 0), f"{ADDED} at most 1e-12 to the variance"),
        (layer_norm(X, ddof=1), "There torch estimates the variance with n, and jax the variance with n - 1"),
        (layer_norm(X, 0, outside=1e-6), f"{ADDED} 1e-06 to the standard deviation"),
        (layer_norm(X, 2e-5), ""),
        (layer_norm(X, 1e-5 + 1e-11), ""),
        (layer_norm(X.astype(np.float32).astype(np.float64)), ""),
    ],
)
def test_two_normalisations_are_named(other, reason):
    assert why(layer_norm(X), other, X) == reason


def test_a_scale_of_1_more_is_named():
    normed = X / np.sqrt((X**2).mean(-1, keepdims=True) + 1e-6)
    scale = np.array([0.5, 2, -1, 1])
    reason = "adds what RMS normalisation gives without its scale, as a scale of 1 + weight does"
    assert why(normed * scale, normed * (1 + scale), X) == f"There jax alone {reason}"
    assert why(normed * (1 + scale), normed * scale, X) == f"There torch alone {reason}"
    assert why(normed * scale, normed * (2 + scale), X) == ""


HEADS, SIZE, LENGTH = 2, 8, 6
Q, K, V = rng.normal(size=(3, 2, LENGTH, HEADS * SIZE))
AHEAD = np.arange(LENGTH) - np.arange(LENGTH)[:, None]


def rotated(x, base=1e4, *, interleaved=False):
    """Pairs of coordinates turned by the position's angle; x is (batch, length, heads, size)."""
    y = x.copy()
    for pair in range(SIZE // 2):
        one, other = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + SIZE // 2)
        angle = np.arange(LENGTH)[:, None] / base ** (2 * pair / SIZE)
        y[..., one] = np.cos(angle) * x[..., one] - np.sin(angle) * x[..., other]
        y[..., other] = np.sin(angle) * x[..., one] + np.cos(angle) * x[..., other]
    return y


def attend(*, allowed=AHEAD <= 0, scale=SIZE**-0.5, rotate=lambda x: x, q=Q, k=K, v=V):
    """Attention by Einstein's sums: (batch, length, heads * size)."""
    q, k, v = (array.reshape(*array.shape[:2], -1, SIZE) for array in (q, k, v))
    logits = np.einsum("bihd,bjhd->bhij", rotate(q), rotate(k)) * scale
    weights = special.softmax(np.where(allowed, logits, -1e30), -1)
    return np.einsum("bhij,bjhd->bihd", weights, v).reshape(*q.shape[:2], -1)


PADDING = np.array([[1, 1, 1, 1, 0, 0], [1, 0, 1, 1, 1, 1]], bool)
CAUSAL = "There torch attends to no later position, and jax "
TURNED, SHOWN = "There torch rotates nothing, and jax", "There torch hides no key, and jax"
ROLES = "as queries, keys, values"


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"allowed": True}, f"{CAUSAL}to all positions"),
        ({"allowed": AHEAD < 0}, f"{CAUSAL}to earlier positions alone"),
        ({"allowed": AHEAD <= 1}, f"{CAUSAL}to the next position and all before it"),
        ({"allowed": AHEAD >= 0}, f"{CAUSAL}to no earlier position"),
        ({"allowed": AHEAD <= 2}, ""),
        ({"scale": 1.0}, "by 1 (no scale)"),
        ({"scale": 1 / SIZE}, "by 0.125 (1 over a head's size)"),
        ({"scale": SIZE**0.5}, "by 2.82843 (the root of a head's size)"),
        ({"scale": (HEADS * SIZE) ** -0.5}, "by 0.25 (1 over the root of all heads' size)"),
        ({"scale": HEADS**-0.5}, "by 0.707107 (1 over the root of heads)"),
        ({"scale": LENGTH**-0.5}, "by 0.408248 (1 over the root of positions)"),
        ({"scale": 0.3}, ""),
        ({"rotate": rotated}, f"{TURNED} the two halves to base 10000"),
        ({"rotate": lambda x: rotated(x, 5e5, interleaved=True)}, f"{TURNED} interleaved pairs to base 500000"),
        ({"rotate": lambda x: rotated(x, 12345)}, ""),
        ({"q": K, "k": Q}, f"There torch takes `a`, `b`, `c` {ROLES}, and jax `b`, `a`, `c` {ROLES}"),
        ({"allowed": (AHEAD <= 0) & PADDING[1]}, f"{SHOWN} keys [1] of sample 0, keys [1] of sample 1"),
    ],
)
def test_two_conventions_of_attention_are_named(other, reason):
    named = why(attend(), attend(**other), Q, K, V)
    if reason.startswith("by"):
        reason = f"There torch scales by 0.353553 (1 over the root of a head's size), and jax {reason}"
    assert named == reason


def test_hidden_keys_are_named_for_each_sample():
    padding = PADDING[:, None, None]
    both, one, none = (attend(allowed=mask) for mask in (padding, padding & padding[:, :, :, ::-1], True))
    hides = "keys [4, 5] of sample 0, keys [1] of sample 1"
    assert why(both, none, Q, K, V) == f"There torch hides {hides}, and jax no key"
    assert why(none, one, Q, K, V).endswith("and jax keys [0, 1, 4, 5] of sample 0, keys [1, 4] of sample 1")
    assert why(both, both + 1e-5, Q, K, V) == ""
    second = attend(allowed=np.array([[1] * 6, [1, 0, 1, 1, 1, 0]], bool)[:, None, None])
    assert why(none, second, Q, K, V) == f"{SHOWN} keys [1, 5] of sample 1"
    assert why(none, np.where(Q > 2, np.nan, none), Q, K, V) == ""


def test_attention_in_float32_is_named():
    table = np.float32(SIZE**-0.5)
    assert why(attend(), attend(scale=np.float64(table)), Q, K, V) == (
        "There torch computes attention, and jax attention to float32's precision alone"
    )


def test_a_layout_and_heads_are_named():
    joint = np.concatenate([Q, K, V], -1)
    by_heads = joint.reshape(2, LENGTH, HEADS, 3, SIZE)
    q, k, v = (by_heads[:, :, :, part].reshape(2, LENGTH, -1) for part in range(3))
    assert why(attend(), attend(q=q, k=k, v=v), joint) == (
        "There torch splits `a` into (3, heads, size), and jax `a` into (heads, 3, size)"
    )


def test_keys_shared_between_heads_are_named():
    q = rng.normal(size=(2, LENGTH, 4 * SIZE))
    k, v = rng.normal(size=(2, 2, LENGTH, 2 * SIZE))
    near, turn = (
        attend(q=q, k=widen(k), v=widen(v))
        for widen in (lambda x: x.reshape(2, LENGTH, 2, SIZE).repeat(2, 2), lambda x: np.concatenate([x, x], -1))
    )
    assert why(near, turn, q, k, v) == (
        "There torch shares keys between neighbouring heads, and jax keys between heads in turn"
    )


def test_a_cause_that_two_computations_would_show_is_not_named():
    """Of two positions the last one attends to all under three masks, and the first one to both under two."""
    short = {name: array[:, :2] for name, array in zip("qkv", (Q, K, V), strict=True)}
    causal, whole = (attend(**short, allowed=allowed) for allowed in (AHEAD[:2, :2] <= 0, True))
    assert why(causal, whole, *short.values()) == ""


@pytest.mark.parametrize(
    ("mine", "theirs", "reason"),
    [
        ({"epsilon": 1e-5}, {"epsilon": 1e-3}, "Their epsilon differs: 1e-05 in torch and 0.001 in jax"),
        ({"stride": (2, 2)}, {"stride": 1}, "Their stride differs: 2 in torch and 1 in jax"),
        ({"heads": 4}, {"heads": 2}, "Their heads differ: 4 in torch and 2 in jax"),
        (
            {"stride": (2, 2), "padding": (1, 1)},
            {"stride": 2, "padding": "same"},
            "SAME in jax pads less above and to the left at stride 2 than padding in numbers does",
        ),
        ({"stride": (2, 2), "padding": (1, 1)}, {"stride": [2, 2], "padding": [(1, 1), (1, 1)]}, ""),
        ({"stride": (1, 1), "padding": (1, 1)}, {"stride": 1, "padding": "SAME"}, ""),
        ({"epsilon": 1e-5}, {}, ""),
    ],
)
def test_settings_that_differ_are_named(mine, theirs, reason):
    assert why(X, WRONG, mine=mine, theirs=theirs) == reason


class Base:
    def __call__(self, x, *, twice=False):
        return x


class Inner(Base):
    def __call__(self, x, *, twice=False):
        return super().__call__(x) + 1


class Outer(Base):
    def __init__(self):
        self.inner, self.other = Inner(), Base()
        self.stride, self.eps, self.activation = 2, X, np.tanh

    def __call__(self, x, *, twice=False):
        x = self.inner(x)
        return {"y": (None, self.other(x * 2 if twice else x)), "t": 3}


def _modules(root):
    parts = {"": root, "inner": root.inner, "other": root.other}
    return {id(part): Module(path, frozenset({path})) for path, part in parts.items()}


def test_calls_are_recorded_with_their_nesting_and_classes_are_left_as_they_were():
    before = [vars(kind)["__call__"] for kind in (Base, Inner, Outer)]
    with recording(Base, _modules, lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else None) as calls:
        Outer()(X, twice=True)
        Base()(X)
    assert [(call.module.path, call.kind, call.begun, call.changes) for call in calls] == [
        ("inner", "Inner", 0, True),
        ("other", "Base", 1, False),
        ("", "Outer", 0, True),
    ]
    assert np.array_equal(calls[2].output, 2 * (X + 1))
    assert calls[2].settings == {"stride": 2, "activation": "tanh"}
    assert all(call.site[0] == __file__ for call in calls)
    assert [vars(kind)["__call__"] for kind in (Base, Inner, Outer)] == before


def test_an_error_in_a_network_leaves_its_classes_as_they_were():
    before = vars(Base)["__call__"]
    with pytest.raises(AttributeError), recording(Base, _modules, lambda leaf: None):
        Base()(X)
    assert vars(Base)["__call__"] is before


def test_arrays_of_floating_point_go_before_whole_numbers_and_each_counts_once():
    recorder = Recorder(lambda leaf: np.asarray(leaf, np.float64) if isinstance(leaf, np.ndarray) else None)
    tokens = np.arange(3)
    recorder.call(Module("a", frozenset("w")), Base(), lambda *x, mask: x[0], tokens, X, X, mask={"m": [WRONG]})
    recorder.call(Module("b", frozenset("w")), Base(), lambda x: X, tokens)
    assert [len(call.inputs) for call in recorder.calls] == [2, 1]
    assert np.array_equal(recorder.calls[0].inputs[1], WRONG)


def test_an_argument_may_have_any_name():
    recorder = Recorder(lambda leaf: None)
    assert recorder.call(Module("a"), Base(), lambda **named: named["run"], module=1, owner=2, run=3, self=4) == 3


def test_a_file_is_named_from_the_present_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert shown((str(tmp_path / "mine" / "net.py"), 3)) == "mine/net.py, line 3"
    assert shown((str(tmp_path / "mine" / "net.py"), 3), 5) == "mine/net.py, lines 3-5"
    assert shown(("/elsewhere/net.py", 3), 3) == "net.py, line 3"
    assert shown((np.__file__, 3)) == "numpy/__init__.py, line 3"
