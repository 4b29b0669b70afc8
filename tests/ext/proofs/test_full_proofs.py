"""When a full proof of one of the suite's own models, as it is recorded, spares the tests a repetition."""

import dataclasses

import pytest

from fwbench.models import CATALOG, store
from fwbench.models.project import complete
from tests.proving import MODELS, records
from tests.proving.records import MUTATIONS, Full, Rounding, Row, full, made_with

ROW = Row("mlp", "eval", {"output": 1e-15}, Rounding(1e-7, 5e-7, 2e-7), Rounding(1e-7, 5e-7, 2e-7), None, 1e-7)


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Keeps a full proof of the MLP in JAX, with what changes it."""
    monkeypatch.setattr(records, "FOLDER", tmp_path)

    def keep(**made):
        proved = Full("jax", {**made_with("mlp", "jax"), **made}, (ROW,), {"nesterov-sgd": 0.1})
        records.write("mlp", proved)
        return proved

    return keep


def test_a_proof_of_the_same_networks_with_the_same_sources_and_versions_counts(kept):
    assert full("mlp", "jax") is None
    proved = kept()
    assert full("mlp", "jax") == proved
    assert full("mlp", "tensorflow") is None


@pytest.mark.parametrize(
    "change",
    [{"sources": "another"}, {"versions": {"optax": "0.1"}}, {"device": "gpu"}],
    ids=lambda change: "".join(change),
)
def test_any_other_does_not(kept, change):
    kept(**change)
    assert full("mlp", "jax") is None


@pytest.mark.parametrize(
    ("model", "candidate"),
    [
        (model, candidate)
        for model in MODELS
        for candidate in MUTATIONS
        if candidate in complete(CATALOG[model]).networks
    ],
)
def test_those_kept_are_of_these_sources(model, candidate):
    """Otherwise `make test` proves every network again, which takes an hour; `python -m tests.proving` does it once."""
    kept = [one for one in records._read(model) if one.candidate == candidate]
    assert {one.made_with["sources"] for one in kept} == {made_with(model, candidate)["sources"]}


@pytest.mark.parametrize(("change", "holds"), [({}, True), ({"prover": "another"}, False)])
def test_a_proof_by_another_prover_counts_until_it_is_renewed(change, holds, kept):
    proved = kept(**change)
    assert full("mlp", "jax") == proved
    assert records.current("mlp", "jax") is holds


@pytest.mark.parametrize(
    "edited",
    ["fwbench.ext.proofs.proof", "fwbench.models.weights", "tests.proving.mutations", "tests.proving.float32"],
)
def test_the_proofs_own_sources_count_and_so_do_the_versions_of_all_that_computes(edited, monkeypatch):
    before = made_with("mlp", "jax")
    assert {"torch", "torchvision", "jax", "jaxlib", "flax", "optax", "numpy"} == before["versions"].keys()
    follow = records.sources

    def after(paths, *within):
        followed = follow(paths, *within)
        assert edited in followed.files
        return dataclasses.replace(followed, files={**followed.files, edited: "another digest"})

    monkeypatch.setattr(records, "sources", after)
    assert made_with("mlp", "jax")["prover"] != before["prover"]
    assert {**made_with("mlp", "jax"), "prover": before["prover"]} == before


@pytest.mark.parametrize("edited", ["definition", "files"])
def test_an_edited_network_has_no_full_proof(edited, kept, monkeypatch):
    kept()
    key = records.Key.of
    changed = {"definition": "another", "files": {}}[edited]
    monkeypatch.setattr(records.Key, "of", lambda *pair: dataclasses.replace(key(*pair), **{edited: changed}))
    assert full("mlp", "jax") is None


def test_proofs_of_several_sets_of_versions_are_kept_until_a_source_changes(kept):
    """Also where NumPy's alone differs: no network of TensorFlow's imports it, and float32 depends on it."""
    older = kept(versions={**made_with("mlp", "jax")["versions"], "numpy": "1.0"})
    now = kept()
    assert records._read("mlp") == [older, now]
    assert full("mlp", "jax") == now
    # In the place of the one with these versions alone.
    kept()
    assert records._read("mlp") == [older, now]
    edited = kept(sources="another")
    assert records._read("mlp") == [edited]


# The bias lies before a 1x1 convolution and batch normalisation, which take any constant away: its gradient is 0, and
# 0.3 % of that is nothing. The clip is a weakness: no point's squeezed channels come so low by more than rounding.
NOT_FOUND = {
    ("efficientnet_b0", "gradient of 'features.1.0.block.2.1.bias' 0.3 % too large"),
    ("efficientnet_b0", "clip at -2.26 (layers.py:117)"),
}


def test_what_the_proofs_that_ship_would_not_find_is_known():
    proofs = [proved for path in store.SHIPPED.glob("*.json") for proved in store._read(store.SHIPPED, path.stem)]
    powers = {(proved.model, proved.key.versions["jax"]["jax"]): proved.power for proved in proofs if proved.power}
    assert {model for model, _ in powers} == {
        "mlp",
        "cnn",
        "resnet50",
        "vit_b_16",
        "mobilenet_v3_small",
        "efficientnet_b0",
        "decoder",
    }
    assert min(power.planted for power in powers.values()) > 100
    assert {(model, missed) for (model, _), power in powers.items() for missed in power.missed} <= NOT_FOUND
