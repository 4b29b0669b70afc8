"""Checkpoints that are damaged: none gives a network numbers that nobody wrote."""

import io
import json
import os
import sys
import zipfile

import numpy as np
import pytest

import fwbench
from fwbench.ext.proofs import checkpoint
from fwbench.models import ModelError

KIND = "damaged checkpoints"
WEIGHT = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
BIAS = {"dtype": "F32", "shape": [2], "data_offsets": [24, 32]}
NUMBERS = np.arange(8, dtype="<f4").tobytes()


def packed(header, data=NUMBERS, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def changed(**changes):
    return packed({"weight": WEIGHT | changes, "bias": BIAS})


def of_numpy():
    file = io.BytesIO()
    np.savez(file, weight=np.zeros((2, 3), np.float32))
    return file.getvalue()


def of_torch():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
    return file.getvalue()


WHOLE = packed({"__metadata__": {"format": "pt"}, "weight": WEIGHT, "bias": BIAS})

DAMAGED = {
    "the header is a list": packed([]),
    "the header is text": packed(b'"weight"'),
    "the header is a number": packed(b"7"),
    "the header is null": packed(b"null"),
    "the header is no JSON": packed(b"{"),
    "the header is no UTF-8": packed(b'{"\xff": 1}'),
    "the header is nested too deeply": packed(b"[" * 200_000),
    "a tensor is a list": packed({"weight": [], "bias": BIAS}),
    "a tensor is null": packed({"weight": None}),
    "a tensor is nested in another object": packed({"weight": {"weight": WEIGHT}}),
    "a header longer than the file": packed({"weight": WEIGHT}, length=1 << 40),
    "a header of 2**64 bytes": packed({"weight": WEIGHT}, length=(1 << 64) - 1),
    "a header of no bytes": packed({"weight": WEIGHT}, length=0),
    "an empty file": b"",
    "four bytes": b"\x08\0\0\0",
    "cut off within its numbers": WHOLE[:-4],
    "four bytes too many": WHOLE + bytes(4),
    "a negative size": changed(shape=[-1, 3]),
    "two negative sizes": changed(shape=[-2, -3]),
    "a size that is no whole number": changed(shape=[2.0, 3]),
    "a size that is true": changed(shape=[True, 6]),
    "a shape that is a number": changed(shape=6),
    "another shape than it has bytes": changed(shape=[2, 4]),
    "a shape of 2**80 numbers": changed(shape=[1 << 40, 1 << 40]),
    "a shape of 80 sizes": changed(shape=[2, 3, *[1] * 78]),
    "no shape": packed({"weight": {"dtype": "F32", "data_offsets": [0, 24]}}),
    "a type that is a list": changed(dtype=["F32"]),
    "offsets beyond the file": packed({"weight": WEIGHT, "bias": BIAS | {"data_offsets": [1024, 1032]}}),
    "negative offsets": changed(data_offsets=[-24, 0]),
    "offsets in the wrong order": changed(data_offsets=[24, 0]),
    "three offsets": changed(data_offsets=[0, 12, 24]),
    "offsets that are text": changed(data_offsets="ab"),
    "two tensors with the same bytes": packed({"weight": WEIGHT, "bias": BIAS | {"data_offsets": [0, 8]}}),
    "a hole between two tensors": packed(
        {"weight": WEIGHT, "bias": BIAS | {"data_offsets": [28, 36]}}, NUMBERS + b"abcd"
    ),
    "one name twice": packed(b'{"weight": %b, "weight": %b}' % ((json.dumps(WEIGHT).encode(),) * 2), NUMBERS[:24]),
    "one name twice within a tensor": packed(
        b'{"weight": {"dtype": "F32", "shape": [2, 3], "shape": [3, 2], "data_offsets": [0, 24]}}', NUMBERS[:24]
    ),
    "NumPy's .npz": of_numpy(),
    "PyTorch's .pt": of_torch(),
}
SHAPES = {"weight": (2, 3), "bias": (2,)}


@pytest.fixture
def loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    model = fwbench.Model("mine", torch="a:b", inputs=fwbench.normal(2), checkpoint="x.safetensors")

    def load(content):
        (tmp_path / "x.safetensors").write_bytes(content)
        return checkpoint.load(model, SHAPES)

    return load


def test_a_whole_one_is_read(loaded):
    weights = loaded(WHOLE)
    assert weights["weight"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert weights["bias"].tolist() == [6, 7]


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_one_is_one_sentence(loaded, fault, kind):
    with pytest.raises(ModelError) as refused:
        loaded(DAMAGED[kind])
    said = str(refused.value)
    assert "'x.safetensors' cannot be read as safetensors" in said
    assert "\n" not in said
    assert len(said) < 600
    fault(KIND, kind, said)


def test_a_tensor_of_another_kind_is_passed_over_and_counts_as_bytes(loaded):
    names = {"steps": {"dtype": "I64", "shape": [], "data_offsets": [0, 8]}}
    moved = {
        n: t | {"data_offsets": [8 + o for o in t["data_offsets"]]} for n, t in (("weight", WEIGHT), ("bias", BIAS))
    }
    assert loaded(packed(names | moved, bytes(8) + NUMBERS))["bias"].tolist() == [6, 7]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="makes a pipe")
def test_a_pipe_is_none(tmp_path, loaded, fault):
    os.mkfifo(tmp_path / "y")
    model = fwbench.Model("mine", torch="a:b", inputs=fwbench.normal(2), checkpoint="y")
    with pytest.raises(ModelError, match="there is no checkpoint 'y'") as refused:
        checkpoint.load(model, SHAPES)
    fault(KIND, "a pipe in its place", str(refused.value))
