"""The copy of the working tree for `explain`, and checkouts of every kind of repository."""

import shutil

import pytest

from fwbench.worker.turns.checkouts import WORKING_TREE, Checkouts
from tests.unit.faults.repositories import NET, folder, repository
from tests.unit.shared import extension, finish, needs

conditions = extension("resume.conditions")

__all__ = ["folder", "repository"]


# For the driver: a pair whose head cannot be measured.
FAILING = """
    from fwbench.compare.pair import Fault
    from fwbench.record.measurement import Failure

    for each in workloads:
        arrived(each, Fault("base", "head", Failure("error", "no data.bin", "duet")))
    return {}
    sides = {"""


@pytest.mark.slow
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


@pytest.mark.slow
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
    finish("git", "merge", "main", cwd=repository.top, env=repository.environment)
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
    assert repository.git("describe", "--tags", "--dirty", top=base) == "v1.0\n"
    assert repository.git("status", "--porcelain", top=base) == ""
    assert repository.git("status", "--porcelain", top=head) == repository.git("status", "--porcelain", top=top)
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


@needs("resume")
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
