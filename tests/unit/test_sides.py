"""Base and head out of real git repositories."""

import shutil
import subprocess
import sys

import pytest

from fwbench.errors import UserError
from fwbench.worker import sides as module
from fwbench.worker.sides import find, itself, sides


def git(folder, *arguments):
    identity = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org")
    done = subprocess.run(["git", *identity, "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


PLACES = ("fwbench", "libraries/ours/fwbench")


@pytest.fixture(params=["fwbench"])
def project(tmp_path, request, monkeypatch):
    """A repository of three revisions, whose `fwbench` came with the second one, v1; v0 is the first."""
    folder = tmp_path / "project"
    package = folder / request.param
    package.mkdir(parents=True)
    monkeypatch.setattr(module, "PACKAGE", package)
    git(folder, "init", "--quiet")
    for text in ("before", "first", "second"):
        (folder / "file").write_text(text)
        if text != "before":
            (package / "__init__.py").write_text(text)
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "--message", text)
        if text != "second":
            git(folder, "tag", {"before": "v0", "first": "v1"}[text])
    return folder


def version(side):
    return (side.package / "__init__.py").read_text()


@pytest.mark.parametrize("project", PLACES, indirect=True)
def test_a_revision_is_a_worktree_and_head_the_working_tree(project):
    """Wherever in the repository `fwbench` is."""
    (module.PACKAGE / "__init__.py").write_text("uncommitted")
    with sides("v1", project, {"jax": "/a/python"}) as (base, head):
        assert (version(base), version(head)) == ("first", "uncommitted")
        assert base.title.startswith("v1 (")
        assert head.title.endswith("with uncommitted changes")
        # A path's length moves what lies behind it in memory.
        assert len(str(base.package)) == len(str(head.package))
        assert base.caches != head.caches
        assert base.interpreter("jax") == head.interpreter("jax") == "/a/python"
        assert base.interpreter("torch") == sys.executable
    assert not base.package.exists()
    assert len(git(project, "worktree", "list").splitlines()) == 1


def test_nothing_is_left_behind_by_a_fault(project):
    with pytest.raises(KeyboardInterrupt), sides("v1", project, {}) as (base, _):
        raise KeyboardInterrupt
    assert not base.caches.parent.exists()
    assert len(git(project, "worktree", "list").splitlines()) == 1


def test_a_folder_of_the_repository_stands_for_all_of_it(project):
    (project / "folder").mkdir()
    with sides("v1", project / "folder", {}) as (base, head):
        assert (version(base), version(head)) == ("first", "second")


@pytest.mark.parametrize("project", PLACES, indirect=True)
def test_an_interpreter_runs_the_working_tree(project):
    with sides(sys.executable, project, {"jax": "/a/python"}) as (base, head):
        assert base.interpreter("jax") == sys.executable
        assert head.interpreter("jax") == "/a/python"
        assert version(base) == version(head) == "second"
        assert len(str(base.package)) == len(str(head.package))
        assert head.title.startswith("working tree at ")


def test_the_same_on_both_sides(project):
    with itself() as (base, head):
        assert (base.name, head.name) == ("base", "head")
        assert base.package != head.package
        assert base.package.resolve() == head.package.resolve()


@pytest.mark.parametrize("project", PLACES, indirect=True)
def test_a_revision_from_before_fwbench_is_one_sentence(project):
    """Else both sides would run the working tree's, and nothing could ever have changed."""
    with pytest.raises(UserError, match=r"'v0': that revision of .* has no fwbench where this run's is") as raised:
        find("v0", project)
    assert "\n" not in str(raised.value)


def test_an_fwbench_that_is_not_the_repositorys_has_no_revisions(project, tmp_path, monkeypatch):
    """Neither an installed one, nor one that git does not track."""
    for place in (tmp_path / "site-packages" / "fwbench", project / ".venv" / "fwbench"):
        place.mkdir(parents=True)
        (place / "__init__.py").touch()
        monkeypatch.setattr(module, "PACKAGE", place)
        with pytest.raises(UserError, match=r"pip install --editable"):
            find("v1", project)
        with sides(sys.executable, project, {}) as (base, head):
            assert base.package.resolve() == head.package.resolve() == place


def test_a_branch_named_like_a_program_is_a_revision_and_a_path_an_interpreter(project, monkeypatch):
    """`test` is a program of every Unix; `origin/main` has a separator and is no path."""
    for branch in ("test", "origin/main", "tools/python"):
        git(project, "branch", branch, "v1")
    tool = project / "tools" / "python"
    tool.parent.mkdir()
    tool.symlink_to(sys.executable)
    monkeypatch.chdir(project)
    assert shutil.which("test")
    assert find("test", project).revision == find("origin/main", project).revision == git(project, "rev-parse", "v1")
    assert find("tools/python", project).interpreter == str(tool)
    assert find("git", project).interpreter == shutil.which("git")


@pytest.mark.parametrize(
    ("against", "folder", "words"),
    [
        ("no-such-thing", "project", "no revision of"),
        ("v1", ".", "is in no git repository"),
        ("/no/such/python", "project", "give a revision, or an interpreter's path"),
    ],
)
def test_neither_is_one_sentence(project, tmp_path, against, folder, words):
    with pytest.raises(UserError, match=words):
        find(against, tmp_path / folder)
