import pytest

from fwbench.parity import stamp


@pytest.fixture
def proofs(tmp_path, monkeypatch):
    path = tmp_path / "proofs.json"
    monkeypatch.setattr(stamp, "FILE", path)
    return path


def test_a_record_names_its_proof(proofs):
    stamp.write({"cnn": {"logits": 1e-15}}, {"jax": "1"}, proofs)
    assert stamp.stamp("cnn") == {"errors": {"logits": 1e-15}, "versions": {"jax": "1"}, "current": True}


def test_a_proof_of_other_sources_is_not_current(proofs, monkeypatch):
    stamp.write({"cnn": {"logits": 1e-15}}, {"jax": "1"}, proofs)
    monkeypatch.setattr(stamp, "sources", lambda: "edited since")
    assert stamp.stamp("cnn")["current"] is False


def test_no_proof_is_none_and_not_a_promise(proofs):
    assert stamp.stamp("cnn") is None
    stamp.write({"cnn": {"logits": 1e-15}}, {"jax": "1"}, proofs)
    assert stamp.stamp("mlp") is None


def test_every_network_counts_among_the_proved_sources(tmp_path, monkeypatch):
    package = tmp_path / "fwbench"
    network = package / "frameworks" / "jax" / "resnet.py"
    network.parent.mkdir(parents=True)
    monkeypatch.setattr(stamp, "files", lambda name: package)
    network.write_text("stride = 2\n")
    before = stamp.sources.__wrapped__()
    network.write_text("stride = 1\n")
    assert stamp.sources.__wrapped__() != before
    edited = stamp.sources.__wrapped__()
    network.with_name("adapter.py").write_text("mode = 'fast'\n")
    assert stamp.sources.__wrapped__() == edited
