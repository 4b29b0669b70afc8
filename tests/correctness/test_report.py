"""The page of errors says what a run of the proofs found."""

import dataclasses
import importlib
import json
from pathlib import Path

import pytest

from fwbench.ext.proofs.errors import BOUNDS, bound
from fwbench.ext.proofs.proof import modes_apart
from fwbench.models import CATALOG
from fwbench.models.project import complete
from fwbench.models.store import stamp
from tests.proving import MODELS, records
from tests.proving.page import render
from tests.proving.records import Full, Rounding, Row
from tests.tensorflow import TENSORFLOW, needs_tensorflow

SAMPLE = Row(
    "resnet50",
    "eval",
    {quantity: 3.21e-15 for quantity in BOUNDS if quantity != "statistics"} | {"loss": 0.0},
    Rounding(own=1e-7, bound=5e-7, error=2e-7),
    Rounding(own=1e-5, bound=5e-5, error=3e-5),
    torch_compile=4e-8,
    jit=6e-8,
)


def tables(page):
    """Each table's rows as lists of cells, heading first and without the rule below it."""
    blocks = [block.splitlines() for block in page.split("\n\n") if block.startswith("|")]
    rows = [[[cell.strip() for cell in line.strip("|").split("|")] for line in block] for block in blocks]
    return [[heading, *body] for heading, _, *body in rows]


def test_a_row_travels_as_json():
    assert Row.from_json(json.loads(json.dumps(SAMPLE.to_json()))) == SAMPLE


def test_rendering():
    other = dataclasses.replace(SAMPLE, candidate="tensorflow", torch_compile=None, xla=7e-8)
    made_with = {"versions": {"torch": "2.15.0", "jax": "0.10.2"}, "device": "cpu"}
    page = render(
        {
            ("resnet50", "jax"): Full("jax", made_with, (SAMPLE,), {"one_epsilon-output": 2e-3}),
            ("resnet50", "tensorflow"): Full("tensorflow", made_with, (other,), {}),
        }
    )
    assert "ran on\nthe CPU, float64 on the CPU. Versions: torch 2.15.0, jax 0.10.2." in page
    _covered, float64, float32, compiled, mistakes = tables(page)
    titles = ["logits", "loss", "every gradient", "running statistics", "5 SGD steps", "5 Adam steps"]
    assert float64 == [
        ["model", "mode", "framework", *titles],
        ["*bound*", "", "", "*1e-10*", "*1e-10*", "*1e-08*", "*1e-10*", "*1e-07*", "*1e-07*"],
        ["resnet50", "eval", "JAX", "3.2e-15", "0", "3.2e-15", "-", "3.2e-15", "3.2e-15"],
        ["resnet50", "eval", "TensorFlow", "3.2e-15", "0", "3.2e-15", "-", "3.2e-15", "3.2e-15"],
    ]
    assert float32[1] == ["resnet50", "eval", "JAX", "2.0e-07", "1.0e-07", "5.0e-07", "3.0e-05", "1.0e-05", "5.0e-05"]
    assert compiled[1:] == [
        ["resnet50", "eval", "JAX", "4.0e-08", "6.0e-08", "-", "-", "5.0e-07"],
        ["resnet50", "eval", "TensorFlow", "-", "-", "6.0e-08", "7.0e-08", "5.0e-07"],
    ]
    assert mistakes[1:] == [["resnet50", "JAX", "one_epsilon-output", "2.0e-03"]]


@pytest.mark.parametrize(
    "change",
    [
        {"float64": {"sgd": 2e-7}},
        {"float64": {"output": float("nan")}},
        {"logits": Rounding(1e-7, 5e-7, 6e-7)},
        {"gradients": Rounding(1e-7, 5e-7, 6e-7)},
        {"torch_compile": 6e-7},
        {"jit": 6e-7},
        {"xla": 6e-7},
    ],
    ids=lambda change: "-".join(change),
)
def test_a_row_holds_within_all_of_its_bounds(change):
    assert SAMPLE.holds
    assert dataclasses.replace(SAMPLE, torch_compile=None, jit=None).holds
    assert not dataclasses.replace(SAMPLE, **change).holds


@needs_tensorflow
@pytest.mark.parametrize("model", MODELS)
def test_each_record_covers_every_property_within_its_bounds_and_every_mistake(model):
    described, found = CATALOG[model], records._read(model)
    modules = {framework: importlib.import_module(module) for framework, module in records.MUTATIONS.items()}
    assert {full.candidate for full in found} == modules.keys()
    quantities = {quantity for quantity in BOUNDS if quantity != "statistics" or len(modes_apart(described)) > 1}
    for full in found:
        assert [(row.model, row.candidate) for row in full.rows] == [(model, full.candidate)] * len(full.rows)
        assert [row.mode for row in full.rows] == list(modes_apart(described))
        assert all(row.holds and row.float64.keys() == quantities for row in full.rows)
        # Compiled results are of inference: PyTorch's stand in JAX's rows, and XLA's in TensorFlow's.
        (inference,) = [row for row in full.rows if row.mode == "eval"]
        compiled = inference.torch_compile, inference.jit, inference.xla
        assert [number is None for number in compiled] == [full.candidate != "jax", False, full.candidate == "jax"]
        planted = [mutation for mutation in modules[full.candidate].MUTATIONS if mutation.model == model]
        assert full.mutations.keys() == {mutation.name for mutation in planted}
        for mutation in planted:
            assert bound(described, mutation.quantity) < full.mutations[mutation.name] < float("inf")


def test_the_page_in_the_repository_is_of_the_records():
    """Fails after the page's words were edited: run `python -m tests.proving`."""
    of_versions = {}
    for model in MODELS:
        for proved in sorted(records._read(model), key=lambda proved: proved.candidate):
            of_versions.setdefault(proved.made_with["versions"]["numpy"], {})[model, proved.candidate] = proved
    assert Path("docs/parity.md").read_text(encoding="utf-8") in map(render, of_versions.values())


def test_the_proof_of_the_compiled_decoder_is_of_this_network():
    """Fails after the network was edited: run `python -m tests.proving`."""
    proof = stamp(complete(CATALOG["decoder"]), "torch-compile", folder=None)
    assert proof["state"] == "proved", proof["reason"]
    assert proof["errors"].keys() == {"output", "steps", "state"}


@pytest.mark.parametrize("framework", ["jax", TENSORFLOW])
@pytest.mark.parametrize("model", MODELS)
def test_the_proof_on_every_record_is_of_these_networks(model, framework):
    """Fails after a network was edited: run `python -m tests.proving`."""
    proof = stamp(complete(CATALOG[model]), framework, folder=None)
    assert proof["state"] == "proved", proof["reason"]
    assert proof["errors"].keys() == {q for q in BOUNDS if q != "statistics" or len(modes_apart(CATALOG[model])) > 1}
    assert all(error <= BOUNDS[quantity] for quantity, error in proof["errors"].items())
