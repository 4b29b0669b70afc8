"""What the engine does without Ray, which these tests do not start."""

import os
import re
import socket
import sys

import pytest

import fwbench
from fwbench.errors import UserError
from fwbench.ext.cluster.engine import Place
from fwbench_ray import Ray, RaySlot, places


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("ray://127.0.0.1:10001", "run pytest on a node of the cluster"),
        ("127.0.0.1:{free}", "no Ray cluster answers at RAY_ADDRESS=127.0.0.1:{free} ("),
    ],
)
def test_a_cluster_that_cannot_be_joined_is_one_sentence(monkeypatch, address, sentence):
    """Before Ray is imported, which would wait for minutes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    monkeypatch.setenv("RAY_ADDRESS", address.format(free=free))
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=re.escape(sentence.format(free=free))):
        Ray()


def test_without_ray_one_sentence_says_what_to_install(monkeypatch):
    """And the environment is as before."""
    before = dict(os.environ)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"^Ray cannot be imported \(.*\): `pip install ray` on every node$"):
        Ray()
    assert dict(os.environ) == before


def test_nodes_on_one_host_share_its_cores():
    accelerators = places([("n2", "b", 1), ("n1", "a", 1), ("n3", "a", 2), ("n4", "c", 0)], gpu=False)
    assert [(p.node, p.host, p.part, p.parts) for p in accelerators] == [
        *(("n1", "a", 0, 3), ("n3", "a", 1, 3), ("n3", "a", 2, 3)),
        ("n2", "b", 0, 1),
    ]


def test_a_slot_without_its_share_of_the_cpus_says_so(monkeypatch):
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(os, "getpriority", lambda *_: 15)
    monkeypatch.setattr(os, "setpriority", refuse)
    slot = RaySlot(0, Place("n1", "a", 0, 1, False), {}, fwbench.__version__)
    assert "(niceness 15), which RAY_worker_niceness=0" in slot.describe().fault
    lowered = []
    monkeypatch.setattr(os, "setpriority", lambda *asked: lowered.append(asked))
    assert slot.describe().fault == ""
    assert lowered == [(os.PRIO_PROCESS, 0, 0)]
