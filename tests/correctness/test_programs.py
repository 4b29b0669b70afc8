"""Changes planted in real programs, each of them named; and what must make no difference."""

import dataclasses
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch._dynamo.utils import counters

from fwbench import frameworks
from fwbench.compare.programs import compare
from fwbench.frameworks.contract import CompileTimes
from fwbench.frameworks.hlo import lowered
from fwbench.frameworks.jax.program import Compiled
from fwbench.frameworks.torch.fingerprint import Operators
from fwbench.frameworks.torch.program import Placed
from fwbench.models import CATALOG
from fwbench.record.lanes import OWN
from fwbench.record.workload import Workload
from fwbench.suite.profiles import PROFILES
from fwbench.worker.process.run import Measuring
from tests.programs import built
from tests.unit.fakes import FakeFramework

pytestmark = pytest.mark.optimised

X = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)


class Jitted(Compiled):
    """A function of arrays, compiled as a network's is."""

    arguments = ()

    def __init__(self, function, *arguments, **options):
        self.ranks = None
        self.settings = {}
        self.options = {}
        self.device = jax.devices("cpu")[0]
        self.function = jax.jit(function, **options)
        self.arguments = [jnp.asarray(argument) for argument in arguments]

    def step(self):
        self.out = self.compiled(*self.arguments)

    def wait(self):
        jax.block_until_ready(self.out)

    def output(self):
        return np.asarray(jax.tree.leaves(self.out)[0])

    def relocate(self):
        raise NotImplementedError


class Dispatched(Placed):
    """A function of tensors, eager or compiled as a network is; without Inductor, whose kernels take seconds."""

    def __init__(self, function, *arguments, compiled=False):
        self.ranks = None
        self.settings = {}
        self.device = torch.device("cpu")
        self.lane = "torch-compile" if compiled else "torch"
        self.kernels = None
        self.call = torch.compile(function, backend="eager", dynamic=False) if compiled else function
        self.arguments = [torch.tensor(argument) for argument in arguments]

    def compile(self):
        return CompileTimes(None, None, "only Inductor's are timed")

    def step(self):
        self.out = self.call(*self.arguments)

    def output(self):
        return self.out.detach().numpy()


@pytest.fixture
def told(monkeypatch):
    """The fingerprint that a worker makes of a program."""
    jax.clear_caches()
    torch._dynamo.reset()
    counters.clear()

    def measure(program):
        monkeypatch.setattr(frameworks, "load", lambda lane: FakeFramework(program))
        protocol = dataclasses.replace(PROFILES["quick"], programs=True, warmup_iterations=2)
        workload = Workload("noop", "noop")
        measurement = Measuring(workload, OWN["noop"], CATALOG["noop"], protocol, lambda stage: None).run()
        assert measurement.failure is None, measurement.failure
        return measurement.program

    yield measure
    torch._dynamo.reset()


def changes(base, head):
    """Kind and sentence of each finding that fails a gate."""
    return [(finding.kind, finding.sentence) for finding in compare(base, head, "cpu") if finding.changed]


def jitted(function, *arguments, **options):
    return Jitted(function, *(arguments or (X, X)), **options)


def product(x, w):
    return jnp.tanh(x @ w)


def test_jax_the_same_program_twice(told):
    (finding,) = compare(told(jitted(product)), told(jitted(product)), "cpu")
    assert finding.kind == "same"


def test_jax_an_extra_transpose(told):
    base, head = told(jitted(product)), told(jitted(lambda x, w: jnp.tanh(x @ w.T)))
    ((kind, sentence),) = changes(base, head)
    assert kind == "program"
    assert sentence.startswith("1 more transpose")


def test_jax_a_float64_constant(told, own_x64):
    jax.config.update("jax_enable_x64", True)
    base, head = (told(jitted(lambda x, w, c=c: product(x, w) * c)) for c in (2.0, np.float64(2.0)))
    (kind, sentence), *_ = changes(base, head)
    assert kind == "dtype"
    assert sentence.startswith("float64 is new: ")
    assert "1 constant" in sentence
    assert "1 multiply" in sentence


