"""Base and head out of real git repositories."""

import os
import shutil
import sys

import pytest

from fwbench.errors import UserError
from fwbench.models.project import Project
from fwbench.worker.turns import sides as module
from fwbench.worker.turns.sides import find, sides
from tests.unit.shared import git

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
def test_a_revision_is_a_checkout_and_head_the_working_tree(project):
    """Wherever in the repository `fwbench` is."""
    (module.PACKAGE / "__init__.py").write_text("uncommitted")
    with sides("v1", Project(project, (project,)), {"jax": "/a/python"}) as (base, head):
        assert (version(base), version(head)) == ("first", "uncommitted")
        assert base.title.startswith("v1 (")
        assert head.title.endswith("with uncommitted changes")
        # A path's length moves what lies behind it in memory.
        assert len(str(base.package)) == len(str(head.package))
        assert base.caches != head.caches
        assert base.interpreter("jax") == head.interpreter("jax") == "/a/python"
        assert base.interpreter("torch") == sys.executable
    assert not base.package.exists()
    assert not (project / ".git" / "worktrees").exists()


def test_nothing_is_left_behind_by_a_fault(project):
    with pytest.raises(KeyboardInterrupt), sides("v1", Project(project, (project,)), {}) as (base, _):
        raise KeyboardInterrupt
    assert not base.caches.parent.exists()
    assert not (project / ".git" / "worktrees").exists()


def test_a_folder_of_the_repository_stands_for_all_of_it(project):
    (project / "folder").mkdir()
    with sides("v1", Project(project / "folder", (project / "folder",)), {}) as (base, head):
        assert (version(base), version(head)) == ("first", "second")


@pytest.mark.parametrize("project", PLACES, indirect=True)
def test_an_interpreter_runs_the_working_tree(project):
    with sides(sys.executable, Project(project, (project,)), {"jax": "/a/python"}) as (base, head):
        assert base.interpreter("jax") == sys.executable
        assert head.interpreter("jax") == "/a/python"
        assert version(base) == version(head) == "second"
        assert len(str(base.package)) == len(str(head.package))
        assert head.title.startswith("working tree at ")


@pytest.mark.parametrize("project", PLACES, indirect=True)
def test_a_revision_from_before_fwbench_is_one_sentence(project):
    """Else both sides would run the working tree's, and nothing could ever have changed."""
    with pytest.raises(UserError, match=r"'v0': .*that revision of .* has none in") as raised:
        find("v0", project)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("against", ["v0", sys.executable])
@pytest.mark.parametrize("place", ["outside", "project/.venv/lib/site-packages"])
def test_an_installed_fwbench_measures_both_sides(project, tmp_path, monkeypatch, place, against):
    """One that the repository does not track, be it in a virtual environment inside of it."""
    package = tmp_path / place / "fwbench"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("installed")
    monkeypatch.setattr(module, "PACKAGE", package)
    with sides(against, Project(project, (project,)), {}) as (base, head):
        assert base.package == head.package == package
        assert (base.root / "file").read_text() == ("before" if against == "v0" else "second")
        assert (head.root / "file").read_text() == "second"
        # Under another interpreter, both sides are the working tree.
        assert base.tree == head.tree == (project if against == "v0" else None)


def test_each_side_looks_for_the_users_modules_in_its_own_tree(project, tmp_path):
    """Whatever of the search path lies in the repository, with head's uncommitted files."""
    (project / "tests").mkdir()
    (project / "file").write_text("uncommitted")
    shared = tmp_path / "shared"
    folders = (project / "tests", project, shared, tmp_path)
    with sides("v1", Project(project / "tests", folders), {}) as (base, head):
        assert base.path == [base.root / "tests", base.root, shared, tmp_path]
        assert head.path == [head.root / "tests", head.root, shared, tmp_path]
        assert (base.path[1] / "file").read_text() == "first"
        assert (head.path[1] / "file").read_text() == "uncommitted"
        assert len(str(base.root)) == len(str(head.root))


def test_a_link_to_the_repository_is_the_repository(project, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(project)
    with sides("v1", Project(link, (link,)), {}) as (base, head):
        assert (base.path, head.path) == ([base.root], [head.root])


def test_which_modules_are_the_repositorys(project):
    """Committed, staged, or not yet known to git, in whatever folder; none that git ignores, and none that is gone."""
    for path in ("file.py", "src/mine/net.py", "src/mine/__init__.py", "new.py", ".venv/theirs.py"):
        file = project / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (project / ".gitignore").write_text(".venv\n")
    git(project, "add", "src/mine/net.py", "file.py")
    with sides("v1", Project(project, ()), {}) as (base, head):
        (project / "file.py").unlink()
        names = ("file", "mine.net", "mine", "net", "new", "theirs", "torch", "fwbench")
        assert [name for name in names if head.has(name)] == ["mine.net", "mine", "net", "new", "fwbench"]
        assert [name for name in names if base.has(name)] == ["fwbench"]


def test_a_branch_named_like_a_program_is_a_revision_and_a_path_an_interpreter(project, monkeypatch):
    """`test` is a program of every Unix; `origin/main` has a separator and is no path."""
    for branch in ("test", "origin/main", "tools/python"):
        git(project, "branch", branch, "v1")
    tool = project / "tools" / "python"
    tool.parent.mkdir()
    tool.symlink_to(sys.executable)
    monkeypatch.chdir(project)
    assert shutil.which("test")
    assert (
        find("test", project)[0].revision == find("origin/main", project)[0].revision == git(project, "rev-parse", "v1")
    )
    assert find("tools/python", project)[0].python == str(tool)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
    (tool.parent / "python3.99").symlink_to(sys.executable)
    assert find("python3.99", project)[0].python == str(tool.parent / "python3.99")


@pytest.mark.parametrize(
    ("against", "folder", "words"),
    [
        ("no-such-thing", "project", "no revision of"),
        ("v1", ".", "fatal: not a git repository"),
        ("/no/such/python", "project", "give a revision, an interpreter's path, "),
        ("git", "project", "'git' is no interpreter, and no revision of"),
    ],
)
def test_neither_is_one_sentence(project, tmp_path, against, folder, words):
    with pytest.raises(UserError, match=words):
        find(against, tmp_path / folder)
