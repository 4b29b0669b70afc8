"""`fwbench explain` over real commits and environments, with given pairs, then once with real pairs."""

import dataclasses
import json
import math
import os
import re
import shutil
import sys
import sysconfig
import textwrap
import venv
from pathlib import Path

import pytest

from fwbench.commands.cli import main
from fwbench.compare.pair import Fault, Pair
from fwbench.ext.causes import series
from fwbench.ext.causes.edits import Edits
from fwbench.ext.causes.series import Series
from fwbench.ext.causes.steps import OverError
from fwbench.ext.causes.suspects import Between
from fwbench.record.measurement import Failure
from tests.unit.recorded import outputs
from tests.unit.shared import finish, git

ASKED = ("device=cpu", "--model=tiny", "--lane=torch")

# The seconds of a call, as Python.
COST = """
seconds = 1.0

# One.

more = 0.0

# Two.

most = 0.0
"""


@pytest.fixture
def folder(tmp_path, searches):
    """A project whose module `mine/cost.py` says how long a call takes, committed once."""
    folder = tmp_path / "project"
    (folder / "mine").mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    (folder / "mine" / "cost.py").write_text(COST)
    (folder / "mine" / "before.py").write_text("one = 1\n")
    (folder / "notes.txt").write_text("one")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "One")
    searches(folder)
    return folder


def edit(folder, *changes, path="mine/cost.py"):
    text = (folder / path).read_text()
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    (folder / path).write_text(text)


class Given:
    """Pairs without noise: a side's module, variables and interpreter say how long its call takes."""

    def __init__(self, base, head, models, machine, device, deadline, profiled, servers, cold, warm, metered):
        self.sides = {"base": base, "head": head}

    def play(self, workloads, arrived):
        (workload,) = workloads
        arrived(workload, self.pair())

    def pair(self):
        costs, described = {}, {}
        for name, side in self.sides.items():
            assert side.name == name
            values = {}
            try:
                exec((side.root / "mine" / "cost.py").read_text(), values)
            except Exception as error:
                return Fault(name, side.title, Failure("error", repr(error), "duet"))
            cost = values["seconds"] + values["more"] + values["most"] + float(side.variables.get("EXTRA", 0))
            costs[name] = cost + self.installed(side)
            sources = dict.fromkeys(("mine/before.py", "mine/cost.py", "mine/new.py"), "")
            program = {"form": "f", "digest": str(values["most"]), "operators": {"add": int(10 * values["most"])}}
            count = values.get("weights", 1)
            computes = outputs(1 + values["most"], weights=str(count), numbers=count)
            described[name] = {"sources": sources, "program": {**program, "absent": {}}, "outputs": computes}
        change = math.log(costs["head"] / costs["base"])
        return Pair({"latency": change}, {}, {}, described, 0.0, 1.0)

    def installed(self, side):
        """The seconds that a side's distribution `slow` adds, which the tests' own interpreter has not."""
        if (python := side.interpreter("torch")) == sys.executable:
            return 0.0
        code = "import slow; print(slow.seconds)"
        return float(finish(python, "-c", code, env={**os.environ, **side.variables}).stdout or 0)


@pytest.fixture
def given(monkeypatch):
    monkeypatch.setattr(series, "Pairs", Given)
    return monkeypatch


@pytest.fixture
def explain(command):
    return lambda base="main", head=".", *options, code=0: command("explain", base, head, *ASKED, *options, code=code)


def test_each_part_that_makes_a_difference_is_named_with_its_size_and_the_programs_change(given, folder, explain):
    edit(folder, ("1.0", "1.1"), ("# One.", "# Uno."), ("most = 0.0", "most = 0.2"), ("more = 0.0", "more = 0"))
    edit(folder, ("one", "two"), path="notes.txt")
    out = explain()
    assert "1. mine/cost.py, line 2\n" in out
    assert "2. mine/cost.py, line 6\n  3. mine/cost.py, line 10\n  4. notes.txt\n" in out
    assert "HEAD's latency differs from BASE's by +30.0% (+30.0% to +30.0%)." in out
    # The largest first; each is put back after those before it.
    larger = out.index("+20.0% (+20.0% to +20.0%) comes from mine/cost.py, line 10: it is gone with that as in BASE")
    assert larger < out.index(
        "+8.3% (+8.3% to +8.3%) comes from mine/cost.py, line 2: it is gone with that as in BASE; "
        "the framework's program stays the same.\n"
    )
    assert "it is gone with that as in BASE; what it does to the program: 2 more add" in out
    assert out.count("computes something else") == 1
    assert "HEAD computes something else with mine/cost.py, line 10 than with that as in BASE: outputs differ by" in out
    assert git(folder, "status", "--short") == "M mine/cost.py\n M notes.txt"
    assert not (folder / ".git" / "worktrees").exists()


