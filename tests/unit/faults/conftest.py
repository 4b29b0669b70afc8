"""The fixture that files what a test has shown."""

import importlib
import json
import sys
import tempfile
from pathlib import Path

import pytest

from fwbench.record.lanes import LANES
from tests.unit.faults import seen

ROOT = Path(__file__).parents[3]


@pytest.fixture
def fault(record_property, tmp_path):
    """Call it after the assertions: it adds a row to the table of docs/evidence/faults.md.

    Arguments of the call:
        kind: what is broken, in a few words that all members of the kind share.
        tried: the input or the fault.
        said: what the user was told; empty: nothing was to be said.
        lost: what was lost.
    """

    def file(kind: str, tried: str, said: str = "", lost: str = "nothing") -> None:
        for folder in (str(tmp_path), tempfile.gettempdir(), str(ROOT), sys.base_prefix):
            said = said.replace(folder, "...")
        record_property("fault", json.dumps({"kind": kind, "tried": tried, "lost": lost, "said": said.strip()}))

    return file


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Workers of one server for all tests of a module, as no network may harm the next one's measurement."""
    harness = seen.Harness(tmp_path_factory.mktemp("small"))
    yield harness
    harness.workers.close()


@pytest.fixture
def small(monkeypatch, shared):
    """Workers that measure the networks of tests/unit/plain/small_lane.py."""
    monkeypatch.syspath_prepend(seen.PLAIN)
    lanes = importlib.import_module("small_lane")
    monkeypatch.setenv("PYTHONPATH", seen.PATH)
    for lane in (lanes.LANE, lanes.FIXED):
        monkeypatch.setitem(LANES._all, lane.name, lane)
    return shared
