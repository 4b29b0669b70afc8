"""`fwbench ci`: the commands that a workflow of GitHub Actions runs, so that each of its own steps is one line."""

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fwbench import git
from fwbench.compare.findings import Outcome
from fwbench.errors import UserError
from fwbench.ext.ci import github
from fwbench.ext.ci.summary import read
from fwbench.record import files
from fwbench.report import verdicts
from fwbench.worker.client.interrupts import Ended

# The file of the outcome in a run's folder.
_SUMMARY = "summary.json"

# By event, the keys under which it names the commit to compare with.
_BASES = {
    "pull_request": ("pull_request", "base", "sha"),
    "push": ("before",),
    "merge_group": ("merge_group", "base_sha"),
}


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = "Runs in a workflow of GitHub Actions: measures a pull request, or comments on it."
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    duet = commands.add_parser(
        "duet",
        help="fetch the base of the event, and measure base and head in turns",
        description="Fetches the commit that the event compares with and runs `pytest --fwbench-against` with it. "
        "Exit code: pytest's, as docs/ci.md tells.",
    )
    duet.add_argument("--base", help="a revision to compare with, where the event names none or another is wanted")
    duet.add_argument(
        "--arguments", default="", metavar="TEXT", help="further arguments of pytest, as a shell reads them"
    )
    duet.add_argument("--output", type=Path, default=Path("fwbench-ci"), metavar="DIR", help="default: fwbench-ci")
    duet.set_defaults(run=_duet)

    comment = commands.add_parser(
        "comment",
        help="say under the pull request what a duet has found, in the place of what was said before",
        description="Runs on the events workflow_run, which may comment on pull requests from forks, and pull_request.",
    )
    comment.add_argument("--output", type=Path, default=Path("fwbench-ci"), metavar="DIR", help="of the duet")
    comment.set_defaults(run=_comment)


def _duet(options: argparse.Namespace) -> int:
    base = _named(options.base) if options.base else _of_event(*github.event())
    try:
        arguments = shlex.split(options.arguments)
    except ValueError as error:
        raise UserError(f"--arguments cannot be read ({error})") from None
    summary = options.output / _SUMMARY
    with files.writing("choose another folder with --output"):
        options.output.mkdir(parents=True, exist_ok=True)
        summary.unlink(missing_ok=True)
    command = [
        *(sys.executable, "-m", "pytest", "--benchmark-only", "--fwbench-profile=ci", f"--fwbench-against={base}"),
        *(f"--fwbench-summary={summary}", f"--junit-xml={options.output / 'junit.xml'}"),
        f"--benchmark-json={options.output / 'duet.json'}",
        *arguments,
    ]
    print(f"base is {base}\n{shlex.join(command)}", flush=True)
    code, outcome, unread = _run(command), None, ""
    try:
        outcome = _found(summary)
    except UserError as error:
        print(f"fwbench: {error}", file=sys.stderr)
        unread = ", and its summary cannot be read"
    text = _told(outcome, f"pytest ended with exit code {code}{unread}.")
    # If one of these files cannot be written, the exit code changes: the next workflow would take the folder for whole
    # without it. GitHub's page is for readers alone.
    left = {"summary.md": text, "badge.json": json.dumps(verdicts.badge(outcome))}
    if not all(_leave(files.write, options.output / name, written) for name, written in left.items()):
        code = code or UserError.EXIT_CODE
    if shown := os.environ.get("GITHUB_STEP_SUMMARY"):
        _leave(files.append, Path(shown), text)
    return code


def _leave(write: Callable[[Path, str], None], path: Path, text: str) -> bool:
    """Write a file, or print why it cannot be written; this must not hide pytest's exit code."""
    try:
        write(path, text)
    except OSError as error:
        print(f"fwbench: {error.filename} cannot be written ({error.strerror})", file=sys.stderr)
        return False
    return True


def _run(command: Sequence[str]) -> int:
    """Run pytest and return its exit code. A signal that ends this process is passed on, so pytest ends in order."""
    try:
        started = subprocess.Popen(command)
    except OSError as error:
        raise UserError(f"pytest cannot be started with {command[0]} ({error.strerror})") from None
    with started as process:
        while True:
            try:
                return process.wait()
            except Ended:
                process.terminate()
            except KeyboardInterrupt:
                # The terminal has sent it to pytest, too.
                continue


