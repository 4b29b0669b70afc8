"""`fwbench ci` against real repositories and a GitHub of its own, and the actions and workflows that call it."""

import dataclasses
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import jsonschema
import pytest
import yaml
from markdown_it import MarkdownIt

from fwbench.commands.cli import main
from fwbench.compare.findings import Finding, Outcome, Verdict
from fwbench.errors import UserError
from fwbench.ext.ci import github
from fwbench.ext.ci.summary import read
from fwbench.report import outcome_file, verdicts
from tests.ext.ci.local import Local, ends, event
from tests.unit.faults.test_files import named
from tests.unit.shared import ALONE, git
from tools.summary_schema import exported

__all__ = ["ends", "event"]

ROOT = Path(__file__).parents[3]
HOSTILE = '$(touch pwned)"; touch pwned; `touch pwned` --upload-pack=touch'


def commit(folder, text):
    (folder / text).write_text(text)
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", text)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    """A repository with a pull request: its branch began at `fork`, before main came to `tip`; `merge` is the trial."""
    folder = tmp_path_factory.mktemp("origin")
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder, "first")
    found = {"fork": commit(folder, "fork")}
    git(folder, "switch", "--quiet", "--create", "change")
    found["head"] = commit(folder, "change")
    git(folder, "switch", "--quiet", "main")
    found["tip"] = commit(folder, "tip")
    git(folder, "switch", "--quiet", "--detach")
    git(folder, "merge", "--quiet", "--no-ff", "--message", "trial", "change")
    found["merge"] = git(folder, "rev-parse", "HEAD")
    git(folder, "update-ref", "refs/pull/1/merge", "HEAD")
    git(folder, "switch", "--quiet", "main")
    return folder, found


@pytest.fixture
def checkout(tmp_path, origin, monkeypatch):
    """What actions/checkout leaves of a commit: that one alone, or with all history."""

    def check_out(ref, depth=1):
        folder = tmp_path / "clone"
        folder.mkdir()
        git(folder, "init", "--quiet")
        git(folder, "remote", "add", "origin", f"file://{origin[0]}")
        depths = [f"--depth={depth}"] if depth else []
        refs = [f"+{ref}:refs/remotes/checked"] + ([] if depth else ["+refs/heads/*:refs/remotes/origin/*"])
        git(folder, "fetch", "--quiet", "--no-tags", *depths, "origin", *refs)
        git(folder, "checkout", "--quiet", "refs/remotes/checked")
        monkeypatch.chdir(folder)
        return folder

    return check_out


def pull_request(found):
    """As GitHub tells of it, with names that a stranger has chosen."""
    head = {"sha": found["head"], "ref": HOSTILE, "label": HOSTILE}
    return {"number": 7, "title": HOSTILE, "body": HOSTILE, "head": head, "base": {"sha": found["tip"], "ref": HOSTILE}}


OURS = {"head": "a" * 40, "tip": "b" * 40}


def outcome(*names, note=""):
    verdict = Verdict("regressed", 1.3, (1.2, float("inf")), 0.95, 10)
    found = [Finding(name, "regressed", "latency", 0.001, 0.0013, "10 pairs", verdict, note) for name in names]
    return Outcome("main", "working tree", found or [Finding("quiet", "unchanged", "latency", 1.0, 1.0)], 12.0)


@pytest.fixture
def pytest_stub(tmp_path, ends):
    """An interpreter that keeps its arguments, leaves a summary where it is told to, and ends with a given code."""

    def make(code=0, summary=None):
        kept, left = tmp_path / "arguments", tmp_path / "left"
        leave = f'for given; do case $given in --fwbench-summary=*) cp {left} "${{given#*=}}";; esac; done'
        if summary is not None:
            left.write_text(summary)
        ends(code, f"printf '%s\\0' \"$@\" > {kept}\n{'' if summary is None else leave}")
        return lambda: kept.read_text().split("\0")[:-1]

    return make


def against(arguments):
    return next(part.partition("=")[2] for part in arguments if part.startswith("--fwbench-against="))


def is_shallow(folder):
    return git(folder, "rev-parse", "--is-shallow-repository") == "true"


def refused(capsys, *arguments):
    assert main(["ci", *arguments]) == 4
    said = capsys.readouterr().err
    assert said.startswith("fwbench: ")
    assert said.count("\n") == 1
    return said


def test_the_trial_merge_is_compared_with_the_base_that_it_was_merged_into(origin, checkout, event, pytest_stub):
    """From the one commit that actions/checkout brings, and without the rest of the history."""
    _, found = origin
    folder, arguments = checkout("refs/pull/1/merge"), pytest_stub()
    # The base branch may have gone on since the trial was made.
    event("pull_request", pull_request=pull_request(found | {"tip": "f" * 40}))
    assert main(["ci", "duet"]) == 0
    assert against(arguments()) == found["tip"]
    assert git(folder, "cat-file", "-t", found["tip"]) == "commit"
    assert is_shallow(folder)


def test_fetching_the_base_cuts_off_no_history_that_is_there(origin, checkout, event, pytest_stub):
    folder, found = checkout("refs/heads/change", depth=0), origin[1]
    git(folder, "update-ref", "-d", "refs/remotes/origin/main")
    later = commit(origin[0], "later")
    pytest_stub()
    event("push", before=later)
    assert main(["ci", "duet"]) == 0
    assert not is_shallow(folder)
    assert git(folder, "merge-base", later, "HEAD") == found["fork"]


@pytest.mark.parametrize(
    ("ref", "depth", "name", "data", "base"),
    [
        # A branch without its trial is compared with what it began from.
        ("refs/heads/change", 0, "pull_request", lambda found: {"pull_request": pull_request(found)}, "fork"),
        ("head", 1, "pull_request", lambda found: {"pull_request": pull_request(found)}, "fork"),
        ("merge", 1, "push", lambda found: {"before": found["fork"]}, "fork"),
        ("merge", 1, "merge_group", lambda found: {"merge_group": {"base_sha": found["tip"]}}, "tip"),
    ],
)
def test_other_events_have_their_base(origin, checkout, event, pytest_stub, ref, depth, name, data, base):
    _, found = origin
    checkout(found.get(ref, ref), depth)
    arguments = pytest_stub()
    event(name, **data(found))
    assert main(["ci", "duet"]) == 0
    assert against(arguments()) == found[base]


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("push", {"before": "0" * 40}, "--base"),
        ("push", {"before": "--upload-pack=touch pwned"}, "--base"),
        ("schedule", {}, "--base"),
        ("pull_request_target", {}, "with a token that may write"),
    ],
)
def test_an_event_that_names_no_usable_base_is_one_sentence(checkout, event, pytest_stub, capsys, name, data, told):
    folder = checkout("refs/pull/1/merge")
    pytest_stub()
    event(name, **data)
    assert told in refused(capsys, "duet")
    assert not (folder / "pwned").exists()


def test_a_base_that_was_asked_for_is_fetched_by_its_name(origin, checkout, event, pytest_stub):
    folder, arguments = checkout("refs/pull/1/merge"), pytest_stub()
    event("schedule")
    assert main(["ci", "duet", "--base", "change"]) == 0
    assert against(arguments()) == origin[1]["head"]
    assert is_shallow(folder)


def test_a_base_that_is_none_is_one_sentence_and_no_option_of_git(checkout, event, pytest_stub, capsys):
    folder = checkout("refs/pull/1/merge")
    pytest_stub()
    event("schedule")
    for base in ("nothing", "--upload-pack=touch pwned;"):
        assert "no revision of this repository" in refused(capsys, "duet", f"--base={base}")
    assert not (folder / "pwned").exists()


def test_outside_of_a_repository(tmp_path, monkeypatch, event, origin, pytest_stub, capsys):
    monkeypatch.chdir(tmp_path)
    pytest_stub()
    event("pull_request", pull_request=pull_request(origin[1]))
    assert "is this a clone" in refused(capsys, "duet")


def test_what_a_stranger_named_reaches_no_command(origin, checkout, event, pytest_stub):
    folder, arguments = checkout("refs/pull/1/merge"), pytest_stub()
    event("pull_request", pull_request=pull_request(origin[1]))
    assert main(["ci", "duet", "--arguments", "benchmarks -k 'a b' --fwbench-fail=latency:3%"]) == 0
    assert arguments()[-4:] == ["benchmarks", "-k", "a b", "--fwbench-fail=latency:3%"]
    assert not [part for part in arguments() if "touch" in part]
    assert not (folder / "pwned").exists()


def test_the_summary_is_on_the_jobs_page_after_what_is_there(
    tmp_path, origin, checkout, event, pytest_stub, monkeypatch
):
    folder = checkout("refs/pull/1/merge")
    outcome_file.write(tmp_path / "x.json", outcome("torch-mlp-inference-b1"), 1)
    pytest_stub(1, (tmp_path / "x.json").read_text())
    event("pull_request", pull_request=pull_request(origin[1]))
    page = tmp_path / "page"
    page.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    assert main(["ci", "duet"]) == 1
    assert page.read_text() == f"before\n{(folder / 'fwbench-ci' / 'summary.md').read_text()}"
    assert "| torch-mlp-inference-b1 | latency | 1.00 ms | 1.30 ms | +30.0% |" in page.read_text()
    assert json.loads((folder / "fwbench-ci" / "badge.json").read_text()) == verdicts.badge(outcome("x"))


@pytest.mark.parametrize("left", [None, ""])
def test_a_run_that_compared_nothing_says_so_and_leaves_no_older_summary(origin, checkout, event, pytest_stub, left):
    """pytest makes an empty file before it measures."""
    folder = checkout("refs/pull/1/merge")
    (folder / "fwbench-ci").mkdir()
    outcome_file.write(folder / "fwbench-ci" / "summary.json", outcome("older"), 1)
    pytest_stub(4, left)
    event("pull_request", pull_request=pull_request(origin[1]))
    assert main(["ci", "duet"]) == 4
    text = (folder / "fwbench-ci" / "summary.md").read_text()
    assert text == "**fwbench: nothing was compared.** pytest ended with exit code 4.\n"
    assert json.loads((folder / "fwbench-ci" / "badge.json").read_text())["color"] == "lightgrey"


def test_the_real_pytest_takes_the_commands_options(origin, checkout, event, monkeypatch):
    """A repository without a benchmark: nothing is compared, which a usage error would not come as far as to say."""
    # A run under xdist hands this down, and pytest-benchmark takes it as a word to switch itself off.
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    folder = checkout("refs/pull/1/merge")
    (folder / "pytest.ini").write_text(f"[pytest]\naddopts = {' '.join(ALONE)}\n")
    event("pull_request", pull_request=pull_request(origin[1]))
    assert main(["ci", "duet"]) == 4
    assert "**fwbench: nothing was compared**" in (folder / "fwbench-ci" / "summary.md").read_text()
    assert (folder / "fwbench-ci" / "junit.xml").exists()


class GitHub(Local):
    """Pull requests and their comments, in memory."""

    def __init__(self):
        super().__init__()
        self.pulls, self.comments = [], {}

    def say(self, number, body, kind="User"):
        identity = sum(map(len, self.comments.values())) + 1
        self.comments.setdefault(number, []).append({"id": identity, "body": body, "user": {"type": kind}})

    def bodies(self, number):
        return [comment["body"] for comment in self.comments.get(number, [])]

    def answer(self, request, body):
        if request.headers["Authorization"] != "Bearer secret":
            return 401, {}, b"{}"
        code, data = self._found(request.path) if request.command == "GET" else self._written(request, body)
        return code, {}, json.dumps(data).encode()

    def _found(self, path):
        url = urlsplit(path)
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        parts = url.path.removeprefix("/repos/me/mine/").split("/")
        if parts == ["pulls"]:
            found = [pull for pull in self.pulls if pull["head"]["label"] == asked["head"]]
        else:
            found = self.comments.get(int(parts[1]), [])
        first = (int(asked["page"]) - 1) * int(asked["per_page"])
        return 200, found[first : first + int(asked["per_page"])]

    def _written(self, request, body):
        text, parts = json.loads(body)["body"], request.path.split("/")
        if len(text) > 65536:
            return 422, {}
        if request.command == "POST":
            self.say(int(parts[-2]), text, "Bot")
        else:
            every = [comment for of in self.comments.values() for comment in of]
            next(comment for comment in every if comment["id"] == int(parts[-1])).update(body=text)
        return 200, {"html_url": "https://github.com/me/mine/pull/7#comment"}


@pytest.fixture
def hub(monkeypatch, event):
    """GitHub, and a workflow of a pull request."""
    monkeypatch.setenv("GITHUB_REPOSITORY", "me/mine")
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    event("pull_request", pull_request=pull_request(OURS))
    with GitHub() as server:
        monkeypatch.setenv("GITHUB_API_URL", server.address)
        yield server


def of_fork(**changes):
    """The run of another workflow, for a pull request from a fork: GitHub names none."""
    head = {"head_sha": "a" * 40, "head_branch": "a&b", "head_repository": {"owner": {"login": "them"}}}
    return {"workflow_run": {**head, "pull_requests": [], **changes}}


def from_fork(number, sha="a" * 40):
    return {"number": number, "head": {"sha": sha, "label": "them:a&b"}}


def comment(out, found=None):
    if found is not None:
        outcome_file.write(out / "summary.json", found, 1)
    return main(["ci", "comment", f"--out={out}"])


def test_there_is_one_comment_and_a_later_run_changes_it(hub, tmp_path):
    assert comment(tmp_path, outcome("first-run")) == 0
    assert comment(tmp_path, outcome("second-run")) == 0
    (body,) = hub.bodies(7)
    assert body.startswith(github.MARKER)
    assert "second-run" in body
    assert "first-run" not in body
    assert "a" * 40 in body


def test_nobody_elses_comment_is_lost_and_ours_is_found_on_the_second_page(hub, tmp_path):
    theirs = [f"{github.MARKER}\nmine now", *(f"comment {number}" for number in range(110))]
    for body in theirs:
        hub.say(7, body)
    hub.say(7, f"another bot quotes {github.MARKER}", "Bot")
    assert comment(tmp_path, outcome("first-run")) == 0
    assert comment(tmp_path, outcome("second-run")) == 0
    *others, ours = hub.bodies(7)
    assert others[:-1] == theirs
    assert "second-run" in ours
    assert len(others) == len(theirs) + 1


def test_a_fork_s_pull_request_is_found_by_its_head_and_by_no_file_of_the_run(hub, event, tmp_path):
    event("workflow_run", **of_fork())
    hub.pulls += [from_fork(3, "b" * 40), from_fork(8)]
    (tmp_path / "number").write_text("3")
    assert comment(tmp_path, outcome("slow")) == 0
    assert hub.bodies(3) == []
    assert "slow" in hub.bodies(8)[0]


@pytest.mark.parametrize("changes", [{"head_sha": "c" * 40}, {"head_repository": None}, {"head_branch": None}])
def test_a_pull_request_that_has_moved_on_is_left_alone(hub, event, tmp_path, capsys, changes):
    event("workflow_run", **of_fork(**changes))
    hub.pulls.append(from_fork(8))
    assert comment(tmp_path, outcome("slow")) == 0
    assert hub.comments == {}
    assert "nothing to comment on" in capsys.readouterr().out


def test_a_run_without_a_summary_replaces_what_was_said_before(hub, event, tmp_path):
    event("workflow_run", **of_fork())
    hub.pulls.append(from_fork(8))
    comment(tmp_path, outcome("slow"))
    (tmp_path / "summary.json").unlink()
    assert comment(tmp_path) == 0
    (body,) = hub.bodies(8)
    assert "nothing was compared" in body
    assert "slow" not in body


def test_github_cannot_be_asked(hub, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GITHUB_API_URL", "http://127.0.0.1:1")
    assert comment(tmp_path, outcome()) == 4
    assert "cannot be asked" in capsys.readouterr().err
    monkeypatch.delenv("GITHUB_TOKEN")
    assert "GITHUB_TOKEN" in refused(capsys, "comment")


def test_only_events_of_pull_requests_have_something_to_comment_on(hub, event, tmp_path, capsys):
    event("push", before="a" * 40)
    assert "not on push" in refused(capsys, "comment", f"--out={tmp_path}")


def test_a_long_summary_is_cut_between_two_lines(hub, tmp_path):
    assert comment(tmp_path, outcome(*(f"torch-model{number}-inference-b1" for number in range(2000)))) == 0
    *_, row, _, last = hub.bodies(7)[0].split("\n")
    assert row.endswith("regressed |")
    assert last == "The rest is in the summary of the job."


def test_a_summary_reads_back(tmp_path):
    found = dataclasses.replace(outcome("a", note="why"), notes=["jax 1 in the baseline, 2 here"])
    outcome_file.write(tmp_path / "x.json", found, 1)
    assert read(tmp_path / "x.json") == found
    outcome_file.write(tmp_path / "x.md", outcome("a"), 1)
    assert (tmp_path / "x.md").read_text() == verdicts.markdown(outcome("a"))


SUMMARY_SCHEMA = jsonschema.Draft202012Validator(json.loads((ROOT / "docs" / "summary.schema.json").read_text()))


def test_the_published_schema_of_a_summary_is_that_of_what_is_written(tmp_path):
    """`python tools/summary_schema.py > docs/summary.schema.json` renews it. An endless interval is null to others."""
    assert SUMMARY_SCHEMA.schema == exported()
    found = outcome("a", note="why")
    findings = [*found.findings, Finding("b", "new", note="not there"), Finding("c", "unchanged", "cpu_time", 1.0, 1.0)]
    outcome_file.write(tmp_path / "x.json", dataclasses.replace(found, findings=findings), 1)

    def refuse(constant):
        raise ValueError(f"{constant} is not JSON")

    data = json.loads((tmp_path / "x.json").read_text(), parse_constant=refuse)
    SUMMARY_SCHEMA.validate(data)
    assert data["findings"][0]["verdict"]["interval"] == [1.2, None]
    assert (data["exit_code"], data["reason"]) == (1, "1 regressed")
    assert data["counts"] == {"regressed": 1, "new": 1, "unchanged": 1}
    for changes in (
        {"exit_code": "1"},
        {"counts": {"slow": 1}},
        {"findings": [{**data["findings"][0], "kind": "slow"}]},
    ):
        assert not SUMMARY_SCHEMA.is_valid(data | changes)


# The JSON of a verdict that is sound.
VERDICT = {"kind": "improved", "ratio": 0.9, "interval": [0.8, 1.0], "confidence": 0.95, "pairs": 10}


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "**splendid**"},
        {"metric": "karma"},
        {"base": "1; drop"},
        {"base": float("nan")},
        {"verdict": {"kind": "improved"}},
        {"verdict": {**VERDICT, "interval": [float("nan"), 1.0]}},
        {"verdict": {**VERDICT, "kind": "new"}},
        {"verdict": {**VERDICT, "ratio": float("inf")}},
        {"verdict": {**VERDICT, "interval": [None, 1.0, None]}},
        {"verdict": {**VERDICT, "pairs": 10**400}},
    ],
)
def test_a_summary_that_somebody_made_up_is_refused(tmp_path, changes):
    outcome_file.write(tmp_path / "x.json", outcome("a"), 1)
    data = json.loads((tmp_path / "x.json").read_text())
    data["findings"][0] |= changes
    (tmp_path / "x.json").write_text(json.dumps(data))
    with pytest.raises(UserError, match=r"x.json is no summary of this version of fwbench$"):
        read(tmp_path / "x.json")


TOO_LARGE = pytest.param(" " * (8 * 2**20 + 1), id="more than 8 MiB")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"base": 1}', "[" * 100_000, "\ud800", TOO_LARGE])
def test_a_file_that_is_no_summary_is_refused(tmp_path, text):
    (tmp_path / "x.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(UserError, match="more than 8 MiB" if len(text) > 2**20 else "is no summary"):
        read(tmp_path / "x.json")


@named
def test_what_lies_in_the_place_of_a_summary_is_none(tmp_path, thing):
    thing(tmp_path / "x.json")
    with pytest.raises(UserError, match="cannot be read"):
        read(tmp_path / "x.json")


NAMES = (
    "@org/team #1 GH-22 org/repo#3 me@example.org",
    "&#64;org/team &commat;org \\@org \\#1",
    "http://evil.example www.evil.example HTTPS://evil.example",
    "[click](//evil.example) ![x](//evil.example/x.png) <img src=x onerror=alert(1)>",
    "a\u202egnp.exe \u2066x\u2069 \x1b[31mred\x07 \ud800",
    "| a | b |\n\n# heading\n\n```\ncode",
    "</td></table><script>alert(1)</script>",
    "x" * 5000,
)


@pytest.mark.parametrize("name", NAMES)
def test_names_mention_nobody_and_are_live_nowhere(name):
    """By GitHub's own order: Markdown becomes a page first, and in the page's text people and issues are looked for."""
    text = verdicts.markdown(outcome(name, note=name))
    text.encode("utf-8")
    page = MarkdownIt("commonmark").enable("table").render(text)
    tags = {"p", "strong", "table", "thead", "tbody", "tr", "th", "td", "ul", "li"}
    assert set(re.findall(r"</?([a-z0-9]+)", page)) <= tags
    words = re.sub(r"<[^>]*>", "\n", page).replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">")
    assert not re.search(r"@\w|#\d|GH-\d|://|www\.|&#64;\w", words, re.IGNORECASE), words
    assert all(character.isprintable() or character in "\n\u200b" for character in words)
    rows = re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)
    assert [len(re.findall("<t[hd]", row)) for row in rows] == [8, 8]
    assert len(text) < 3000


ACTIONS = {name: yaml.safe_load((ROOT / name).read_text()) for name in ("action.yml", "comment/action.yml")}


@pytest.mark.parametrize("path", ACTIONS)
def test_no_expression_is_part_of_a_script(path):
    for step in ACTIONS[path]["runs"]["steps"]:
        assert "${{" not in step.get("run", "")


def test_the_actions_call_the_command_with_what_they_were_given(origin, checkout, event, pytest_stub):
    """Its script in a real bash, with inputs that a shell must not read."""
    folder, arguments = checkout("refs/pull/1/merge"), pytest_stub()
    event("pull_request", pull_request=pull_request(origin[1]))
    step = next(step for step in ACTIONS["action.yml"]["runs"]["steps"] if "ci duet" in step.get("run", ""))
    given = {"python": sys.executable, "base": "", "arguments": HOSTILE}
    names = {name: re.fullmatch(r"\$\{\{ inputs\.(\w+) }}", value)[1] for name, value in step["env"].items()}
    environment = os.environ | {name: given[of] for name, of in names.items()}
    done = subprocess.run(["bash", "-e", "-c", step["run"]], env=environment, cwd=folder)
    assert done.returncode == 0
    assert arguments() == ["-m", "fwbench", "ci", "duet", "--base=", f"--arguments={HOSTILE}", "--output=fwbench-ci"]
    assert not (folder / "pwned").exists()


@pytest.mark.parametrize("has", [True, False])
def test_the_action_installs_itself_where_the_interpreter_has_no_fwbench(tmp_path, has):
    """A folder of that name, in which the script runs, is no installation."""
    step = next(step for step in ACTIONS["action.yml"]["runs"]["steps"] if "install" in step["name"])
    stub, told = tmp_path / "python", tmp_path / "told"
    stub.write_text(f'#!/bin/bash\nif [ "$1" = -P ]; then exit {int(not has)}; fi\nprintf "%s " "$@" >> {told}\n')
    stub.chmod(0o755)
    environment = os.environ | {"FWBENCH_PYTHON": str(stub), "GITHUB_ACTION_PATH": "/the/action"}
    assert subprocess.run(["bash", "-e", "-c", step["run"]], env=environment, cwd=tmp_path).returncode == 0
    assert told.exists() is not has
    assert has or told.read_text().split() == ["-m", "pip", "install", "--quiet", "/the/action"]


def test_the_comments_action_reads_where_the_other_files_were_put():
    fetch, *_, say = ACTIONS["comment/action.yml"]["runs"]["steps"]
    keep = ACTIONS["action.yml"]["runs"]["steps"][-1]
    assert fetch["with"]["path"].replace("${{ runner.temp }}", "$RUNNER_TEMP") in say["run"]
    assert shlex.split(say["run"])[1:5] == ["-m", "fwbench", "ci", "comment"]
    assert fetch["with"]["name"] == keep["with"]["name"] == "${{ inputs.artifact }}"
    defaults = {action["inputs"]["artifact"]["default"] for action in ACTIONS.values()}
    assert len(defaults) == 1
    # A failed duet is what its files are wanted for.
    assert keep["if"] == "always()"
    assert fetch["continue-on-error"] is True


def workflows():
    found = {}
    for name in ("ci.md", "plain.md", "your-model.md"):
        for block in re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / name).read_text(), re.DOTALL):
            if "\non:" in block:
                found[f"{name} {block.splitlines()[0]}"] = yaml.safe_load(block)
    return found


WORKFLOWS = workflows()


@pytest.mark.parametrize("name", WORKFLOWS)
def test_the_documented_workflows_are_safe_with_forks(name):
    """Who runs a pull request's code may not write, and who may write runs none of it; no expression is in a script."""
    workflow = WORKFLOWS[name]
    # YAML reads `on` as a truth value.
    events = workflow[True] if isinstance(workflow[True], dict) else {workflow[True]: None}
    assert events.keys() <= {"pull_request", "workflow_run"}
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    writes = [of for of, level in workflow["permissions"].items() if level == "write"]
    if "pull_request" in events:
        assert writes == []
    else:
        assert not [step for step in steps if "run" in step or "checkout" in step.get("uses", "")]
    assert not [step for step in steps if "${{" in step.get("run", "")]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_the_documented_workflows_use_the_actions_as_they_are(name):
    for job in WORKFLOWS[name]["jobs"].values():
        for step in job["steps"]:
            if step.get("uses", "").startswith("OWNER/fwbench"):
                folder = step["uses"].partition("@")[0].removeprefix("OWNER/fwbench").lstrip("/")
                action = ACTIONS[f"{folder}/action.yml" if folder else "action.yml"]
                assert step.get("with", {}).keys() <= action["inputs"].keys()


def test_the_comments_workflow_waits_for_the_one_that_measures():
    measuring = WORKFLOWS["ci.md # .github/workflows/benchmarks.yml"]
    commenting = WORKFLOWS["ci.md # .github/workflows/benchmarks-comment.yml"]
    assert commenting[True]["workflow_run"]["workflows"] == [measuring["name"]]
    assert commenting["permissions"] == {"actions": "read", "pull-requests": "write"}
