"""Git that is asked for what it cannot give, and what is copied of a working tree; with real repositories."""

import os
import shutil
import subprocess
import sys
import time

import pytest

from fwbench import git
from fwbench.errors import Absent, UserError
from fwbench.models.project import Project
from fwbench.plugin import conditions
from fwbench.worker.turns import ranges, suspects
from fwbench.worker.turns.checkouts import WORKING_TREE, Checkouts
from fwbench.worker.turns.sides import find, sides
from tests.unit.faults.repositories import NET, make

REFUSED = {"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}


@pytest.fixture
def repository(tmp_path):
    return make(tmp_path)


@pytest.fixture
def folder(tmp_path):
    """A place for checkouts."""
    made = tmp_path / "made"
    made.mkdir()
    return made


# For the driver: a pair whose head cannot be measured.
FAILING = """
    from fwbench.compare.pair import Fault
    from fwbench.record.measurement import Failure

    return {each: Fault("base", "head", Failure("error", "no data.bin", "duet")) for each in workloads}
    sides = {"""


# The working tree is copied for explain


def test_explain_copies_what_git_would_commit_and_new_modules(repository, fault):
    top = repository.top
    repository.write(2)
    (top / ".env").write_text("PASSWORD=1")
    (top / "new.py").write_text("")
    (top / "build.so").write_text("")
    (top / ".gitignore").write_text("__pycache__/\n.benchmarks/\nbuild.so\n")
    with (top / "weights.bin").open("wb") as file:
        file.truncate(300 << 20)
    repository.write(2)
    before = repository.state(top)
    assert repository.run("explain") == 0
    assert repository.state(top) == before
    assert list((repository.folder / "temporary").iterdir()) == []
    head, base = repository.seen[0]["base"], repository.seen[0]["head"]
    assert (head["text"], base["text"]) == (NET.format(2), NET.format(1))
    committed = {".git", ".gitignore", "conftest.py", "net.py", "pytest.ini", "test_suite.py"}
    assert set(head["files"]) == committed | {"new.py"}
    assert set(base["files"]) == committed
    assert "1. net.py, line" in repository.said
    fault("the working tree is copied for explain", "`explain HEAD .` with an untracked .env and one of 300 MB")


def test_an_untracked_file_that_head_needs_is_named(repository, fault, monkeypatch, folder):
    """And goes along once the user has named it to git, whose store of objects does not get it."""
    (repository.top / "data.bin").write_text("data")
    checkouts = Checkouts(repository.top, folder)
    checkouts.make(WORKING_TREE, "one", "the working tree")
    assert checkouts.left_out == ["data.bin"]
    assert not (folder / "one" / "data.bin").exists()
    repository.git("add", "--intent-to-add", "data.bin")
    before = repository.state(repository.top)
    again = folder / "again"
    again.mkdir()
    Checkouts(repository.top, again).make(WORKING_TREE, "one", "the working tree")
    assert (again / "one" / "data.bin").read_text() == "data"
    assert repository.state(repository.top) == before
    (repository.top / "net.py").write_text("raise OSError('no data.bin')")
    repository.git("rm", "--cached", "--quiet", "data.bin")
    driver = repository.folder / "driver.py"
    driver.write_text(driver.read_text().replace("    sides = {", FAILING, 1))
    assert repository.run("explain") == 4
    assert "name another, or `git add` what it needs of data.bin." in repository.said
    fault("the working tree is copied for explain", "HEAD reads an untracked file", repository.told)


@pytest.mark.slow
def test_a_copy_whose_owner_is_killed_leaves_the_repository_as_it_was(repository, fault):
    repository.write(2)
    before = repository.state(repository.top)
    assert repository.run("explain", KILLED="1") == -9
    assert repository.state(repository.top) == before
    assert len(list((repository.folder / "temporary").iterdir())) == 1
    assert repository.run("explain") == 0
    assert list((repository.folder / "temporary").iterdir()) == []
    fault("the working tree is copied for explain", "SIGKILL while pairs are played")


def test_a_split_index_and_a_conflict_are_copied(repository, fault, folder):
    """Git would write a split index's shared part beside its own; a conflict has no tree."""
    repository.git("update-index", "--split-index")
    repository.git("switch", "--quiet", "beside")
    repository.commit(7)
    subprocess.run(["git", "merge", "main"], cwd=repository.top, env=repository.environment, capture_output=True)
    repository.git("config", "core.splitIndex", "true")
    for number in range(20):
        (repository.top / f"new{number}.py").write_text("")
    before = repository.state(repository.top)
    assert "UU net.py" in before["status"]
    Checkouts(repository.top, folder).make(WORKING_TREE, "one", "the working tree")
    assert (folder / "one" / "net.py").read_text() == (repository.top / "net.py").read_text()
    assert repository.state(repository.top) == before
    fault("the working tree is copied for explain", "a split index, and a merge that is not done")


def odd(repository):
    repository.git("config", "core.quotePath", "true")
    return repository.top


def sha256(repository):
    shutil.rmtree(repository.top / ".git")
    repository.git("init", "--quiet", "--object-format=sha256")
    return repository.top


def linked(repository):
    repository.git("worktree", "add", "--quiet", "--detach", str(repository.folder / "linked"))
    return repository.folder / "linked"


def bare(repository):
    """Of which the user has a worktree alone."""
    repository.git("clone", "--quiet", "--bare", str(repository.top), str(repository.folder / "bare"))
    repository.git("worktree", "add", "--quiet", str(repository.folder / "linked"), top=repository.folder / "bare")
    return repository.folder / "linked"


def shallow(repository):
    address = f"file://{repository.top}"
    repository.git("clone", "--quiet", "--depth=1", address, str(repository.folder / "shallow"))
    return repository.folder / "shallow"


def partial(repository):
    repository.git("config", "uploadpack.allowFilter", "true")
    repository.git("config", "uploadpack.allowAnySHA1InWant", "true")
    address = f"file://{repository.top}"
    repository.git("clone", "--quiet", "--filter=blob:none", address, str(repository.folder / "partial"))
    return repository.folder / "partial"


def shared(repository):
    repository.git("clone", "--quiet", "--shared", str(repository.top), str(repository.folder / "shared"))
    return repository.folder / "shared"


def sparse(repository):
    (repository.top / "large").mkdir()
    (repository.top / "large" / "file").write_text("")
    repository.commit(6)
    repository.git("sparse-checkout", "set", "--no-cone", "/*", "!/large/")
    return repository.top


def separate(repository):
    """As a submodule has it: the place of the working tree is a setting of the repository."""
    repository.git("init", "--quiet", "--separate-git-dir", str(repository.folder / "apart"))
    repository.git("config", "core.worktree", str(repository.top))
    return repository.top


def lines(repository):
    (repository.top / ".gitattributes").write_text("*.py text eol=crlf\n")
    return repository.top


@pytest.mark.parametrize("kind", [odd, sha256, linked, bare, shallow, partial, shared, sparse, separate, lines])
def test_a_checkout_of_each_kind_of_repository_is_whole_and_apart(repository, folder, kind):
    """To code in it, it is a clean repository at its commit; base's files are put back into head's."""
    top = kind(repository)
    names = ["net.py", ":(top)x", "a*", " space ", "line\nfeed", "-x", "gone"]
    if kind is not partial:
        for name in names[1:]:
            (top / name).write_text("one")
        (top / "ab").write_text("one")
        repository.git("add", "--all", top=top)
        repository.git("commit", "--quiet", "--allow-empty", "--message", "Odd names", top=top)
    first = repository.git("rev-parse", "HEAD", top=top).strip()
    repository.git("tag", "v1.0", top=top)
    names = [name for name in names if (top / name).exists()]
    for name in names[:-1]:
        (top / name).write_text("two")
    (top / names[-1]).unlink()
    (top / "new.py").write_text("two")
    before = repository.state(top)
    checkouts = Checkouts(top, folder)
    checkouts.make(first, "state-base", "base")
    checkouts.make(WORKING_TREE, "state-0000", "head")
    base, head = folder / "state-base", folder / "state-0000"
    environment = {"env": repository.environment, "cwd": base, "text": True, "check": True, "capture_output": True}
    described = subprocess.run(["git", "describe", "--tags", "--dirty"], **environment)
    assert described.stdout == "v1.0\n"
    assert not subprocess.run(["git", "status", "--porcelain"], **environment).stdout
    dirty = subprocess.run(["git", "status", "--porcelain"], **{**environment, "cwd": head}).stdout
    assert dirty == repository.git("status", "--porcelain", top=top)
    changed = checkouts.changed(first, WORKING_TREE)
    assert sorted(changed) == sorted([*names, "new.py"])
    assert (base / "large").exists() == (head / "large").exists() is False
    for name in names[:-1]:
        assert ((base / name).read_text(), (head / name).read_text()) != ("two", "two")
        assert checkouts.text(WORKING_TREE, name) == (head / name).read_text() == "two"
    for name in changed:
        checkouts.restore("state-0000", first, name)
    assert not (head / "new.py").exists()
    assert {path.name: path.read_bytes() for path in head.iterdir() if path.is_file() and path.name != ".git"} == {
        path.name: path.read_bytes() for path in base.iterdir() if path.is_file() and path.name != ".git"
    }
    assert repository.state(top) == before


def test_a_branch_without_a_commit_is_copied(repository, fault, folder):
    first = repository.git("rev-parse", "first").strip()
    repository.git("switch", "--quiet", "--orphan", "empty")
    (repository.top / "net.py").write_text("new")
    repository.git("add", "net.py")
    checkouts = Checkouts(repository.top, folder)
    checkouts.make(WORKING_TREE, "head", "the working tree")
    assert (folder / "head" / "net.py").read_text() == "new"
    assert checkouts.text(first, "net.py") == NET.format(0)
    top, commit, changes = conditions._repository(repository.top, folder)
    assert (top, commit, bool(changes)) == (repository.top, None, True)
    fault("the working tree is copied for explain", "`explain TAG .` on a branch without a commit")


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
    yield lambda: suspects.resolve(f"'{word}'", ".", git.top(top), sys.executable)
    yield lambda: ranges.resolve(f"{word}..HEAD", top, sys.executable)


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
    if word and ".." not in word:
        assert refused([*ways(repository, word)][2])
    assert find("HEAD", repository.top).revision
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
        assert find(word, repository.top).interpreter == str(tools / "python3.99")
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
        (missing_filter, "fatal: net.py: smudge filter large failed"),
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
    pid = int((repository.folder / "pid").read_text())
    for _ in range(100):
        if not os.path.exists(f"/proc/{pid}"):
            break
        time.sleep(0.1)
    assert not os.path.exists(f"/proc/{pid}")
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


def test_without_git_a_revision_is_one_sentence(repository, fault, monkeypatch):
    monkeypatch.setenv("PATH", str(repository.folder))
    for way in ways(repository, "HEAD"):
        said = refused(way)
        assert "git cannot be run (No such file or directory)" in said
    assert isinstance(git.top(repository.top), Absent)
    assert conditions._repository(repository.top, repository.folder) == (None, None, None)
    fault("Git fails", "git is not installed", said)


# A path with a line feed


@pytest.mark.parametrize(
    "name", ["line\nfeed", *(pytest.param(name, marks=pytest.mark.slow) for name in (" spaces ", "end\n"))]
)
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
