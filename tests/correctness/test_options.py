"""What the JAX lane compiles its programs with."""

import pytest

from fwbench.frameworks.jax.options import chosen, faster, known
from fwbench.record.workload import Workload
from tests.programs import built

FLAG = "xla_cpu_experimental_ynn_fusion_type"


pytestmark = [pytest.mark.optimised, pytest.mark.usefixtures("own_x64")]


@pytest.fixture(autouse=True)
def no_flags(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)


def compiled(model):
    program, _ = built(Workload("jax", model, "inference", 2))
    program.compile()
    return program


def test_an_option_that_xla_does_not_know_is_left_out():
    assert known({"xla_backend_optimization_level": 1, "xla_no_such_option": True}) == {
        "xla_backend_optimization_level": 1
    }


@pytest.mark.skipif(not known({FLAG: ""}), reason="this XLA has no YNNPACK")
def test_inference_on_a_cpu_does_without_ynnpack_and_says_so():
    program = compiled("mobilenet_v3_small")
    assert "__ynn_fusion" not in program.compiled.as_text()
    assert program.settings["compiler_options"] == {FLAG: ""}
    # Else a gate would take another program of the same compiler for a change of the network's.
    assert program.fingerprint().compiler[FLAG] == ""


def test_a_small_network_is_compiled_as_xla_would():
    program = compiled("mlp")
    assert "compiler_options" not in program.settings
    assert FLAG not in program.fingerprint().compiler


@pytest.mark.skipif(not known({FLAG: ""}), reason="this XLA has no YNNPACK")
@pytest.mark.parametrize(
    ("model", "mode", "changes"),
    [
        ("resnet50", "inference", {"plain": True}),
        ("resnet50", "inference", {"precision": "bf16"}),
        ("resnet50", "inference", {"precision": "fp64"}),
        ("resnet50", "train_step", {}),
        ("decoder", "decode", {}),
        ("mine", "inference", {}),
    ],
)
def test_what_gains_nothing_is_compiled_as_xla_would(model, mode, changes):
    assert chosen(Workload("jax", "resnet50", "inference", 2), "cpu") == {FLAG: ""}
    assert chosen(Workload("jax", model, mode, 2, **changes), "cpu") == {}


def test_a_users_own_flag_wins_and_a_gpu_is_left_alone(monkeypatch):
    assert faster("resnet50", "cuda") == {}
    monkeypatch.setenv("XLA_FLAGS", f"--{FLAG}=LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT")
    assert faster("resnet50", "cpu") == {}
