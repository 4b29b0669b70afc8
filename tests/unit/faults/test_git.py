"""Git that is asked for what it cannot give, in real repositories."""

import os
import shutil
import sys

import pytest

from fwbench import git
from fwbench.errors import Absent, UserError
from fwbench.models.project import Project
from fwbench.worker.turns.checkouts import WORKING_TREE, Checkouts
from fwbench.worker.turns.sides import find, sides
from tests.unit.faults.repositories import NET, folder, repository
from tests.unit.processes import gone
from tests.unit.shared import extension, needs

conditions = extension("resume.conditions")

SUSPECTS, RANGES = map(extension, ("causes.suspects", "bisect.ranges"))

__all__ = ["folder", "repository"]

REFUSED = {"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}


# A word that is not a revision


@pytest.fixture
def program(repository, monkeypatch):
    """A program `tool` on the PATH that notes that it has run."""
    tools = repository.folder / "tools"
    tools.mkdir()
    (tools / "tool").write_text(f"#!/bin/sh\ntouch '{repository.folder / 'ran'}'\n")
    (tools / "tool").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    repository.environment["PATH"] = os.environ["PATH"]
    yield
    assert not (repository.folder / "ran").exists()


def refused(call):
    with pytest.raises(UserError) as raised:
        call()
    assert "\n" not in str(raised.value)
    return str(raised.value)


def ways(repository, word):
    """All that resolve a word: a duet, explain, bisect."""
    top = repository.top
    yield lambda: find(word, top)
    if SUSPECTS:
        yield lambda: SUSPECTS.resolve(f"'{word}'", ".", git.top(top), sys.executable)
    if RANGES:
        yield lambda: RANGES.resolve(word, "HEAD", top, sys.executable)


@pytest.mark.slow
def test_where_git_refuses_the_repository_no_program_is_run(repository, program, fault, monkeypatch):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("HOME", str(repository.folder))
    for way in ways(repository, "tool"):
        assert "fatal: detected dubious ownership in repository at" in refused(way)
    assert repository.run("duet", "tool", **REFUSED) == 4
    assert "safe.directory" in repository.said
    fault("a word that is not a revision", "--fwbench-against=WORD, Git refuses the repository", repository.told)


@pytest.mark.parametrize("word", ["tool", "^main", "first..main", "--help", "main:net.py", "main main", ""])
def test_what_is_no_one_commit_is_told(repository, program, fault, word):
    for way in [*ways(repository, word)][: 2 if word else 1]:
        said = refused(way)
        assert f"is no interpreter, and no revision of {repository.top}" in said
    if RANGES and word and ".." not in word:
        assert refused([*ways(repository, word)][2])
    assert find("HEAD", repository.top)[0].revision
    fault("a word that is not a revision", f"--fwbench-against={word}", said)


def test_without_a_repository_no_program_is_run(repository, program, fault):
    shutil.rmtree(repository.top / ".git")
    for way in ways(repository, "tool"):
        said = refused(way)
        assert "fatal: not a git repository" in said
    fault("a word that is not a revision", "WORD outside of a repository", said)


def test_a_path_and_a_version_are_interpreters_even_where_git_refuses(repository, program, monkeypatch):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    tools = repository.folder / "tools"
    (tools / "python3.99").symlink_to(sys.executable)
    for word in (str(tools / "python3.99"), "python3.99"):
        assert find(word, repository.top)[0].python == str(tools / "python3.99")
    with sides("python3.99", Project(repository.top, (repository.top,)), {}) as (_, head):
        assert (head.root / "net.py").exists()


# Git fails


def filtered(repository, smudge):
    """Files with a filter that works when they are committed."""
    for name, value in (("clean", "cat"), ("smudge", smudge), ("required", "true")):
        repository.git("config", f"filter.large.{name}", value)
    (repository.top / ".gitattributes").write_text("net.py filter=large\n")
    repository.commit(3)


def missing_filter(repository):
    filtered(repository, "no-such-program")


def lost_object(repository):
    blob = repository.git("rev-parse", "HEAD:net.py").strip()
    (repository.top / ".git" / "objects" / blob[:2] / blob[2:]).unlink()


def unreadable_index(repository):
    (repository.top / ".git" / "index").write_bytes(b"DIRC" + b"\xff" * 40)


@pytest.mark.parametrize(
    ("break_it", "quoted"),
    [
        pytest.param(missing_filter, "fatal: net.py: smudge filter large failed", marks=pytest.mark.slow),
        (lost_object, "error: unable to read sha1 file of net.py"),
        (unreadable_index, "index"),
    ],
)
def test_what_git_says_is_quoted(repository, fault, folder, break_it, quoted):
    break_it(repository)
    repository.write(4)
    revision = WORKING_TREE if break_it is unreadable_index else repository.git("rev-parse", "HEAD").strip()
    checkouts = Checkouts(repository.top, folder)
    said = refused(lambda: checkouts.make(revision, "base", "HEAD"))
    assert quoted in said
    assert "free space" not in said
    # What failed is not taken for a checkout.
    assert refused(lambda: checkouts.make(revision, "base", "HEAD")) == said
    if break_it is missing_filter:
        assert repository.run("duet") == 4
        assert quoted in repository.said
        assert repository.run("bisect", base="HEAD") == 0
        assert quoted in repository.said
    fault("Git fails", break_it.__name__.replace("_", " "), said)


def test_a_repository_that_git_reads_no_more_is_no_missing_module(repository, fault):
    """It would make a benchmark `new` on base."""
    with sides("HEAD", Project(repository.top, (repository.top,)), {}) as (base, head):
        assert base.has("net")
        unreadable_index(repository)
        said = refused(lambda: head.has("net"))
    fault("Git fails", "a damaged index while a duet runs", said)


def test_a_filter_that_hangs_ends_with_all_that_it_started(repository, fault, folder, monkeypatch):
    filtered(repository, f"sh -c 'sleep 3600 & echo $! > {repository.folder}/pid; wait'")
    monkeypatch.setattr(git, "DEADLINE", 2.0)
    revision = repository.git("rev-parse", "HEAD").strip()
    before = repository.state(repository.top)
    said = refused(lambda: Checkouts(repository.top, folder).make(revision, "base", "HEAD"))
    assert "did not end within 2 s and was killed" in said
    assert gone([int((repository.folder / "pid").read_text())])
    assert repository.state(repository.top) == before
    fault("Git fails", "a filter that hangs", said)


def test_no_hook_of_the_user_is_run(repository, fault, folder, monkeypatch):
    """One that hangs after each checkout, or when an index is written."""
    hooks = repository.folder / "hooks"
    hooks.mkdir()
    for name in ("post-checkout", "post-index-change", "reference-transaction"):
        (hooks / name).write_text("#!/bin/sh\nsleep 3600\n")
        (hooks / name).chmod(0o755)
    repository.git("config", "core.hooksPath", str(hooks))
    monkeypatch.setattr(git, "DEADLINE", 20.0)
    first = git.commit(repository.top, "first")
    checkouts = Checkouts(repository.top, folder)
    checkouts.make(first, "base", "first")
    checkouts.make(WORKING_TREE, "head", "the working tree")
    checkouts.restore("head", first, "net.py")
    assert (folder / "head" / "net.py").read_text() == NET.format(0)
    fault("Git fails", "hooks that hang: post-checkout, post-index-change, reference-transaction")


@needs("resume")
def test_without_git_a_revision_is_one_sentence(repository, fault, monkeypatch):
    monkeypatch.setenv("PATH", str(repository.folder))
    for way in ways(repository, "HEAD"):
        said = refused(way)
        assert "git cannot be run (No such file or directory)" in said
    assert isinstance(git.top(repository.top), Absent)
    assert conditions._repository(repository.top, repository.folder) == (None, None, None)
    fault("Git fails", "git is not installed", said)


# A path with a line feed


@needs("resume")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["line\nfeed", " spaces ", "end\n"])
def test_a_folder_of_any_name(repository, fault, name):
    moved = repository.folder / name
    repository.top.rename(moved)
    repository.top = moved
    repository.write(2)
    assert git.top(moved) == moved
    top, commit, changes = conditions._repository(moved, moved / ".benchmarks")
    assert (top, commit) == (moved, repository.git("rev-parse", "HEAD").strip())
    assert changes
    before = repository.state(moved)
    assert repository.run("duet") == 0
    assert repository.run("explain") == 0
    shutil.rmtree(moved / ".benchmarks")
    after = repository.state(moved)
    assert after == {**before, "status": after["status"]}
    assert repository.seen[0]["base"]["text"] == NET.format(1)
    fault("a path with a line feed", f"a project in the folder {name!r}: duet and explain", repository.told)


@pytest.mark.slow
def test_a_folder_for_temporary_files_with_a_line_feed(repository, fault):
    temporary = repository.folder / "temp\norary"
    temporary.mkdir()
    repository.write(2)
    assert repository.run("explain", TMPDIR=str(temporary)) == 0
    assert list(temporary.iterdir()) == []
    fault("a path with a line feed", "TMPDIR", repository.told)


@needs("resume")
def test_a_file_with_a_line_feed_is_noted(repository, fault, folder):
    name = "new\nfile.py"
    _, _, before = conditions._repository(repository.top, folder)
    (repository.top / name).write_text("1")
    _, _, one = conditions._repository(repository.top, folder)
    (repository.top / name).write_text("2")
    _, _, two = conditions._repository(repository.top, folder)
    assert len({before, one, two}) == 3
    checkouts = Checkouts(repository.top, folder)
    checkouts.make(WORKING_TREE, "head", "the working tree")
    assert (folder / "head" / name).read_text() == "2"
    fault("a path with a line feed", "an untracked module, in conditions and in explain's copy")
