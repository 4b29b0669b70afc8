"""A proof that is interrupted, and one that cannot be kept."""

import dataclasses
import os
from unittest.mock import Mock

import pytest

import fwbench
from fwbench.errors import UserError
from fwbench.ext.proofs import client
from fwbench.models import Model
from fwbench.models.inputs import normal
from fwbench.models.project import Project
from fwbench.models.store import Key, Proved
from fwbench.record.storage import PROOFS
from tests.unit.processes import alive, children
from tests.unit.test_faults import folder  # noqa: F401 (fixture)


def test_a_proof_that_is_interrupted_leaves_no_process(folder, tmp_path, monkeypatch):
    script = tmp_path / "script.py"
    script.write_text('print(\'{"stage": "output"}\', flush=True)\nimport faults\nfaults.hang()\n')
    monkeypatch.setattr(client, "_PROCESS", script)
    pids, before = [], children(os.getpid())

    def interrupt(stage):
        pids.extend(set(children(os.getpid())) - set(before))
        raise KeyboardInterrupt

    pair = fwbench.Model("pair", torch="nets:Torch", jax="nets:Jax", inputs=fwbench.normal(2))
    with pytest.raises(KeyboardInterrupt):
        client.prove(pair, "jax", Project(tmp_path, ()), interrupt)
    assert len(pids) == 1
    assert not alive(pids[0])
    assert list(folder.iterdir()) == []


def test_a_proof_that_cannot_be_kept_is_told_with_what_it_came_to(tmp_path, monkeypatch):
    """The proofs' folder is a file."""
    model = Model("mine", torch="nets:Net", jax="nets:Other", inputs=normal(3), classes=2)
    found = Proved("mine", "jax", "torch", "proved", "", {}, {}, Key("", {}, {}))
    channel = Mock(pid=0, **{"receive.return_value": {"proved": dataclasses.asdict(found)}})
    monkeypatch.setattr(client, "Channel", lambda *_: channel)
    (tmp_path / PROOFS).parent.mkdir()
    (tmp_path / PROOFS).write_text("a file")
    with pytest.raises(UserError, match=r"^mine: jax is proved, but .*proofs cannot be written \(File exists\)"):
        client.prove(model, "jax", Project(tmp_path, ()))
