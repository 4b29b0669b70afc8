"""Releases of a distribution as what `bisect` and `explain` compare."""

import math

import pytest

from fwbench.compare.pair import Pair
from fwbench.ext.causes import searching, series
from tests.ext.bisect.test_environments import below, has, made, wheels  # noqa: F401 (fixtures)


class Given:
    """Pairs without noise: a call takes as long as the version that the side's interpreter imports."""

    def __init__(self, base, head, models, machine, device, deadline, profiled, servers, cold, warm, metered):
        self.sides = (base, head)

    def play(self, workloads, arrived):
        (workload,) = workloads
        costs = []
        for side in self.sides:
            assert side.path == [side.root]
            costs.append(float(has(side.interpreter("torch"), "framework", side.variables)))
        arrived(workload, Pair({"latency": math.log(costs[1] / costs[0])}, {}, {}, {}, 0.0, 1.0))


@pytest.fixture
def project(below, tmp_path, searches, monkeypatch):
    """A project without a repository, whose workers run on the interpreter `below`."""
    folder = tmp_path / "project"
    folder.mkdir()
    searches(folder)
    monkeypatch.setattr(searching, "pythons", lambda settings: {"torch": below})
    monkeypatch.setattr(series, "Pairs", Given)
    return folder


ASKED = ("device=cpu", "--model=tiny", "--lane=torch")


def test_bisect_names_the_release_and_what_came_with_it(project, command):
    out = command("bisect", "framework==1.0..3.0", *ASKED)
    assert out.startswith("torch-tiny-inference-b1 in 4 releases, from framework 1.0 to framework 3.0\n")
    assert "framework 3.0 was skipped, as it could not be measured: framework 3.0 cannot be installed here: " in out
    step = "It became slower with framework 2.0: +81.8% (+81.8% to +81.8%) of latency, confirmed by "
    assert step in out
    said = out[out.index(step) :].splitlines()[0]
    assert said.endswith(
        " These changed with it: compiler 1.1 to 2.0, layers 1.0 to 2.0. Changelog: https://example.org/2.0"
    )
    assert "It became slower with framework 1.1: +10.0%" in out
    bars = out[out.index("Latency, that of framework 1.0 being 1:") :].splitlines()[1:4]
    assert [bar.split() for bar in bars] == [
        ["framework", "1.0", "1.000", "#" * 20],
        ["framework", "1.1", "1.100", "#" * 22],
        ["framework", "2.0", "2.000", "#" * 40],
    ]
    assert "of such searches name a wrong release." in out


@pytest.mark.parametrize("asked", ["framework==2.0..2.0", "framework==2.0..1.0", "nothing==1..2", "framework==4..5"])
def test_bisect_needs_two_releases(project, command, asked):
    assert "uv finds no " in command("bisect", asked, *ASKED, code=4)


def test_explain_takes_a_release_as_a_side(project, command):
    out = command("explain", "framework==1.0", "framework==2.0", *ASKED)
    for part in ("compiler (1.0 in base, 2.0 in head)", "framework (1.0 in base, 2.0 in head)"):
        assert part in out
    assert "+100.0% (+100.0% to +100.0%) comes from framework (1.0 in base, 2.0 in head): it is gone" in out


@pytest.mark.parametrize(
    ("base", "words"),
    [
        ("framework==3.0", "framework 3.0 cannot be installed here: "),
        ("framework==1.0 framework==1.1", "names two interpreters or releases: name one"),
    ],
)
def test_explain_refuses_a_release_in_one_sentence(project, command, base, words):
    assert words in command("explain", base, "framework==2.0", *ASKED, code=4)
