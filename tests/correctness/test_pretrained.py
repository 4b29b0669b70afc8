"""torchvision's published weights, through the same door as drawn ones; a checkpoint made here stands for theirs."""

import runpy
import sys

import numpy as np
import pytest
import torch
import torchvision

from fwbench.ext.pretrained import fetch as fetching
from fwbench.ext.pretrained import stored
from fwbench.frameworks import load
from fwbench.models import CATALOG
from fwbench.models.weights import canonical, draw
from fwbench.record.lanes import OWN
from fwbench.record.workload import Workload

MODEL = CATALOG["mobilenet_v3_small"]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache of ours, and the place in torchvision's where its checkpoint would lie."""
    monkeypatch.setenv("FWBENCH_CACHE", str(tmp_path / "fwbench"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    url = torchvision.models.get_model_weights(MODEL.name).DEFAULT.url
    checkpoint = tmp_path / "torch" / "hub" / "checkpoints" / url.rpartition("/")[2]
    checkpoint.parent.mkdir(parents=True)
    return checkpoint


def test_a_checkpoint_reaches_every_framework_bit_for_bit(cache):
    state = torchvision.models.get_model(MODEL.name, weights=None).state_dict()
    torch.save(state, cache)
    assert fetching.main([MODEL.name]) is None
    expected = {name: t.numpy() for name, t in state.items() if not name.endswith("num_batches_tracked")}
    for lane in ("torch", "jax"):
        framework = load(OWN[lane].adapter)
        weights = canonical("pretrained", MODEL, framework.weight_shapes(MODEL, MODEL.sizes()), seed=0)
        program = framework.build(Workload(lane, MODEL.name, weights="pretrained"), MODEL, weights)
        found = program.weights()
        assert found.keys() == expected.keys()
        assert all(np.array_equal(found[name], expected[name]) for name in expected)
    drawn = draw(MODEL, {name: array.shape for name, array in expected.items()}, seed=0)
    assert not np.array_equal(drawn["features.0.0.weight"], expected["features.0.0.weight"])


def test_missing_weights_are_one_sentence(cache):
    with pytest.raises(FileNotFoundError, match=r"mobilenet_v3_small are not on this machine: `python -m .* fetches"):
        canonical("pretrained", MODEL, {}, seed=0)
    assert not stored.path(MODEL).exists()


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", None])
def test_a_broken_or_missing_checkpoint_is_one_sentence_and_leaves_nothing(cache, content, monkeypatch):
    """As a process it ends with that sentence, which whoever has started it shows."""
    if content is not None:
        cache.write_bytes(content)
    # None is to be downloaded: nothing listens there.
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setattr(sys, "argv", ["pretrained", MODEL.name])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(fetching.__file__, run_name="__main__")
    sentence = ended.value.code
    assert sentence.startswith("torchvision's weights of mobilenet_v3_small could not be had")
    assert "\n" not in sentence
    assert not stored.path(MODEL).parent.exists()


def test_a_checkpoint_of_another_network_is_refused(cache):
    torch.save(torchvision.models.get_model("mobilenet_v3_large", weights=None).state_dict(), cache)
    assert "could not be had (RuntimeError" in fetching.main([MODEL.name])


def test_a_model_without_published_weights_is_one_sentence():
    assert fetching.main(["mlp"]) == "torchvision publishes no weights of 'mlp'"
