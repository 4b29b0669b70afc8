"""When a full proof of one of the suite's own models, as it is recorded, spares the tests a repetition."""

import dataclasses
import json

import pytest

from fwbench.models import CATALOG
from fwbench.parity import store
from fwbench.parity.store import Full, Key, Proved, full, made_with, stamp

MODEL = CATALOG["mlp"]


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Keeps a proof as those that ship are, with what changes it."""
    monkeypatch.setattr(store, "SHIPPED", tmp_path)

    def keep(state="proved", key=(), **made):
        found = Full({**made_with("jax"), **made}, [{"model": "mlp", "mode": "eval"}], {"nesterov-sgd": 0.1})
        proved_key = dataclasses.replace(Key.of(MODEL, "jax"), **dict(key))
        store.write(Proved("mlp", "jax", "torch", state, "", {}, {}, proved_key, found), tmp_path)
        return found

    keep.file = tmp_path / "mlp.json"
    return keep


def test_a_proof_of_the_same_networks_with_the_same_sources_and_versions_counts(kept):
    assert full(MODEL) is None
    found = kept()
    assert full(MODEL) == found


@pytest.mark.parametrize(
    "change",
    [
        {"state": "failed"},
        {"key": {"definition": "another"}},
        {"key": {"files": {}}},
        {"key": {"versions": {"torch": {"torch": "0.1"}, "jax": {"jax": "0.1"}}}},
        {"sources": "another"},
        {"versions": {"optax": "0.1"}},
        {"device": "gpu"},
    ],
    ids=lambda change: "-".join(map(str, change)),
)
def test_any_other_does_not(kept, change):
    kept(**change)
    assert full(MODEL) is None


def test_a_proof_that_is_not_full_does_not(kept):
    store.write(Proved("mlp", "jax", "torch", "proved", "", {}, {}, Key.of(MODEL, "jax")), kept.file.parent)
    assert stamp(MODEL, "jax", None)["state"] == "proved"
    assert full(MODEL) is None


@pytest.mark.parametrize("edited", ["fwbench.parity.proof", "fwbench.parity.mutations", "fwbench.models.weights"])
def test_the_proofs_own_sources_count_and_so_do_the_versions_of_all_that_computes(edited, monkeypatch):
    before = made_with("jax")
    assert {"torch", "torchvision", "jax", "jaxlib", "flax", "optax", "numpy"} == before["versions"].keys()
    own = store.sources

    def after(paths, *within):
        found = own(paths, *within)
        assert edited in found.files
        return dataclasses.replace(found, files={**found.files, edited: "another digest"})

    monkeypatch.setattr(store, "sources", after)
    assert made_with("jax")["sources"] != before["sources"]
    assert {**made_with("jax"), "sources": before["sources"]} == before


def test_proofs_of_several_sets_of_versions_are_kept_until_a_source_changes(kept):
    older = {"torch": {"torch": "0.1"}, "jax": {"jax": "0.1"}}
    kept(key={"versions": older})
    now = kept()
    assert full(MODEL) == now
    assert [one["key"]["versions"] == older for one in json.loads(kept.file.read_text())] == [True, False]
    # In the place of the one with these versions alone.
    kept()
    assert len(json.loads(kept.file.read_text())) == 2
    kept(key={"files": {}})
    assert len(json.loads(kept.file.read_text())) == 1


def test_full_proofs_that_differ_in_numpy_alone_are_kept_side_by_side(kept):
    """No network of TensorFlow's imports it, and what float32 comes to depends on it."""
    older = kept(versions={**made_with("jax")["versions"], "numpy": "1.0"})
    now = kept()
    assert full(MODEL) == now
    assert [proved.full for proved in store._read(kept.file.parent, "mlp")] == [older, now]


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
    }
    assert min(power.planted for power in powers.values()) > 100
    assert {(model, missed) for (model, _), power in powers.items() for missed in power.missed} <= NOT_FOUND
