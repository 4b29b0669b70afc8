"""TensorFlow in an environment of its own: the same session and table, the same weights and batches.

And what another interpreter proves, or cannot.
"""

import json
import re
import sys
import textwrap
from importlib.metadata import version
from importlib.util import find_spec

import pytest

from fwbench.models import CATALOG, store
from fwbench.models.project import complete
from fwbench.models.store import Key, Proved
from fwbench.record.reading import PROOFS
from tests.unit.shared import ALONE, finish
from tests.unit.suites import FAST

SUITE = ("--pyargs", "fwbench.suite.benchmarks", "--benchmark-only", "--fwbench-threads=1", *ALONE)

# Not by importing them, for which no test here has a use.
pytestmark = pytest.mark.skipif(not (find_spec("torch") and find_spec("jax")), reason="needs torch and jax")


@pytest.fixture
def measured(stranger, tensorflow_alone):
    """Run the suite with TensorFlow's interpreter: what pytest says, and each record by lane, model and mode."""

    def measure(*options):
        own = (f"--fwbench-python=tensorflow={tensorflow_alone}", "--benchmark-json=x.json")
        outcome = stranger.run(sys.executable, "-m", "pytest", *SUITE, *own, *options)
        assert outcome.ret == 0, outcome.stdout.str() + outcome.stderr.str()
        records = [record["extra_info"] for record in json.loads((stranger.path / "x.json").read_text())["benchmarks"]]
        return outcome, {
            tuple(record["workload"][of] for of in ("lane", "model", "mode")): record for record in records
        }

    return measure


def test_the_other_environment_has_tensorflow_alone(tensorflow_alone):
    code = "from importlib.util import find_spec; print([name for name in %r if find_spec(name)])"
    asked = ["tensorflow", "keras", "numpy", "torch", "jax", "flax", "pytest", "scipy", "fwbench"]
    told = finish(tensorflow_alone, "-I", "-c", code % asked, check=True)
    assert told.stdout.strip() == str(["tensorflow", "keras", "numpy"])


# Asked when pytest ends, of what measures and saves.
IMPORTED = """
    def pytest_unconfigure():
        import sys
        print("imported:", sorted({"torch", "torchvision", "jax", "flax", "tensorflow", "scipy"} & set(sys.modules)))
"""


@pytest.mark.slow
def test_calls_in_the_other_environment(measured, stranger, tensorflow_alone, request):
    """A proof that was made here holds there, where PyTorch's network is not; and docs/your-model.md's Keras model.

    The suite is the wheel's, and pytest's own process imports no framework.
    """
    stranger.makeconftest(IMPORTED)
    key = Key.of(complete(CATALOG["mlp"]), "tensorflow")
    proof = Proved("mlp", "tensorflow", "torch", "proved", "", {"output": 1e-14}, {"output": 1e-10}, key)
    store.write(proof, stranger.path / PROOFS)
    page = (request.config.rootpath / "docs" / "your-model.md").read_text()
    for name in ("mine/keras_net.py", "benchmarks/test_keras.py"):
        (source,) = re.findall(rf"```python\n# {name}\n(.*?)```", page, re.DOTALL)
        (stranger.path / name).parent.mkdir()
        (stranger.path / name).write_text(source)
    chosen = ("--fwbench-lanes=tensorflow", "-k", "mlp and (b1 or train_step) or in-keras")
    outcome, records = measured(*FAST, *chosen, "benchmarks")
    outcome.assert_outcomes(passed=4, deselected=outcome.parseoutcomes()["deselected"])
    outcome.stdout.fnmatch_lines(["imported: []"])
    for model in ("mlp", "in-keras"):
        for mode in ("inference", "train_step"):
            record = records["tensorflow", model, mode]
            assert {found["arithmetic"] for found in record["parity"]["probe"].values()} == {"fp32"}
            assert record["versions"].keys() >= {"tensorflow", "keras"}
            assert record["parity"]["proof"]["python"] == str(tensorflow_alone)
            assert record["parity"]["proof"]["state"] == ("proved" if model == "mlp" else "alone")