def test_the_sides_of_other_weights_are_called_base_and_head(given, folder, explain):
    edit(folder, ("# One.", "weights = 2"))
    assert "BASE has 1 weights, and HEAD 2" in explain()


def test_a_part_is_named_by_the_metric_that_was_asked_for(given, folder, explain):
    """A table of operators, whose numbers are times, is of no use there."""

    class Hungry(Given):
        def __init__(self, *of, profiled, **options):
            assert (profiled, options["cold"], options["warm"]) == (False, [], [])
            super().__init__(*of, profiled, **options)

        def pair(self):
            pair = super().pair()
            values = {side: {"latency": 1.0, "peak_memory": 1.0} for side in ("base", "head")}
            differences = {"latency": 0.0, "peak_memory": pair.differences["latency"]}
            return dataclasses.replace(pair, differences=differences, values=values)

    given.setattr(series, "Pairs", Hungry)
    edit(folder, ("1.0", "1.1"), ("most = 0.0", "most = 0.02"))
    out = explain("main", ".", "--metric=peak_memory")
    assert "HEAD's peak_memory differs from BASE's by +12.0% (+12.0% to +12.0%)." in out
    # A change of 2 % is below the metric's threshold.
    assert out.count("it is gone") == 1
    assert "comes from mine/cost.py, line 2: it is gone with that as in BASE" in out
    assert "the time" not in out
    assert "--metric: unknown metric 'memory': " in explain("main", ".", "--metric=memory", code=4)


def test_without_a_difference_no_part_is_named(given, folder, explain):
    edit(folder, ("more = 0.0", "more = 0"))
    out = explain()
    assert "differs from BASE's by +0.0%" in out
    assert "No part is confirmed to make a difference." in out


def test_of_two_files_the_one_that_makes_the_difference_is_named(given, folder, explain):
    edit(folder, ("1", "2"), path="mine/before.py")
    edit(folder, ("1.0", "1.1"))
    out = explain()
    assert "comes from mine/cost.py, line 2: it is gone with that as in BASE" in out
    assert out.count("it is gone") == 1


def test_parts_that_cannot_be_put_back_apart_are_named_together(given, folder, explain):
    edit(folder, ("\nseconds", "\ntenth = 0.1\n\n\nseconds"), ("more = 0.0", "more = tenth"))
    out = explain()
    assert "1. mine/cost.py, lines 1 to 3\n  2. mine/cost.py, line 9\n" in out
    assert "comes from mine/cost.py, lines 1 to 3 and mine/cost.py, line 9: it is gone" in out
    assert "HEAD with part 1 put back cannot be measured: NameError(\"name 'tenth' is not defined\")" in out


def test_several_parts_that_cannot_be_put_back_apart_take_one_line(given, folder, explain):
    edit(folder, ("\nseconds", "\ntenth = 0.1\n\n\nseconds"), ("more = 0.0", "more = fifth = 2 * tenth"))
    edit(folder, ("most = 0.0", "most = fifth"))
    said = [line for line in explain().splitlines() if "cannot be measured" in line]
    why = "NameError(\"name 'tenth' is not defined\")"
    assert said == [f"HEAD with part 1 or with parts 1 to 2 put back cannot be measured; with part 1: {why}"]


def test_a_new_module_a_deleted_file_and_a_variable_are_parts(given, folder, explain):
    (folder / "mine" / "new.py").write_text("new = 1\n")
    (folder / "notes.txt").unlink()
    out = explain("EXTRA=0.5 main", ".")
    assert "1. the new file mine/new.py\n  2. notes.txt\n  3. EXTRA ('0.5' in base, unset in head)\n" in out
    assert "-33.3% (-33.3% to -33.3%) comes from EXTRA ('0.5' in base, unset in head): it is gone" in out


def install(site, name, version, files):
    """A distribution as pip leaves it."""
    files = {
        **files,
        f"{name}-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
    }
    for path, text in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
    (site / f"{name}-{version}.dist-info" / "RECORD").write_text("".join(f"{path},,\n" for path in files))


