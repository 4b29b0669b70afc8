"""Files of the project that are edited while they are measured: the record is of one text, or void."""

import dataclasses
import importlib
import importlib.util
import json
import os
import py_compile
import sys
import time
import zipfile
from pathlib import Path

import pytest

import fwbench
from fwbench.machine import machine
from fwbench.plugin.deciding import Contest
from fwbench.record.measurement import Measurement, Rank
from fwbench.record.workload import Workload
from fwbench.worker.client.starting import PACKAGE
from fwbench.worker.process.witness import Witness
from fwbench.worker.texts import Texts
from fwbench.worker.turns.lanes import AMOUNTS, Lanes
from fwbench.worker.turns.pairs import Pairs
from fwbench.worker.turns.sides import Side
from tests.unit.faults.projects import PART, SLOWER, mine
from tests.unit.plain.plain_lane import LANE
from tests.unit.shared import extension, needs
from tests.unit.suites import commit

KIND = "sources edited while they are measured"
# What the tests' own process has imported.
APART = [str(PACKAGE.parent)]

__all__ = ["mine"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks")


def failed(mine, *arguments):
    """Why a benchmark of a run has failed, as its record says; it has no numbers."""
    assert mine.run(*arguments).ret == 1
    record = next(record for record in mine.records() if record["failure"])
    assert (record["failure"]["kind"], record["samples"]) == ("error", [])
    return record["failure"]["message"]


# While one process measures


def voided(mine, fault, tried):
    """Commit the project, and see the measurement of it fail, as its module has changed."""
    commit(mine.path)
    said = failed(mine, "-k", "b1")
    assert said.startswith("part.py changed while this was measured")
    fault(KIND, tried, said)


@pytest.mark.parametrize("call", [1, 9])
def test_a_module_that_is_edited_while_it_is_measured_voids_the_measurement(mine, fault, call):
    mine.edits(mine.by_another("part.py", SLOWER), call)
    voided(mine, fault, f"another process edits a module at call {call} of a plain run")


def test_a_module_that_was_edited_when_it_was_imported_and_is_put_back_voids_it_too(mine, fault):
    mine.edits(mine.by_another("part.py", PART))
    mine.suite(mine.by_another("part.py", SLOWER))
    voided(mine, fault, "a module is edited, imported by the measured process, and put back before its last call")
    assert (mine.path / "part.py").read_text() == PART


def test_a_module_that_is_read_in_a_call_and_edited_after_it_voids_it(mine, fault):
    mine.edits("global part; import part", 1)
    text = (mine.path / "net.py").read_text().replace("import part\n\nclass", "import pathlib\n\nclass")
    edit = f"pathlib.Path({str(mine.path / 'part.py')!r}).write_text({SLOWER!r})"
    mine.write("net.py", text.replace("        return", f"        if Net.calls == 5: {edit}\n        return"))
    voided(mine, fault, "a module that is imported at the first call is edited at the fifth")


def test_a_file_that_the_network_reads_while_it_is_built_is_part_of_what_was_measured(mine, fault):
    reads = "import json, pathlib\nSIZE = json.loads(pathlib.Path(__file__).with_name('sizes.json').read_text())\n"
    mine.write("sizes.json", "[2, 3]")
    mine.edits(more=reads)
    commit(mine.path)
    assert mine.run("-k", "b1").ret == 0
    assert {"net.py", "part.py", "sizes.json"} <= mine.records()[0]["sources"].keys()
    mine.edits(mine.by_another("sizes.json", "[4]"), more=reads)
    said = failed(mine, "-k", "b1")
    assert said.startswith("sizes.json changed while this was measured")
    fault(KIND, "the configuration that a network read when it was built is edited while it is timed", said)


def test_a_file_that_is_replaced_by_one_of_the_same_text_has_not_changed(mine, fault):
    mine.edits("import os, shutil; shutil.copy(part.__file__, 'new'); os.replace('new', part.__file__)")
    mine.write("net.py", (mine.path / "net.py").read_text().replace("'new'", repr(str(mine.path / "new"))))
    commit(mine.path)
    assert mine.run("-k", "b1").ret == 0
    fault(KIND, "a module is replaced by a new file with the same text, as editors and checkouts do")


# Between the processes of a run


@needs("resume")
def test_a_module_that_is_edited_and_put_back_between_two_benchmarks_is_not_filed_under_the_commit(mine, fault):
    mine.suite(mine.by_another("part.py", SLOWER), mine.by_another("part.py", PART))
    commit(mine.path)
    said = failed(mine)
    assert said.startswith("part.py changed after the run had begun")
    assert all(record["failure"] for record in mine.records())
    result = mine.run("--fwbench-resume", "--collect-only", "-q")
    assert "0 of 2 benchmarks taken" in result.stdout.str()
    fault(KIND, "a module is edited when a run has begun, and put back before it ends", said)


def test_without_a_repository_the_second_benchmark_must_have_read_the_text_of_the_first(mine, fault):
    mine.suite(after=mine.by_another("part.py", SLOWER))
    said = failed(mine)
    assert said.startswith("part.py changed after the run had begun")
    assert [bool(record["failure"]) for record in mine.records()] == [False, True]
    fault(KIND, "a module is edited between two benchmarks of a project that is in no repository", said)


@needs("resume")
def test_a_resumed_run_takes_nothing_that_read_another_text_than_is_there_now(mine, fault):
    """No import statement names the module, and no commit holds it, so the run's conditions say nothing of it."""
    mine.edits()
    mine.write("net.py", (mine.path / "net.py").read_text().replace("import part", "part = __import__('part')"))
    mine.write("part.py", SLOWER)
    assert mine.run().ret == 0
    mine.write("part.py", PART)
    said = mine.run("--fwbench-resume", "--collect-only").stdout.str()
    assert "0 of 2 benchmarks taken" in said
    line = next(line for line in said.splitlines() if "part.py has changed" in line)
    fault(KIND, "--fwbench-resume, when a module was edited while the journal's run went on and is put back", line)


# Duets and turns


@pytest.mark.slow
def test_a_duet_whose_side_is_edited_between_two_pairs_is_no_comparison(mine, monkeypatch, fault):
    """From the second pair on it would measure another head, and be called slower than base."""
    mine.write(
        "conftest.py",
        f"""
from fwbench.worker.turns.pairs import Pairs

play, played = Pairs._play, []

def edited(self, *arguments):
    played.append(1)
    if len(played) == 2:
        {mine.by_another("part.py", SLOWER)}
    return play(self, *arguments)

Pairs._play = edited
pytest_plugins = ["fwbench.plugin"]
""",
    )
    commit(mine.path)
    monkeypatch.setattr(Pairs, "_play", Pairs._play)
    result = mine.run("--fwbench-against=HEAD", "-k", "b1")
    said = next(line for line in result.outlines if "part.py changed" in line)
    assert result.ret == 1
    assert "same sources" not in result.stdout.str()
    assert "regressed" not in result.stdout.str()
    fault(KIND, "a module of the working tree is edited between two pairs of a duet", said)


@pytest.fixture
def here(mine, tmp_path, monkeypatch):
    """A network in turns, alone, and of so few that a round is short."""
    monkeypatch.setitem(AMOUNTS, "cpu", dataclasses.replace(AMOUNTS["cpu"], seconds=0.1))
    model = fwbench.Model("mine", plain="net:Net", inputs=fwbench.normal(2))
    side = Side("here", "this run", PACKAGE, tmp_path / "caches", mine.path, [mine.path])
    workload = Workload("", "mine")
    return workload, lambda: Lanes(side, {workload: [LANE.name]}, {"mine": model}, machine(), "cpu", 60.0)


def test_a_round_of_other_sources_than_were_measured_does_not_count(mine, here, fault):
    workload, lanes = here
    assert mine.run("-k", "b1").ret == 0
    (measured,) = mine.records()
    mine.write("part.py", SLOWER)
    contest = Contest(workload, (LANE.name,), 1.0, {LANE.name: []}, sources={LANE.name: measured["sources"]})
    contest.add(lanes().play([workload])[workload])
    assert (contest.played, contest.over) == (0, True)
    said = contest.fault.failure.message
    assert "part.py" in said
    fault(KIND, "a module is edited after its lane was measured, before it takes turns", said)


def test_a_round_in_which_a_source_is_edited_does_not_count(mine, here, fault):
    workload, lanes = here
    mine.edits(mine.by_another("part.py", SLOWER), 12)
    contest = Contest(workload, (LANE.name,), 1.0, {LANE.name: []})
    contest.add(lanes().play([workload])[workload])
    assert (contest.played, contest.over) == (0, True)
    said = contest.fault.failure.message
    assert said.startswith("part.py changed while")
    fault(KIND, "a module is edited during a round of turns", said)


@needs("cluster")
def test_ranks_that_read_other_texts_measure_nothing(fault):
    """A rank may import a module later than another one, so that only the whole shows it."""
    combined = extension("cluster.ranks.together").combined
    ranks = [Measurement(Workload("torch", "mine"), (1.0,), sources={"a.py": text, "b.py": "b"}) for text in "xy"]
    ranks[0].sources["of_the_first.py"] = "z"
    found = combined(ranks, [Rank(0, "", ""), Rank(1, "", "")])
    assert (found.failure.kind, found.samples) == ("error", ())
    said = found.failure.message
    assert said.startswith("a.py changed")
    assert combined(ranks[:1] * 2, [Rank(0, "", ""), Rank(1, "", "")]).failure is None
    fault(KIND, "a module is edited between its import by one rank and by another", said)


# What is seen


@pytest.fixture
def read(tmp_path, monkeypatch):
    """A project of which this process imports modules; those that it has imported before are not seen."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    with Witness(str(tmp_path), APART) as witness:
        others = witness.sources()
    sources, edited = Witness.sources, Witness.edited
    monkeypatch.setattr(Witness, "sources", lambda self: {n: d for n, d in sources(self).items() if n not in others})
    monkeypatch.setattr(Witness, "edited", lambda self: [name for name in edited(self) if name not in others])
    yield tmp_path
    for name in sys.modules.keys() - before:
        del sys.modules[name]


def test_bytecode_of_an_older_text_with_the_same_size_and_second_is_not_run(read, monkeypatch, fault):
    """Python takes it: it compares the size, and the time in whole seconds."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path, moment = read / "a_racy_module.py", time.time()
    path.write_text("x = 1")
    os.utime(path, (moment, moment))
    py_compile.compile(str(path))
    path.write_text("x = 2")
    os.utime(path, (moment, moment))
    importlib.invalidate_caches()
    with Witness(str(read), APART) as witness:
        assert importlib.import_module("a_racy_module").x == 2
    assert (witness.sources().keys(), witness.edited()) == ({"a_racy_module.py"}, [])
    fault(KIND, "a module is edited within the second of its last import, to a text of the same size")


def test_bytecode_that_is_surely_of_the_source_is_run(read, monkeypatch):
    """To compile a large project at each start would take long."""
    path, moment = read / "an_old_module.py", time.time() - 60
    path.write_text("x = 1")
    os.utime(path, (moment, moment))
    py_compile.compile(str(path))
    # As long, so that only running it tells.
    cached = Path(importlib.util.cache_from_source(str(path)))
    cached.write_bytes(cached.read_bytes()[:16] + __import__("marshal").dumps(compile("x = 3", str(path), "exec")))
    with Witness(str(read), APART) as witness:
        assert importlib.import_module("an_old_module").x == 3
    assert witness.sources().keys() == {"an_old_module.py"}


def test_modules_of_every_kind_are_seen(read, fault):
    (read / "space").mkdir()
    (read / "space" / "inner.py").write_text("x = 1")
    (read / "sourceless.py").write_text("x = 1")
    py_compile.compile(str(read / "sourceless.py"), cfile=str(read / "sourceless.pyc"))
    (read / "sourceless.py").unlink()
    with zipfile.ZipFile(read / "zipped.zip", "w") as archive:
        archive.writestr("in_an_archive.py", "x = 1")
    (read / "by_path.py").write_text("x = 1")
    (read / "executed.txt").write_text("x = 1")
    with Witness(str(read), APART) as witness:
        with witness.building():
            importlib.import_module("space.inner")
            importlib.import_module("sourceless")
            sys.path.insert(0, str(read / "zipped.zip"))
            importlib.import_module("in_an_archive")
            spec = importlib.util.spec_from_file_location("by_path", read / "by_path.py")
            spec.loader.exec_module(importlib.util.module_from_spec(spec))
            exec((read / "executed.txt").read_text())
            (read / "made.json").write_text("[]")
            assert json.loads((read / "made.json").read_text()) == []
        sys.path.remove(str(read / "zipped.zip"))
        names = {"space/inner.py", "sourceless.pyc", "zipped.zip", "by_path.py", "executed.txt"}
        # Not what the process itself has written.
        assert witness.sources().keys() == names
        for name in names:
            (read / name).write_bytes((read / name).read_bytes() + b" ")
        assert set(witness.edited()) == names
    fault(
        KIND,
        "a module of a namespace package, one without a source, one in an archive, one loaded by its path, and a text "
        "that is executed are edited",
    )


def test_what_an_installer_has_put_there_is_not_the_users(read):
    (read / "site-packages").mkdir()
    (read / "site-packages" / "an_installed_module.py").write_text("x = 1")
    sys.path.insert(0, str(read / "site-packages"))
    try:
        with Witness(str(read), APART) as witness:
            importlib.import_module("an_installed_module")
    finally:
        sys.path.remove(str(read / "site-packages"))
    assert witness.sources() == {}


def test_a_project_elsewhere_is_named_by_its_whole_path(read, tmp_path_factory):
    """As an editable install is."""
    (read / "of_another_project.py").write_text("x = 1")
    with Witness(str(tmp_path_factory.mktemp("project")), APART) as witness:
        importlib.import_module("of_another_project")
    assert witness.sources().keys() == {str(read / "of_another_project.py")}


def test_nothing_of_python_is_left_changed(read):
    loaders = importlib.machinery.SourceFileLoader, importlib.machinery.ExtensionFileLoader
    before = [dict(vars(loader)) for loader in loaders], open
    with Witness(str(read)) as witness, witness.building():
        pass
    assert ([dict(vars(loader)) for loader in loaders], open) == before


def test_uncommitted_text_is_the_one_to_be_measured(mine):
    commit(mine.path)
    mine.write("part.py", SLOWER)
    mine.write("new.py", "x = 1")
    texts = Texts(mine.path)
    for unlike in ([], ["net.py"]):
        for name in unlike:
            mine.write(name, "x = 2")
        with Witness(str(mine.path)) as witness, witness.building():
            for name in ("part.py", "new.py", "net.py"):
                (mine.path / name).read_text()
        assert texts.unlike(witness.sources()) == unlike