def _comment(options: argparse.Namespace) -> int:
    name, data = github.event()
    text = _told(_found(options.output / _SUMMARY), "The run says why.")
    commit = github.sha(
        github.within(data, "workflow_run", "head_sha") or github.within(data, "pull_request", "head", "sha")
    )
    text += f"\nOf {commit}.\n" if commit else ""
    try:
        numbers = github.pull_requests(name, data)
        for number in numbers:
            print(github.comment(number, text))
    except github.RefusedError:
        print(
            "This token may not comment, as none of a pull request from a fork may: the job's summary has it all, and "
            "the second workflow in docs/ci.md can comment."
        )
        return 0
    if not numbers:
        print("No open pull request has this commit as its head any more: nothing to comment on.")
    return 0


def _found(summary: Path) -> Outcome | None:
    """The outcome of a run; None if it has compared nothing. A file that is no summary raises a `UserError`."""
    # pytest makes an empty file before it measures, to see that it can write there.
    return read(summary) if summary.exists() and summary.stat().st_size else None


def _told(outcome: Outcome | None, otherwise: str) -> str:
    """The outcome in Markdown, or that nothing was compared: an older comment must not stand for this commit."""
    return verdicts.markdown(outcome) if outcome else f"**fwbench: nothing was compared.** {otherwise}\n"


def _of_event(name: str, data: Mapping[str, Any]) -> str:
    """The commit that the event compares with, fetched into this clone."""
    if name == "pull_request_target":
        raise UserError(
            "pull_request_target would run a stranger's code with a token that may write: use on: pull_request, and "
            "the second workflow in docs/ci.md for comments"
        )
    commit = github.sha(github.within(data, *_BASES.get(name, ())))
    if commit is None:
        raise UserError(f"the event {name or '(none)'} names no commit to compare with: give one by --base")
    if name == "pull_request":
        return _of_pull_request(commit, github.sha(github.within(data, "pull_request", "head", "sha")))
    return _fetched(commit)


def _of_pull_request(tip: str, head: str | None) -> str:
    """The commit from which HEAD differs by the pull request alone, not by other changes to the base's branch."""
    # The parents as the commit's object lists them: in a shallow clone `git log` knows none.
    parents = [
        line.removeprefix("parent ") for line in _git("cat-file", "-p", "HEAD").splitlines() if line[:7] == "parent "
    ]
    if len(parents) == 2 and parents[1] == head:
        # GitHub's trial merge of head into base, which actions/checkout checks out.
        return _fetched(parents[0])
    _fetched(tip)
    if _is_shallow():
        _git("fetch", "--quiet", "--no-tags", "--unshallow", "origin")
    merge_base = git.ask(Path.cwd(), "merge-base", "HEAD", tip)
    if merge_base is None:
        raise UserError(f"HEAD and the base {tip} have no commit in common: give the one to compare with by --base")
    return merge_base


def _named(revision: str) -> str:
    """The commit of a revision of the clone, or else of its origin."""
    if commit := git.commit(Path.cwd(), revision):
        return commit
    try:
        return _fetch("--", revision)
    except UserError as error:
        raise UserError(f"--base {revision!r} is no revision of this repository, nor of its origin: {error}") from None


def _fetched(commit: str) -> str:
    """Fetch a commit if the clone lacks it, as actions/checkout brings one commit alone; return its name."""
    return git.commit(Path.cwd(), commit) or _fetch(commit)


def _fetch(*wanted: str) -> str:
    """Fetch from the clone's origin; return the name of the commit that came."""
    # A whole clone is fetched into without a depth, which would cut off the history that is there.
    depth = ["--depth=1"] if _is_shallow() else []
    _git("fetch", "--quiet", "--no-tags", *depth, "origin", *wanted)
    return _git("rev-parse", "FETCH_HEAD^{commit}")


def _is_shallow() -> bool:
    return _git("rev-parse", "--is-shallow-repository") == "true"


def _git(*arguments: str) -> str:
    try:
        return os.fsdecode(git.answer(Path.cwd(), *arguments)).strip()
    except UserError as error:
        raise UserError(f"{error}: is this a clone of the repository, made by actions/checkout?") from None