PAIR = {
    "nets.py": """
        def Torch():
            from torch import nn

            return nn.Linear(4, 2)


        def Jax(rngs):
            from flax import nnx

            return nnx.Linear(4, 2, rngs=rngs)
        """,
    "test_same.py": """
        import fwbench

        pair = fwbench.Model("pair", torch="nets:Torch", jax="nets:Jax", inputs=fwbench.normal(4))
        apart = fwbench.Model("apart", torch="nets:Torch", tensorflow="nets:Keras", inputs=fwbench.normal(4))

        @fwbench.proof(pair)
        def test_pair(fwbench_prove):
            fwbench_prove()

        @fwbench.proof(apart)
        def test_apart(fwbench_prove):
            fwbench_prove()
        """,
}


@pytest.fixture
def pair(stranger):
    """A project with two models: a pair in PyTorch and JAX, and another one in PyTorch and TensorFlow."""
    for name, source in PAIR.items():
        (stranger.path / name).write_text(textwrap.dedent(source))
    return stranger


@pytest.mark.slow
def test_the_named_interpreter_proves_where_pytests_own_has_no_framework(pair, core):
    outcome = pair.run(core, "-m", "pytest", *ALONE, "-k", "test_pair", f"--fwbench-python=jax={sys.executable}")
    outcome.assert_outcomes(passed=1, deselected=1)
    (proved,) = json.loads((pair.path / PROOFS / "pair.json").read_text())
    assert proved["state"] == "proved"
    assert proved["key"]["versions"].keys() == {"torch", "jax"}
    assert proved["key"]["versions"]["jax"]["jax"] == version("jax")


@pytest.mark.slow
def test_an_interpreter_without_the_other_framework_is_named_with_what_it_lacks(pair, tensorflow_alone):
    told = pair.run(sys.executable, "-m", "fwbench", "prove", "apart", "--python", f"tensorflow={tensorflow_alone}")
    assert told.ret == 4
    assert told.errlines == [
        "fwbench: apart: no proof of tensorflow: it needs torch and tensorflow in one process, and "
        f"{tensorflow_alone} has no torch: install that there, or name an interpreter that has both by "
        "--fwbench-python tensorflow=PATH (--python of fwbench prove)"
    ]


@pytest.mark.slow
def test_the_three_framework_study_in_two_environments(measured, request):
    """One session and one table, in which no peak is below what there was before; the same batches everywhere."""
    lanes = ["tensorflow-xla", "torch", "jax"]
    asked = (f"--fwbench-lanes={','.join(lanes)}", "--fwbench-set=epochs=2", "--fwbench-set=patience=0")
    outcome, records = measured("--fwbench-study=simple-cnn", *asked)
    outcome.assert_outcomes(passed=3)
    assert [lane for lane, _, _ in records] == lanes
    first, *others = (record["parity"]["weights"] for record in records.values())
    assert others == [first] * 2
    first, *others = (record["training"] for record in records.values())
    for other in others:
        assert other["batches"] == first["batches"]
        assert other["losses"] == pytest.approx(first["losses"], rel=1e-4)
    for record in records.values():
        metrics = record["metrics"]
        assert metrics["host_peak_memory"]["value"] >= metrics["host_initial_memory"]["value"] > 0
    page = (request.config.rootpath / "docs" / "studies.md").read_text()
    assert _cells(_header(outcome.stdout.lines)) == _cells(_header(page.splitlines()))
    header, *rows = outcome.stdout.lines[outcome.stdout.lines.index(_header(outcome.stdout.lines)) :][:4]
    assert [dict(zip(_cells(header), _cells(row), strict=True))["lane"] for row in rows] == lanes


def _header(lines):
    (line,) = [line for line in lines if line.startswith("model ") and "RAM peak" in line]
    return line


def _cells(line):
    return re.split(r"\s{2,}", line.strip())
