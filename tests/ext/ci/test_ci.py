"""`fwbench ci` where the workflow's files, GitHub's events or GitHub itself are broken."""

import contextlib
import json
import os
import sys

import pytest

from fwbench.commands.cli import main
from fwbench.ext.ci import github
from tests.ext.ci.local import Local, ends, event
from tests.unit.shared import git

__all__ = ["ends", "event"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="stubs an interpreter by a script")

BROKEN = "fwbench ci in a broken environment"
EVENTS = "malformed GitHub events"
REDIRECTS = "redirects"


@pytest.fixture(autouse=True)
def repository(tmp_path, monkeypatch, event):
    """A repository with one commit, in which a workflow runs that GitHub has told nothing."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet")
    git(folder, "commit", "--quiet", "--allow-empty", "--message=first")
    monkeypatch.chdir(folder)
    return folder


def duet(*arguments):
    return main(["ci", "duet", "--base=HEAD", *arguments])


def sentence(capsys):
    """The last line on standard error."""
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return said.splitlines()[-1]


# The files that it writes


@pytest.mark.parametrize("code", [0, 1, 4])
@pytest.mark.parametrize(
    "page", ["a folder", "a file in no folder", "a pipe that nobody reads", "a full device", "a path with a file in it"]
)
def test_pytests_exit_code_survives_a_page_that_cannot_be_written(
    tmp_path, ends, monkeypatch, capsys, fault, page, code
):
    ends(code)
    path = tmp_path / "page"
    if page == "a folder":
        path.mkdir()
    elif page == "a file in no folder":
        path = tmp_path / "none" / "page"
    elif page == "a pipe that nobody reads":
        os.mkfifo(path)
    elif page == "a full device":
        path.symlink_to("/dev/full")
    else:
        path.touch()
        path = path / "page"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    assert duet() == code
    said = sentence(capsys)
    assert str(path) in said
    assert (tmp_path / "repository" / "fwbench-ci" / "summary.md").stat().st_size
    fault(BROKEN, f"GITHUB_STEP_SUMMARY names {page}, and pytest ends with {code}", said)


@pytest.mark.parametrize("out", ["a file", "below a file", "its summary is a folder"])
def test_an_out_that_cannot_be_used_is_told_before_anything_is_measured(tmp_path, ends, capsys, fault, out):
    ends(0, f"touch {tmp_path}/measured")
    path = tmp_path / "out"
    if out == "its summary is a folder":
        (path / "summary.json").mkdir(parents=True)
    else:
        path.touch()
    assert duet(f"--output={path / 'below' if out == 'below a file' else path}") == 4
    assert not (tmp_path / "measured").exists()
    said = sentence(capsys)
    assert str(path) in said
    fault(BROKEN, f"--output: {out}", said)


@pytest.mark.parametrize("left", ["{", "[]", "a pipe"])
def test_a_summary_that_cannot_be_read_costs_no_exit_code(tmp_path, ends, capsys, fault, left):
    out = tmp_path / "out"
    script = f"mkfifo {out}/summary.json" if left == "a pipe" else f"echo '{left}' > {out}/summary.json"
    ends(1, script)
    assert duet(f"--output={out}") == 1
    said = capsys.readouterr().err
    assert "nothing was compared" in (out / "summary.md").read_text()
    fault(BROKEN, f"pytest left {left} as its summary, and ended with 1", said)


def test_a_summary_that_cannot_be_kept_fails_a_run_that_would_pass(tmp_path, ends, capsys, fault):
    out = tmp_path / "out"
    for code, becomes in ((0, 4), (1, 1)):
        ends(code, f"rm -rf {out}; touch {out}")
        assert duet(f"--output={out}") == becomes
        out.unlink()
    fault(BROKEN, "--output is gone when pytest ends", sentence(capsys))


def test_an_interpreter_that_is_gone_is_one_sentence(tmp_path, monkeypatch, capsys, fault):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    assert duet() == 4
    fault(BROKEN, "the interpreter is gone", sentence(capsys))


# The event


MALFORMED = {
    "a list": b"[1]",
    "null": b"null",
    "text": b'"push"',
    "no JSON": b"{",
    "no UTF-8": b'{"before": "\xff"}',
    "nested too deeply": b"[" * 200_000,
    "empty": b"",
    "a pipe that nobody writes to": None,
    "33 MiB": b" " * (33 << 20),
    "nothing in it": {},
    "pull_request is a list": {"pull_request": []},
    "base is null": {"pull_request": {"base": None, "head": None}},
    "sha is a number": {"pull_request": {"base": {"sha": 7}, "head": {"sha": 7}}},
    "sha has a line feed": {"pull_request": {"base": {"sha": "a" * 40 + "\n"}, "head": {}}},
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_a_malformed_event_is_one_sentence(tmp_path, event, ends, capsys, fault, kind):
    ends(0)
    given = MALFORMED[kind]
    for command in ("duet", "comment"):
        for name in ("pull_request", "push", "merge_group", "workflow_run"):
            path = event(name, **given) if isinstance(given, dict) else event(name, given)
            if given is None:
                path.unlink()
                os.mkfifo(path)
            code = main(["ci", command, f"--output={tmp_path / 'out'}"])
            # Of a run whose pull request GitHub does not name there is nothing to comment on.
            unnamed = (command, name) == ("comment", "workflow_run") and isinstance(given, dict)
            assert code == (0 if unnamed else 4)
            said = capsys.readouterr().err
            assert said.count("\n") == (0 if unnamed else 1)
            path.unlink()
            if (command, name) == ("duet", "pull_request"):
                shown = said
    fault(EVENTS, kind, shown)


@pytest.mark.parametrize("number", [None, "7", True, [7]])
def test_a_pull_request_without_a_number_is_one_sentence(tmp_path, event, capsys, fault, number):
    event("pull_request", pull_request={"number": number})
    assert main(["ci", "comment", f"--output={tmp_path}"]) == 4
    fault(EVENTS, f"the number is {json.dumps(number)}", sentence(capsys))


# GitHub


class Server(Local):
    """Answers every request in the same way, and keeps what it was sent."""

    def __init__(self, code=200, headers=(), body=b"[]"):
        super().__init__()
        self.code, self.headers, self.body, self.got = code, dict(headers), body, []

    def answer(self, request, body):
        self.got.append((request.command, request.headers["Authorization"]))
        return self.code, self.headers, self.body


@pytest.fixture
def serving(monkeypatch, event):
    """Start servers in a workflow of a pull request; the newest is GitHub."""
    monkeypatch.setenv("GITHUB_REPOSITORY", "me/mine")
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    event("pull_request", pull_request={"number": 7})
    with contextlib.ExitStack() as running:

        def start(*arguments, **options):
            server = running.enter_context(Server(*arguments, **options))
            monkeypatch.setenv("GITHUB_API_URL", server.address)
            return server

        yield start


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(("method", "path"), [("GET", "pulls"), ("POST", "issues/7/comments"), ("PATCH", "issues/1")])
def test_no_redirect_gets_the_token(serving, fault, code, method, path):
    other = serving()
    hub = serving(code, {"Location": f"{other.address}/elsewhere"})
    with pytest.raises(github.UserError) as refused:
        github._ask(method, path, None if method == "GET" else {"body": "text"})
    assert [got for got, _ in hub.got] == [method]
    assert other.got == []
    assert f"answered {code}" in str(refused.value)
    fault(REDIRECTS, f"{method} is answered by {code} to another host", str(refused.value))


def test_a_redirect_is_one_sentence_of_the_command(tmp_path, serving, capsys, fault):
    hub = serving(302, {"Location": "/again"})
    assert main(["ci", "comment", f"--output={tmp_path}"]) == 4
    assert len(hub.got) == 1
    fault(REDIRECTS, "to another path of the same host", sentence(capsys))


@pytest.mark.parametrize(
    ("code", "headers", "exit_code"),
    [
        (403, {"X-RateLimit-Remaining": 0}, 4),
        (403, {"Retry-After": 60}, 4),
        (429, {}, 4),
        # A fork's token.
        (403, {"X-RateLimit-Remaining": 4999}, 0),
        (401, {}, 0),
    ],
)
def test_a_rate_limit_is_no_token_that_may_not_comment(tmp_path, serving, capsys, code, headers, exit_code):
    serving(code, headers)
    assert main(["ci", "comment", f"--output={tmp_path}"]) == exit_code
    said = capsys.readouterr()
    if exit_code:
        assert f"GitHub's rate limit is used up ({code} to GET issues/7/comments)" in said.err
    else:
        assert "This token may not comment, as none of a pull request from a fork may: the job's summary" in said.out


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("no list", {"body": b"{}"}),
        ("no JSON", {"body": b"<html>"}),
        ("nested too deeply", {"body": b"[" * 200_000}),
        ("shorter than it says", {"headers": {"Content-Length": 100}}),
        ("a number where an object should be", {"body": b"[7]"}),
        ("nobody's comment", {"body": b'[{"body": "<!-- fwbench -->", "user": null}]'}),
    ],
)
def test_an_answer_that_makes_no_sense_is_one_sentence(tmp_path, serving, capsys, fault, kind, answer):
    serving(**answer)
    code = main(["ci", "comment", f"--output={tmp_path}"])
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    assert code == (0 if kind.startswith(("a number", "nobody")) else 4)
    fault(EVENTS, f"GitHub's answer: {kind}", said.err or said.out)


def test_an_answer_that_never_ends_ends(tmp_path, serving, monkeypatch, capsys, fault):
    monkeypatch.setattr(github, "_LARGEST", 1 << 20)
    serving(body=bytes(4 << 20))
    assert main(["ci", "comment", f"--output={tmp_path}"]) == 4
    fault(EVENTS, "GitHub's answer: without an end", sentence(capsys))


def test_pages_that_never_end_end(serving, monkeypatch):
    monkeypatch.setattr(github, "_PAGES", 3)
    serving(body=json.dumps([{"body": "x", "user": {}}] * 100).encode())
    assert len(list(github._all("issues/7/comments?"))) == 100 * 3


@pytest.mark.parametrize(("name", "value"), [("GITHUB_TOKEN", "sec\nret"), ("GITHUB_API_URL", "nowhere")])
def test_a_malformed_variable_is_one_sentence_that_tells_no_token(
    tmp_path, serving, monkeypatch, capsys, fault, name, value
):
    serving()
    monkeypatch.setenv(name, value)
    assert main(["ci", "comment", f"--output={tmp_path}"]) == 4
    said = sentence(capsys)
    assert "sec" not in said
    fault(BROKEN, f"{name} is malformed", said)