def test_jax_a_lost_fusion_barrier(told):
    base = told(jitted(lambda x, w: jnp.tanh(jax.lax.optimization_barrier(x @ w))))
    (kind, sentence), *_ = changes(base, told(jitted(product)))
    assert kind == "barrier"
    assert sentence.startswith("1 fusion barrier lost")


def test_jax_a_dropped_donation(told):
    def update(state, x):
        return state + x, (state * x).sum()

    def run(**options):
        program = jitted(update, **options)
        program.compile()
        return program.fingerprint()

    (kind, sentence), *_ = changes(run(donate_argnums=0), run())
    assert kind == "donation"
    assert sentence.startswith("1 argument fewer whose buffer an output takes over (1 -> 0)")


class Growing(Jitted):
    """Called with another shape each time, and not by the program that was compiled ahead."""

    def step(self):
        self.arguments[0] = jax.device_put(np.zeros((len(self.arguments[0]) + 1, 8), np.float32))
        self.out = self.function(*self.arguments)


def test_jax_a_shape_that_recompiles(told):
    base, head = told(jitted(product)), told(Growing(product, X, X))
    assert (base.compilations, base.recompilations) == (1, 0)
    (kind, sentence), *_ = changes(base, head)
    assert kind == "recompiles"
    assert sentence.startswith("recompiles at steady state, 2 times after the warm-up")


def test_jax_names_and_places_of_the_source_make_no_difference(told, tmp_path):
    source = """
        import jax, jax.numpy as jnp

        @jax.jit
        def {inner}({argument}):
            return jnp.maximum({argument}, 0)

        def {outer}({argument}, w):
            {space}return dict({output}={inner}({argument} @ w))
    """

    def written(folder, **names):
        path = tmp_path / folder / "model.py"
        path.parent.mkdir()
        text = textwrap.dedent(source).format(**names)
        path.write_text(text)
        scope = {}
        exec(compile(text, str(path), "exec"), scope)
        return told(jitted(scope[names["outer"]]))

    one = written("one", inner="relu", outer="network", argument="x", output="logits", space="")
    two = written("two", inner="rectify", outer="model", argument="images", output="scores", space="pass\n\n\n    ")
    assert compare(one, two, "cpu")[0].kind == "same"
    assert one.operators == {"broadcast_in_dim": 1, "constant": 1, "dot_general": 1, "maximum": 1}


# The same comparison as jax 0.9.0 and 0.10.2 print it.
OLDER = """\
module @jit_f attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2xf32>) -> (tensor<2xi1> {jax.result_info = "result"}) {
    %0 = stablehlo.compare  GT, %arg0, %arg0,  FLOAT : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xi1>
    return %0 : tensor<2xi1>
  }
}
"""
NEWER = """\
module @jit_f attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @empty_mesh = <[]> {stablehlo.mesh = {axes = []}}
  func.func public @main(%arg0: tensor<2xf32> {sdy.sharding = #sdy.sharding<@empty_mesh, [{}]>}) -> (tensor<2xi1>) {
    %0 = stablehlo.compare GT, %arg0, %arg0, FLOAT : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xi1>
    return %0 : tensor<2xi1>
  }
}
"""


def test_jax_versions_that_print_one_program_in_two_ways_agree():
    assert lowered(OLDER) == lowered(NEWER)
    assert lowered(OLDER.replace("GT", "GE")).digest != lowered(OLDER).digest
    donated = NEWER.replace("<@empty_mesh, [{}]>}", "<@empty_mesh, [{}]>, tf.aliasing_output = 0 : i32}")
    assert lowered(donated).digest != lowered(NEWER).digest
    assert lowered(NEWER.replace("<@empty_mesh", "<@mesh")).digest != lowered(NEWER).digest


def test_jax_a_called_function_counts_at_every_call(told):
    @jax.jit
    def twice(x):
        return jnp.tanh(jnp.tanh(x))

    assert told(jitted(lambda x, w: twice(twice(x @ w)))).operators == {"dot_general": 1, "tanh": 4}


