"""Audits whose pairs name modules, folders and repositories that lead elsewhere, or none."""

import os
import sys

import pytest

from fwbench.commands.cli import main
from fwbench.errors import UserError
from fwbench.ext.proofs.audit import fetching, pairs
from fwbench.worker.client import asking
from tests.unit.shared import git

KIND = "module paths of an audit"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="makes links")

COMMIT = "0" * 40
PAIR = """
[[pair]]
name = "mine"
input = {{ normal = [8] }}
torch = {{ network = "port:net", package = "torch" }}
jax = {{ network = "port:net", repository = {repository}, commit = "{commit}"{rest} }}
{more}
"""


def quoted(text):
    return '"' + "".join(f"\\U{ord(character):08x}" for character in text) + '"'


@pytest.fixture
def listed(tmp_path):
    """Write a list of one pair."""

    def write(repository="https://example.org/somebody/port", rest="", more="", commit=COMMIT):
        path = tmp_path / "list.toml"
        path.write_text(PAIR.format(repository=quoted(repository), rest=rest, more=more, commit=commit))
        return path

    return write


@pytest.fixture
def refused(listed, tmp_path, capsys):
    """The sentence with which a list is refused; nothing was written beside it."""

    def said(*arguments, **fields):
        path = listed(*arguments, **fields)
        assert main(["audit", str(path), "--cache", str(tmp_path / "cache")]) == 4
        sentence = capsys.readouterr().err
        assert sentence.count("\n") == 1
        assert [found.name for found in tmp_path.iterdir()] == ["list.toml"]
        return sentence

    return said


MODULES = (
    "a/b",
    "../x",
    "..",
    ".",
    "/x",
    "a.b",
    "a b",
    "a-b",
    "1a",
    "class",
    "None",
    "port",
    "a\\b",
    "a\nb",
    "a\0b",
    "é!",
)


FOLDERS = ("..", "../x", "a/../../b", "/tmp", "a\0b")
UNNAMED = ("", "https://example.org/a/1", "https://example.org/a/class")
NO_TEXTS = ("code = 7", "note = ['a']", "kind = true", "fix = 'x'", "needs = 7", "needs = [7]")
# Without it the pair would be refused for the name of its repository.
NAMED = ', module = "theirs"'
# A module is one name, a folder lies in its repository, and a repository whose name is no module needs one.
MISTAKES = {
    **{f"module = {module!r}": {"rest": f", module = {quoted(module)}"} for module in MODULES},
    **{f"folder = {folder!r}": {"rest": f"{NAMED}, folder = {quoted(folder)}"} for folder in FOLDERS},
    "module = 7": {"rest": ", module = 7"},
    "folder = ['a']": {"rest": f"{NAMED}, folder = ['a']"},
    **{mistake: {"rest": NAMED, "more": mistake} for mistake in NO_TEXTS},
    **{f"repository = {name!r} without module": {"repository": name} for name in UNNAMED},
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_pair_that_makes_no_sense_is_one_sentence(refused, fault, mistake):
    said = refused(**MISTAKES[mistake])
    assert "pair 'mine'" in said
    fault(KIND, mistake, said)


def test_two_repositories_have_two_names(listed, fault):
    path = listed("https://example.org/somebody/theirs")
    other = f'repository = "https://example.org/else/theirs", commit = "{COMMIT}"'
    path.write_text(path.read_text().replace('package = "torch"', other))
    with pytest.raises(UserError, match="two repositories are called 'theirs'") as refused:
        pairs.read(path)
    fault(KIND, "two repositories of one name", str(refused.value))


def test_a_list_that_is_nested_too_deeply_is_one_sentence(tmp_path, capsys, fault):
    (tmp_path / "list.toml").write_text("x = " + "[" * 100_000)
    assert main(["audit", str(tmp_path / "list.toml")]) == 4
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    fault(KIND, "a list that is nested too deeply", said)


# What a repository holds


@pytest.fixture
def repository(tmp_path):
    """A repository with a link of this name; the function returns it as a source, and its folder."""

    def make(link, to, folder="somebody/port"):
        made = tmp_path / "origins" / folder
        made.mkdir(parents=True)
        git(made, "init", "--quiet")
        (made / "net.py").write_text("def net(x):\n    return x\n")
        if link:
            (made / link).parent.mkdir(parents=True, exist_ok=True)
            os.symlink(to, made / link)
        git(made, "add", ".")
        git(made, "commit", "--quiet", "--message=first")
        return pairs.Source(str(made), git(made, "rev-parse", "HEAD"), module="theirs")

    return make


@pytest.mark.parametrize(
    ("link", "to"),
    [
        ("x.py", "../../outside.py"),
        ("x.py", "/etc/passwd"),
        ("a/x.py", "../../x.py"),
        ("x.py", ".."),
        ("x.py", "a/../../b"),
    ],
)
def test_a_link_does_not_leave_its_repository(tmp_path, repository, fault, link, to):
    with pytest.raises(fetching.NotRunnable) as refused:
        fetching.checkout(repository(link, to), tmp_path / "cache", "")
    assert list((tmp_path / "cache" / "sources").iterdir()) == []
    assert f"{link} is a link to {to}" in str(refused.value)
    fault(KIND, f"{link} is a link to {to}", str(refused.value))


def test_a_link_within_its_repository_is_followed(tmp_path, repository):
    files = fetching.checkout(repository("a/x.py", "../net.py"), tmp_path / "cache", "")
    assert (files / "a" / "x.py").read_text() == (files / "net.py").read_text()


def test_a_link_to_itself_leaves_its_repository_as_little(tmp_path, repository):
    files = fetching.checkout(repository("x.py", "x.py"), tmp_path / "cache", "")
    assert (files / "net.py").exists()


@pytest.mark.parametrize("folder", ["a b/c d", "..x/y", "a/b/c:d", "x" * 200 + "/" + "y" * 200])
def test_a_checkout_lies_in_the_cache_whatever_the_address_is(tmp_path, repository, folder):
    files = fetching.checkout(repository("", "", folder), tmp_path / "cache", "")
    assert files.parent == tmp_path / "cache" / "sources"
    assert (files / "net.py").exists()


@pytest.mark.parametrize("cache", ["a file", "below a file"])
def test_a_cache_that_cannot_be_written_is_one_sentence(listed, tmp_path, capsys, fault, cache):
    (tmp_path / "cache").touch()
    folder = tmp_path / "cache" / ("x" if cache == "below a file" else "")
    assert main(["audit", str(listed(rest=', module = "theirs"')), "--cache", str(folder)]) == 4
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "--cache" in said
    fault(KIND, f"--cache is {cache}", said)


@pytest.mark.skipif(sys.platform != "linux", reason="stubs a program by a script")
def test_an_installation_that_hangs_is_a_verdict(tmp_path, listed, monkeypatch, capsys, fault):
    stub = tmp_path / "python-stub"
    stub.write_text("#!/bin/sh\nsleep 3600\n")
    stub.chmod(0o755)
    pair = pairs.read(listed(rest=', module = "theirs"', more='needs = ["no-such-distribution-of-anybody"]'))[0]
    monkeypatch.setattr(sys, "executable", str(stub))
    monkeypatch.setattr(fetching, "DOWNLOAD_DEADLINE", 0.5)
    with pytest.raises(asking.SilentError, match=r"did not end within 0.5 s") as refused:
        fetching.interpreter(pair, tmp_path / "cache", install=True)
    fault("an interpreter that misbehaves", "hangs while an audit installs packages", str(refused.value))
