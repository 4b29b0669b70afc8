"""Base and head out of real git repositories."""

import subprocess
import sys

import pytest

from fwbench.compare.sides import find, itself, sides
from fwbench.errors import UserError


def git(folder, *arguments):
    identity = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org")
    done = subprocess.run(["git", *identity, "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path):
    """A repository of two revisions; the first one is tagged."""
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "--quiet")
    for text in ("first", "second"):
        (folder / "file").write_text(text)
        git(folder, "add", "file")
        git(folder, "commit", "--quiet", "--message", text)
        if text == "first":
            git(folder, "tag", "v1")
    return folder


def test_a_revision_is_a_worktree_and_head_the_working_tree(project):
    (project / "file").write_text("uncommitted")
    with sides("v1", project, {"jax": "/a/python"}) as (base, head):
        assert (base.root / "file").read_text() == "first"
        assert (head.root / "file").read_text() == "uncommitted"
        assert base.title.startswith("v1 (")
        assert head.title.endswith("with uncommitted changes")
        # A path's length moves what lies behind it in memory.
        assert len(str(base.root)) == len(str(head.root))
        assert base.caches != head.caches
        assert base.interpreter("jax") == head.interpreter("jax") == "/a/python"
        assert base.interpreter("torch") == sys.executable
    assert not base.root.exists()
    assert len(git(project, "worktree", "list").splitlines()) == 1


def test_nothing_is_left_behind_by_a_fault(project):
    with pytest.raises(KeyboardInterrupt), sides("v1", project, {}) as (base, _):
        raise KeyboardInterrupt
    assert not base.root.parent.exists()
    assert len(git(project, "worktree", "list").splitlines()) == 1


def test_a_folder_of_the_repository_stands_for_all_of_it(project):
    (project / "folder").mkdir()
    with sides("v1", project / "folder", {}) as (base, head):
        assert (base.root / "file").exists()
        assert (head.root / "file").exists()


def test_an_interpreter_runs_the_working_tree(project):
    with sides(sys.executable, project, {"jax": "/a/python"}) as (base, head):
        assert base.interpreter("jax") == sys.executable
        assert head.interpreter("jax") == "/a/python"
        assert (base.root / "file").read_text() == (head.root / "file").read_text() == "second"
        assert len(str(base.root)) == len(str(head.root))


def test_the_same_on_both_sides(project):
    with itself(project) as (base, head):
        assert (base.name, head.name) == ("base", "head")
        assert base.root != head.root
        assert base.root.resolve() == head.root.resolve()


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
