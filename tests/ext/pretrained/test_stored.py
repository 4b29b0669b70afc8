"""The file of published weights, which several containers may keep in one cache."""

from pathlib import Path

import numpy as np
import pytest

from fwbench.ext.pretrained import stored
from fwbench.models import CATALOG

MODEL = CATALOG["resnet50"]
WEIGHTS = {"weight": np.arange(6.0, dtype=np.float32).reshape(2, 3).T, "bias": np.ones(2, np.float32)}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FWBENCH_CACHE", str(tmp_path))


def test_weights_are_read_as_they_were_stored():
    file = stored.save(MODEL, WEIGHTS)
    assert file == stored.path(MODEL)
    read = stored.load(MODEL)
    assert read.keys() == WEIGHTS.keys()
    for name, array in WEIGHTS.items():
        np.testing.assert_array_equal(read[name], array)


def test_what_a_killed_process_has_left_of_a_file_is_removed():
    folder = stored.path(MODEL).parent
    folder.mkdir(parents=True)
    (folder / ".fwbench-0123.new").write_bytes(b"half of a file")
    stored.save(MODEL, WEIGHTS)
    assert list(folder.iterdir()) == [stored.path(MODEL)]


def test_two_processes_of_the_same_number_write_into_two_files(monkeypatch):
    """As in two containers that have one cache."""
    written, replace = [], Path.replace
    monkeypatch.setattr(Path, "replace", lambda self, target: written.append(self.name) or replace(self, target))
    for _ in range(2):
        stored.save(MODEL, WEIGHTS)
    assert len({*written}) == 2
