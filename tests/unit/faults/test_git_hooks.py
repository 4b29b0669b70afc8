"""fwbench within Git's hooks: what Git then has is what it has without the hook."""

import ast
import itertools
import shutil

import pytest

from fwbench import git as module
from tests.unit.faults.repositories import GATES, NET, repository
from tests.unit.shared import ONE_PAIR, finish

__all__ = ["repository"]


def commit_all(repository, top):
    (top / "net.py").write_text(NET.format(2))
    repository.git("commit", "--all", "--quiet", "--message", "Version 2", top=top)


def commit_a_path(repository, top):
    (top / "net.py").write_text(NET.format(2))
    (top / "other").write_text("staged")
    repository.git("add", "other", top=top)
    repository.git("commit", "--quiet", "--message", "Version 2", "--", "net.py", top=top)


def amend(repository, top):
    (top / "net.py").write_text(NET.format(2))
    repository.git("commit", "--all", "--amend", "--quiet", "--no-edit", top=top)


def rebase(repository, top):
    repository.git("rebase", "--quiet", "main", "beside", top=top)


def push(repository, top):
    repository.git("push", "--quiet", "origin", "HEAD:refs/heads/pushed", top=top)


def literally(repository, top):
    (top / "net.py").write_text(NET.format(2))
    repository.git("--literal-pathspecs", "commit", "--all", "--quiet", "--message", "Version 2", top=top)


OPERATIONS = {
    "commit --all": (commit_all, ("pre-commit",)),
    "commit PATH": (commit_a_path, ("pre-commit",)),
    "commit --amend": (amend, ("pre-commit", "post-rewrite")),
    "rebase": (rebase, ("pre-rebase", "post-rewrite")),
    "push": (push, ("pre-push",)),
    "--literal-pathspecs commit": (literally, ("pre-commit",)),
}
# The working tree may be HEAD's.
BASES = {"explain": "first"}
FAST = ("commit --all", "duet")


@pytest.mark.parametrize(
    ("operation", "gate"),
    [
        pytest.param(operation, gate, marks=() if (operation, gate) == FAST else pytest.mark.slow)
        for operation in OPERATIONS
        for gate in GATES
    ],
)
def test_a_hook_changes_nothing(repository, fault, operation, gate):
    """The operation with the hook, and without it in a copy of the repository."""
    operate, names = OPERATIONS[operation]
    twin = repository.folder / "twin"
    shutil.copytree(repository.top, twin, symlinks=True)
    shutil.copytree(repository.folder / "remote", repository.folder / "twins-remote")
    repository.git("remote", "set-url", "origin", str(repository.folder / "twins-remote"), top=twin)
    base = repository.git("rev-parse", "HEAD").strip()
    repository.hook(names, gate, base=BASES.get(gate, "HEAD"))
    operate(repository, repository.top)
    operate(repository, twin)
    for one in (repository.top, twin):
        for made in (".benchmarks", "__pycache__"):
            shutil.rmtree(one / made, ignore_errors=True)
    assert repository.state(repository.top) == repository.state(twin)
    assert repository.state(repository.folder / "remote") == repository.state(repository.folder / "twins-remote")
    assert len(repository.codes) == len(names)
    if gate in ("duet", "explain", "bisect"):
        assert set(repository.codes) == {"0"}
        noted = repository.seen
        assert all(side["has"] for sides in noted for side in sides.values())
        if gate == "duet":
            # HEAD is still the commit before, as the hook runs first.
            told = noted[0]["base"]
            assert (told["text"], told["commit"], told["staged"]) == (NET.format(1), base, "")
            version = 2 if "commit" in operation else 1
            assert noted[0]["head"]["text"] == NET.format(version)
    fault("a gate within a Git hook", f"`git {operation}` with {gate} in {' and '.join(names)}", repository.told)