def environment(folder, version, seconds):
    """An interpreter with a distribution `slow` of this version."""
    venv.create(folder, symlinks=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    install(site, "slow", version, {"slow/__init__.py": f"seconds = {seconds}\n"})
    return str(folder / "bin" / "python")


def test_a_distribution_of_another_version_is_put_back_by_links(given, folder, tmp_path, explain):
    base, head = environment(tmp_path / "base", "1.0", 0.1), environment(tmp_path / "head", "2.0", 0.32)
    out = explain(base, head)
    assert f"1. slow (1.0 in base, 2.0 in head)\n  2. the interpreter {base}\n" in out
    assert "+20.0% (+20.0% to +20.0%) comes from slow (1.0 in base, 2.0 in head): it is gone" in out


def test_of_a_shared_folder_entries_are_linked_and_what_links_cannot_replace_is_told(given, folder, tmp_path, explain):
    pythons = []
    for name, version, seconds in (("base", "1.0", 0.1), ("head", "2.0", 0.32)):
        pythons.append(environment(tmp_path / name, version, seconds))
        (site,) = (tmp_path / name).glob("lib/*/site-packages")
        install(site, "other", version, {"shared/other.py": ""})
        install(site, "another", version, {"shared/another.py": ""})
        # A package of two distributions, one that Python finds by a .pth file, and one of which nothing is known.
        install(site, "owner", version, {"package/__init__.py": ""})
        install(site, "guest", version, {"package/guest.py": ""})
        install(site, "editable", version, {"__editable__.editable.pth": "/somewhere"})
        # A file that two distributions have.
        install(site, "first", version, {"first/__init__.py": "", "LICENSE": ""})
        install(site, "second", version, {"second/__init__.py": "", "LICENSE": ""})
        install(site, "bare", version, {})
        # Python prefers a package that has `__init__.py`.
        install(site, "opened", version, {"opened/__init__.py" if name == "head" else "opened/net.py": ""})
        install(site, "closed", version, {"closed/__init__.py" if name == "base" else "closed/net.py": ""})
        (site / f"bare-{version}.dist-info" / "RECORD").unlink()
    before = sorted(tmp_path.glob("base/lib/*/site-packages/**/*"))
    out = explain(*pythons)
    assert re.findall(r"^  \d\. (\w+)", out, re.MULTILINE) == ["another", "closed", "other", "slow", "the"]
    apart = re.findall(r"cannot be put back separately, only with the interpreter: (\w+)", out)
    assert apart == ["bare", "editable", "first", "guest", "opened", "owner", "second"]
    assert "comes from slow (1.0 in base, 2.0 in head): it is gone" in out
    assert sorted(tmp_path.glob("base/lib/*/site-packages/**/*")) == before


def test_the_import_path_that_base_states_stays_when_distributions_are_put_back(given, folder, tmp_path, explain):
    base, head = environment(tmp_path / "base", "1.0", 0.1), environment(tmp_path / "head", "2.0", 0.1)
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "slow.py").write_text("seconds = 0.32\n")
    made = []
    given.setattr(Between, "side", lambda self, *of, make=Between.side: made.append(make(self, *of)) or made[-1])
    explain(f"{base} PYTHONPATH={tmp_path / 'first'}", head)
    paths = [side.variables.get("PYTHONPATH", "") for side in made]
    assert all(path.endswith(str(tmp_path / "first")) for path in paths if "links-" in path)
    assert any("links-" in path for path in paths)


def test_an_edit_in_the_moment_of_the_commit_is_seen(given, folder, explain):
    """Git knows such an edit of equal size by the index's time alone."""
    git(folder, "config", "core.trustctime", "false")
    index, file = folder / ".git" / "index", folder / "mine" / "cost.py"
    moment = (1_700_000_000, 1_700_000_000)
    os.utime(file, moment)
    git(folder, "add", "mine/cost.py")
    edit(folder, ("1.0", "1.1"))
    for path in (index, file):
        os.utime(path, moment)
    assert "comes from mine/cost.py, line 2: it is gone" in explain()


def test_a_link_that_is_put_back_to_a_file_leaves_what_it_points_to(given, folder, tmp_path, explain):
    (tmp_path / "precious").write_text("mine")
    (folder / "notes.txt").unlink()
    (folder / "notes.txt").symlink_to(tmp_path / "precious")
    edit(folder, ("1.0", "1.1"))
    # The variable is put back after the link, so there is a side with the link alone.
    assert "comes from mine/cost.py, line 2: it is gone" in explain("EXTRA=0.5 main", ".")
    assert (tmp_path / "precious").read_text() == "mine"


