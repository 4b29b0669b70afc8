"""The fixture that files what a test has shown."""

import json
import tempfile

import pytest


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
        for folder in (str(tmp_path), tempfile.gettempdir()):
            said = said.replace(folder, "...")
        record_property("fault", json.dumps({"kind": kind, "tried": tried, "lost": lost, "said": said.strip()}))

    return file