def test_torch_an_extra_transpose_with_its_bytes(told):
    base = told(Dispatched(lambda x, w: torch.tanh(x @ w), X, X))
    head = told(Dispatched(lambda x, w: torch.tanh(x @ w.t().contiguous()), X, X))
    # Matrices of 256 B, read and written: three for the product, two for tanh; the copy takes and gives one.
    assert (base.bytes_accessed, head.bytes_accessed) == (5 * 256, 7 * 256)
    ((kind, sentence),) = changes(base, head)
    assert (kind, sentence) == ("program", "1 more clone, 1 more t, bytes accessed +40 %")


def test_torch_a_float64_constant(told):
    constants = (torch.tensor(2.0, dtype=dtype) for dtype in (torch.float32, torch.float64))
    base, head = (told(Dispatched(lambda x, c=c: x * c, X)) for c in constants)
    (kind, sentence), *_ = changes(base, head)
    assert (kind, sentence) == ("dtype", "float64 is new: 1 mul")


def test_torch_an_operator_that_no_longer_works_in_place(told):
    base, head = (told(Dispatched(lambda x, f=f: f(x * 2), X)) for f in (torch.relu_, torch.relu))
    ((kind, sentence),) = changes(base, head)
    assert (kind, sentence) == ("program", "1 more relu, 1 fewer relu_")


def test_torch_another_layout(told):
    base, head = (told(Dispatched(lambda x: x * 2, array)) for array in (X, X.T))
    assert head.operators == base.operators
    sentence = "as many operators of each kind, other in shape, layout, constants or order"
    assert changes(base, head) == [("program", sentence)]


def test_torch_compile_a_graph_break(told):
    def broken(x):
        x = x + 1
        torch._dynamo.graph_break()
        return x * 2

    base = told(Dispatched(lambda x: (x + 1) * 2, X, compiled=True))
    head = told(Dispatched(broken, X, compiled=True))
    assert base.digest == head.digest
    assert ("graph_breaks", "1 graph break, where the baseline has 0") in changes(base, head)


class GrowingTorch(Dispatched):
    def step(self):
        self.arguments = [torch.zeros(len(self.arguments[0]) + 1, 8)]
        super().step()


def test_torch_compile_a_shape_that_recompiles(told):
    base = told(Dispatched(lambda x: x * 2, X, compiled=True))
    assert (base.compilations, base.recompilations) == (1, 0)
    (kind, sentence), *_ = changes(base, told(GrowingTorch(lambda x: x * 2, X, compiled=True)))
    assert kind == "recompiles"
    assert sentence.startswith("recompiles at steady state, 2 times")


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_torch_a_training_step_is_the_same_program_whenever_it_is_looked_at(optimizer):
    workload = Workload("torch", "mlp", "train_step", 2, optimizer=optimizer)
    program, _ = built(workload, horizon=5)
    program.step()
    early = program.fingerprint()
    for _ in range(3):
        program.step()
    late = program.fingerprint()
    assert early == late
    assert {"addmm", "nll_loss_backward", f"_fused_{optimizer}_"} <= late.operators.keys()
    larger = dataclasses.replace(workload, batch_size=3)
    assert early != built(larger)[0].fingerprint()


def test_torch_fused_attention_has_the_flops_of_its_parts():
    attention = torch.nn.MultiheadAttention(16, 4, batch_first=True).eval()
    x = torch.zeros(2, 5, 16)
    with torch.inference_mode(), Operators() as fused:
        attention(x, x, x, need_weights=False)
    with Operators() as parts:
        attention(x, x, x, need_weights=False)
    assert fused.counts["_native_multi_head_attention"] == 1
    assert parts.counts["_native_multi_head_attention"] == 0
    assert fused.flops == parts.flops == 2 * 2 * 5 * 16 * (4 * 16 + 2 * 5)


def test_torch_a_composite_operator_is_told_by_its_parts():
    linear, x = torch.nn.Linear(4, 2), torch.zeros(3, 4)
    with torch.inference_mode(), Operators() as found:
        linear(x)
    assert found.counts == {"t": 1, "addmm": 1}
    assert found.flops == 2 * 3 * 4 * 2