@pytest.mark.parametrize(
    ("change", "base", "head", "words"),
    [
        (("1.0", "1.1"), "main", "nothing", "'nothing' is no interpreter, and "),
        (("1.0", "1.1"), "main", "main", "'main' and 'main' are the same: give two"),
        (("1.0", "1.1"), "main main", ".", "'main main' names two revisions"),
        (("1.0", "1.1"), "main '", ".", "cannot be split into words"),
        (("1.0", "1.1"), f"{sys.executable} {sys.executable}", ".", "names two interpreters"),
        # Nothing that the workload uses.
        (("# One.", "# Uno."), "main", ".", "BASE and HEAD differ in nothing that torch-tiny-inference-b1 uses"),
        (("1.0", "x"), "main", ".", "HEAD cannot be measured (NameError(\"name 'x' is not defined\")): name another."),
    ],
)
def test_what_cannot_be_searched_is_one_sentence(given, folder, explain, change, base, head, words):
    edit(folder, change)
    assert words in explain(base, head, code=4)


def test_without_a_repository_a_dot_is_the_folder_as_it_is(given, folder, explain):
    shutil.rmtree(folder / ".git")
    part = "+50.0% (+50.0% to +50.0%) comes from EXTRA (unset in base, '0.5' in head): it is gone"
    assert part in explain(".", ". EXTRA=0.5")


def test_a_folder_for_traces_that_cannot_be_made_is_said_before_anything_is_measured(given, folder, capsys):
    (folder / "file").write_text("")
    assert main(["explain", "main", ".", *ASKED, f"--traces={folder / 'file' / 'traces'}"]) == 4
    captured = capsys.readouterr()
    assert "this folder cannot be made (Not a directory): name another." in captured.err
    assert not captured.out


def test_changes_near_each_other_are_one_and_others_stand_alone():
    base = textwrap.dedent("""\
        a = 1
        b = 2
        c = 3
        d = 4  # Comment.
        e = 5
        f = 6
        g = 7
        """)
    head = base.replace("a = 1", "a = 10").replace("c = 3", "c = 30").replace("Comment", "Remark")
    edits = Edits(base, head.replace("g = 7\n", ""))
    assert list(edits.titles()) == ["lines 1 to 4", "what was removed after line 6"]
    assert edits.undone(set()) == head.replace("g = 7\n", "")
    assert edits.undone({1}) == head
    assert edits.undone({0, 1}) == base
    assert list(Edits(base, base.replace("Comment", "Remark").replace("7", "8")).titles()) == ["line 7"]
    assert list(Edits(base, base.removeprefix("a = 1\n")).titles()) == ["what was removed at the top"]
    assert list(Edits("\f\na = 1\n", "\f\na = 2\n").titles()) == ["line 2"]


@pytest.mark.slow
def test_it_names_the_line_of_real_processes(tmp_path, searches, monkeypatch, explain):
    """A longer loop; four pairs are enough to see that the line is put back."""
    play, played = Series.play, []

    def few(self, first, last):
        played.append((first, last))
        if len(played) > 4:
            raise OverError("these were enough")
        return play(self, first, last)

    monkeypatch.setattr(Series, "play", few)
    folder = tmp_path / "project"
    (folder / "mine").mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    (folder / "mine" / "net.py").write_text(
        textwrap.dedent("""\
            import torch


            class Net(torch.nn.Linear):
                def __init__(self):
                    super().__init__(4, 4)

                def forward(self, x):
                    x = torch.relu(x)
                    for _ in range(10):
                        x = torch.tanh(x)
                    return super().forward(x)
            """)
    )
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "One")
    edit(folder, ("range(10)", "range(200)"), path="mine/net.py")
    searches(folder)
    out = explain("main", ".", f"--traces={tmp_path / 'traces'}", code=1)
    assert "1. mine/net.py, line 10\n" in out
    assert re.search(r"^ +\S+ [mun]s +\S+ [mun]s +\+\S+ [mun]s +10 to 200  tanh 1x4$", out, re.MULTILINE)
    runs = {
        file.name: sum(event["name"] == "tanh" for event in json.loads(file.read_text())["traceEvents"])
        for file in (tmp_path / "traces").iterdir()
    }
    assert runs["head.json"] == 20 * runs["base.json"] > 0
    shown = re.search(r"^  putting back part 1: (?:-(\d+)\.\d%|1/(\d+)).*, 4 pairs$", out, re.MULTILINE)
    # A tenth of the calls of tanh are left, which take most of the time on any machine.
    assert int(shown[1] or 0) > 25 or int(shown[2]) >= 10
    assert "The search ended early, as these were enough." in out
