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


def compiled(mode, **changes):
    program, _ = built(Workload("jax", "mlp", mode, 2, **changes))
    program.compile()
    return program


def test_an_option_that_xla_does_not_know_is_left_out():
    assert known({"xla_backend_optimization_level": 1, "xla_no_such_option": True}) == {
        "xla_backend_optimization_level": 1
    }


@pytest.mark.skipif(not known({FLAG: ""}), reason="this XLA has no YNNPACK")
def test_inference_on_a_cpu_does_without_ynnpack_and_says_so():
    program = compiled("inference")
    assert "__ynn_fusion" not in program.compiled.as_text()
    assert program.settings["compiler_options"] == {FLAG: ""}
    # Else a gate would take another program of the same compiler for a change of the network's.
    assert program.fingerprint().compiler[FLAG] == ""


@pytest.mark.parametrize(
    ("mode", "changes"),
    [("inference", {"plain": True}), ("train_step", {}), ("inference", {"precision": "fp64"})],
    ids=["plain", "training", "fp64"],
)
def test_plain_training_and_fp64_programs_are_compiled_as_xla_would(mode, changes):
    program = compiled(mode, **changes)
    assert "compiler_options" not in program.settings
    assert FLAG not in program.fingerprint().compiler


def test_a_users_own_flag_wins(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", f"--{FLAG}=LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT")
    assert faster("cnn", "cpu") == {}


@pytest.mark.parametrize(("model", "platform"), [("cnn", "cuda"), ("decoder", "cpu")])
def test_a_gpu_and_what_gains_nothing_are_left_alone(model, platform):
    assert faster(model, platform) == {}


@pytest.mark.skipif(not known({FLAG: ""}), reason="this XLA has no YNNPACK")
def test_a_users_own_model_is_compiled_as_in_the_users_program():
    assert faster("cnn", "cpu") == {FLAG: ""}
    assert chosen(Workload("jax", "mine", "inference", 2), "cpu") == {}
