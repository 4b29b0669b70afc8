"""What TensorFlow's networks are made of: forms and definitions that stand in for others, proved equal in float64."""

import numpy as np
import pytest
import torchvision  # noqa: F401 (before TensorFlow, whose LLVM its compiler's would clash with)

from fwbench.compare.programs import compare
from fwbench.ext.proofs.case import MAIN, Case
from fwbench.ext.proofs.errors import BOUNDS, measure
from fwbench.models import CATALOG
from fwbench.models.project import complete
from fwbench.record.workload import Workload
from tests.programs import built
from tests.tensorflow import needs_tensorflow

pytestmark = needs_tensorflow


@pytest.fixture(scope="module")
def tf():
    from fwbench.ext.tensorflow.imported import tf

    return tf


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def differentiated(tf, function, *arguments):
    """The value of a function of arrays, and the gradients of a sum of it that weighs every element otherwise."""
    given = [tf.constant(array) for array in arguments]
    with tf.GradientTape() as tape:
        tape.watch(given)
        value = function(*given)
        weighed = tf.reduce_sum(value * normal(*value.shape, seed=1).astype(value.dtype.as_numpy_dtype))
    return [value.numpy(), *(gradient.numpy() for gradient in tape.gradient(weighed, given))]


@pytest.mark.parametrize("part", ["output", "mean", "variance"])
@pytest.mark.parametrize("train", [False, True])
def test_batch_normalisation_by_definition_is_tensorflows_own(tf, train, part):
    from fwbench.ext.tensorflow.layers import defined_batch_norm, fused_batch_norm

    before = normal(3, seed=2).astype(np.float32), np.array([0.5, 1, 2], np.float32)
    arguments = [normal(*shape).astype(np.float32) for shape in ((4, 5, 6, 3), (3,), (3,))]

    def answer(normalise):
        def call(*given):
            found = normalise(*given, *before, 1e-3, 0.1, train)
            return found[("output", "mean", "variance").index(part)]

        # No gradient goes through running statistics.
        return (
            differentiated(tf, call, *arguments)
            if part == "output"
            else [tf.convert_to_tensor(call(*map(tf.constant, arguments))).numpy()]
        )

    for one, other in zip(answer(defined_batch_norm), answer(fused_batch_norm), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("size", [(7, 8), (6, 5)])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel", [3, 5])
def test_a_depthwise_convolution_as_shifted_products_is_tensorflows_own(tf, kernel, stride, size):
    from fwbench.ext.tensorflow import convolutions

    pad = (kernel - 1) // 2
    pads = ((pad, pad), (pad, pad))
    x, weight = normal(2, *size, 3), normal(kernel, kernel, 3, 1)

    def own(x, weight):
        return tf.nn.depthwise_conv2d(x, weight, (1, stride, stride, 1), ((0, 0), *pads, (0, 0)))

    def ours(x, weight):
        return convolutions.depthwise_products(x, weight, stride, pads)

    for one, other in zip(differentiated(tf, ours, x, weight), differentiated(tf, own, x, weight), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("stride", [1, 2])
def test_a_1x1_convolution_as_a_matrix_product_is_tensorflows_own(tf, stride):
    from fwbench.ext.tensorflow import convolutions

    arguments = normal(2, 5, 6, 3), normal(1, 1, 3, 4)

    def own(x, weight):
        return tf.nn.conv2d(x, weight, stride, "VALID")

    def ours(x, weight):
        return convolutions.pointwise_product(x, weight, stride)

    for one, other in zip(differentiated(tf, ours, *arguments), differentiated(tf, own, *arguments), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_the_forms_are_those_of_xla_on_a_cpu_alone(tf):
    used = {}
    for lane, plain in (("tensorflow", False), ("tensorflow-xla", False), ("tensorflow-xla", True)):
        program, _ = built(Workload(lane, "mobilenet_v3_small", plain=plain))
        program.trace()
        operators = {node.op for node in program.concrete.graph.as_graph_def().node}
        used[lane, plain] = (program.settings.get("convolutions"), "DepthwiseConv2dNative" in operators)
    assert used == {
        ("tensorflow", False): (None, True),
        ("tensorflow-xla", False): ("depthwise as shifted products, 1x1 as matrix products", False),
        ("tensorflow-xla", True): ("TensorFlow's own", True),
    }


@pytest.mark.slow
def test_rematerialisation_computes_every_block_again_and_changes_no_result(tf):
    """Running statistics above all: a block that runs twice must count its batch once, and in training mode."""
    from fwbench.ext.tensorflow.parity import TensorFlowSide
    from fwbench.ext.tensorflow.rematerialise import rematerialise

    case = Case(complete(CATALOG["mobilenet_v3_small"]), "train", axes=(("image_size", 32),), batch_size=4)
    kept, again = TensorFlowSide(case), TensorFlowSide(case)
    rematerialise(again.network)
    for quantity in ("gradients", "statistics", "output"):
        assert max(measure(quantity, kept, again).values()) < BOUNDS[quantity]
    graphs = [side._differentiate.get_concrete_function(side._begin(MAIN)).graph for side in (kept, again)]
    convolutions = [[node.op for node in graph.as_graph_def().node].count("DepthwiseConv2dNative") for graph in graphs]
    assert convolutions == [11, 22]


@pytest.fixture(params=[False, True], ids=["graph", "xla"])
def told(request, tf):
    """Makes the fingerprint of a function of two matrices, by TensorFlow's graph or by what XLA makes of it."""
    from fwbench.ext.tensorflow.program import CPU, Traced

    class Program(Traced):
        def __init__(self, function):
            self.settings, self.device, self.xla, self.traces = {}, CPU, request.param, 0
            self.inputs = (tf.constant(normal(8, 8), tf.float32), tf.constant(normal(8, 8), tf.float32))
            self.function = self.traced(function)

        @property
        def arguments(self):
            return self.inputs

        def step(self):
            self.found = self.concrete(*self.inputs)

        def output(self):
            return self.found.numpy()

    def tell(function):
        program = Program(function)
        program.compile()
        return program.fingerprint()

    tell.xla = request.param
    return tell


def changes(base, head):
    return [(remark.kind, remark.sentence) for remark in compare(base, head, "cpu") if remark.changed]


def test_a_program_is_told_alike_whatever_its_parts_are_called(tf, told):
    def network(x, w):
        return tf.tanh(tf.matmul(x, w, name="logits"), name="scores")

    base, head = told(lambda x, w: tf.tanh(x @ w)), told(network)
    assert base == head
    # Of the graph, TensorFlow's formulas count a product's 2 x 8 x 8 x 8.
    assert base.flops == (None if told.xla else 2 * 8**3)
    assert (base.form, base.fusions is None) == (("StableHLO", False) if told.xla else ("TensorFlow graph", True))


def test_an_extra_operator_is_named(tf, told):
    base, head = told(lambda x, w: tf.tanh(x @ w)), told(lambda x, w: tf.tanh(x @ tf.transpose(w)))
    # Its permutation may be a constant of an element type that is new.
    *_, (kind, sentence) = changes(base, head)
    assert kind == "program"
    assert "1 more transpose" in sentence.lower()


def test_another_element_type_is_named(tf, told):
    base = told(lambda x, w: tf.tanh(x @ w))
    head = told(lambda x, w: tf.cast(tf.tanh(tf.cast(x @ w, tf.float64)), tf.float32))
    (kind, sentence), *_ = changes(base, head)
    assert (kind, sentence.partition(":")[0]) == ("dtype", "float64 is new")


def test_another_constant_is_another_program(tf, told):
    base, head = told(lambda x, w: x * 2), told(lambda x, w: x * 3)
    assert base.operators == head.operators
    assert [kind for kind, _ in changes(base, head)] == ["program"]


def test_a_loops_body_is_read_once(tf, told):
    def repeated(x, w):
        return tf.while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, tf.tanh(x @ w)), (tf.constant(0), x))[1]

    found = told(repeated)
    assert {name.lower(): count for name, count in found.operators.items()}["tanh"] == 1
    assert told(repeated) == found


def test_what_a_training_step_changes_in_place_is_told(tf):
    """All parameters, their two moments and the step's number: XLA writes them where they lie."""
    program, _ = built(Workload("tensorflow-xla", "mlp", "train_step", 4))
    program.compile()
    found = program.fingerprint()
    assert found.aliased == 3 * 6 + 1
    assert found.precisions.keys() == {"float32 highest"}


def test_a_seed_of_any_size_and_any_rank_is_an_int32_of_its_own(tf):
    from fwbench.ext.tensorflow.training import seed_of

    assert [seed_of(5, rank) for rank in (0, 1, 127)] == [5, 5 ^ 1 << 24, 5 ^ 127 << 24]
    ranks = [seed_of(0, rank) for rank in range(1000)]
    assert len({*ranks}) == 1000
    large = [seed_of(seed, 0) for seed in (2**31, 2**32 - 1)]
    assert tf.constant([*ranks, *large], tf.int32).numpy().tolist() == [*ranks, *large]