@pytest.mark.parametrize(
    ("bare", "name", "gate"),
    [
        pytest.param(*asked, marks=() if asked == (True, "pre-receive", "duet") else pytest.mark.slow)
        for asked in itertools.product((True, False), ("pre-receive", "update", "post-receive"), GATES)
    ],
)
def test_a_receivers_hook_changes_nothing(repository, fault, bare, name, gate):
    """A bare receiver with a checkout beside it, or one with a working tree. What is pushed may be kept apart."""
    receiver, where = repository.folder / "receiver", ".."
    if bare:
        where = repository.folder / "deployed"
        repository.git("clone", "--quiet", "--bare", str(repository.top), str(receiver))
        repository.git("clone", "--quiet", str(receiver), str(where))
    else:
        repository.git("clone", "--quiet", str(repository.top), str(receiver))
    repository.git("tag", "first", "HEAD~1", "--force", top=receiver if not bare else where)
    if bare:
        repository.git("config", "gc.auto", "0", top=receiver)
    deployed = where if bare else receiver
    twin = repository.folder / "twin"
    shutil.copytree(receiver, twin, symlinks=True)
    base = repository.git("rev-parse", "HEAD").strip()
    before = repository.state(deployed) if bare else None
    repository.commit(2)
    repository.hook([name], gate, where=where, base=BASES.get(gate, "HEAD"), top=receiver)
    for each in (receiver, twin):
        repository.git("push", "--quiet", str(each), "HEAD:refs/heads/pushed")
    for made in (".benchmarks", "__pycache__"):
        shutil.rmtree(deployed / made, ignore_errors=True)
    assert repository.state(receiver) == repository.state(twin)
    assert before is None or repository.state(deployed) == before
    assert len(repository.codes) == 1
    if gate in ("duet", "explain", "bisect"):
        assert repository.codes == ["0"]
        assert repository.seen[-1]["base"]["has"]
    if gate == "duet":
        assert repository.seen[0]["base"]["commit"] == base
    kind = "bare receiver" if bare else "receiver with a working tree"
    fault("a gate within a Git hook", f"`git push` to a {kind} with {gate} in {name}", repository.told)


@pytest.mark.parametrize("name", ["pre-receive", pytest.param("post-receive", marks=pytest.mark.slow)])
def test_a_commit_that_is_still_kept_apart_is_no_new_benchmark(repository, fault, name):
    receiver = repository.folder / "receiver"
    repository.git("clone", "--quiet", str(repository.top), str(receiver))
    repository.commit(2)
    repository.hook([name], "duet", where="..", base="'$new'", top=receiver)
    repository.git("push", "--quiet", str(receiver), "HEAD:refs/heads/pushed")
    if name == "pre-receive":
        assert repository.codes == ["4"]
        assert "git keeps a push apart until pre-receive has ended" in repository.said
    else:
        assert repository.codes == ["0"]
        assert repository.seen[0]["base"]["text"] == NET.format(2)
    fault("a gate within a Git hook", f"--fwbench-against=(the pushed commit) in {name}", repository.told)


def test_what_git_calls_local_is_in_no_environment(monkeypatch):
    """Whatever this machine's git lists."""
    listed = finish("git", "rev-parse", "--local-env-vars", check=True)
    names = [*listed.stdout.split(), "GIT_QUARANTINE_PATH", "GIT_LITERAL_PATHSPECS"]
    assert "GIT_INDEX_FILE" in names
    assert module.unbound({**dict.fromkeys(names, "x"), "GIT_SSH": "kept"}) == {"GIT_SSH": "kept"}


@pytest.mark.slow
def test_real_processes_of_both_sides_ask_git_about_their_own_tree(repository, fault):
    """Networks that ask for their commit when they are imported, measured by a hook of `git commit --all`."""
    asking = (
        "import os, subprocess\n\n"
        "told = [\n"
        "    subprocess.run(['git', *asked], cwd=os.path.dirname(__file__), capture_output=True, text=True).stdout\n"
        "    for asked in (('rev-parse', 'HEAD'), ('status', '--porcelain', '-uno'))\n"
        "]\n"
        "open(os.environ['SEEN'], 'a').write(repr([__file__.split(os.sep)[-2], *told]) + '\\n')\n"
    )
    (repository.folder / "driver.py").write_text("import sys\n\nimport pytest\n\nsys.exit(pytest.main(sys.argv[2:]))\n")
    conftest = repository.top / "conftest.py"
    conftest.write_text(f"{ONE_PAIR}\n{conftest.read_text()}")
    (repository.top / "net.py").write_text(asking + NET.format(2))
    repository.git("commit", "--all", "--quiet", "--message", "Asking")
    base = repository.git("rev-parse", "HEAD")
    repository.hook(["pre-commit"], "duet")
    (repository.top / "net.py").write_text(asking + NET.format(3))
    repository.git("commit", "--all", "--quiet", "--message", "Changed")
    assert repository.git("show", "HEAD:net.py") == asking + NET.format(3)
    seen = {
        ast.literal_eval(line)[0]: ast.literal_eval(line)[1:]
        for line in (repository.folder / "seen").read_text().splitlines()
    }
    assert seen == {"base": [base, ""], "head": [base, " M net.py\n"]}
    fault("a gate within a Git hook", "networks that call `git` on import, in `git commit --all`", repository.told)
