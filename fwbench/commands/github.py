"""What `fwbench ci` must know of GitHub: the event that a workflow runs for, and comments of its pull requests.

Whatever a stranger could choose of an event, such as the name of a branch, is data here: it never reaches a shell.
"""

import json
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fwbench.errors import UserError

# By it our own comment is found again; nobody sees it.
MARKER = "<!-- fwbench -->"
# GitHub takes 65,536 characters.
_LONGEST = 60_000
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_A_PAGE = 100


class RefusedError(Exception):
    """GitHub does not let this token do what was asked; a fork's may only read."""


def event() -> tuple[str, Mapping[str, Any]]:
    """The name of the event that the workflow runs for, and what GitHub says of it; empty outside of a workflow.

    Raises:
        UserError: what should say so cannot be read.
    """
    name, path = os.environ.get("GITHUB_EVENT_NAME", ""), os.environ.get("GITHUB_EVENT_PATH")
    if not name or not path:
        return "", {}
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise UserError(f"GITHUB_EVENT_PATH names {path}, which is no event of GitHub") from None
    return name, data if isinstance(data, dict) else {}


def sha(value: object) -> str | None:
    """A commit's name; None where it is none, or stands for no commit."""
    text = str(value)
    return text if _SHA.fullmatch(text) and text.strip("0") else None


def pull_requests(name: str, data: Mapping[str, Any]) -> list[int]:
    """The open pull requests that an event is about, as far as they are still where they were.

    Of another workflow's run GitHub names none where it is of a fork, so those are asked for whose head is the run's
    commit. The files that the run has left are not asked: a fork can write anything there.

    Raises:
        UserError: the event is about none.
    """
    if name == "pull_request":
        return [int(data["pull_request"]["number"])]
    if name != "workflow_run":
        raise UserError(
            f"`fwbench ci comment` runs on the events pull_request and workflow_run, not on {name or 'no event at all'}"
        )
    run = data["workflow_run"]
    owner, branch = ((run.get("head_repository") or {}).get("owner") or {}).get("login"), run.get("head_branch")
    if not owner or not branch:
        return []
    asked = urllib.parse.urlencode({"state": "open", "head": f"{owner}:{branch}"})
    return [int(pull["number"]) for pull in _all(f"pulls?{asked}") if pull["head"]["sha"] == run["head_sha"]]


def comment(number: int, text: str) -> str:
    """Say something under a pull request, in the place of what was said there before.

    Returns:
        The comment's address.

    Raises:
        RefusedError: the token may not.
    """
    if len(text) > _LONGEST:
        text = text[: text.rindex("\n", 0, _LONGEST)] + "\n\nThe rest is in the summary of the job."
    body = {"body": f"{MARKER}\n{text}"}
    for candidate in _all(f"issues/{number}/comments?"):
        # Anybody can write the marker, and nobody's comment but our own must be lost.
        if str(candidate["body"]).startswith(MARKER) and candidate["user"]["type"] == "Bot":
            return str(_ask("PATCH", f"issues/comments/{int(candidate['id'])}", body)["html_url"])
    return str(_ask("POST", f"issues/{number}/comments", body)["html_url"])


def _all(path: str) -> Iterator[Any]:
    page = 1
    while entries := _ask("GET", f"{path}&per_page={_A_PAGE}&page={page}"):
        yield from entries
        if len(entries) < _A_PAGE:
            return
        page += 1


def _ask(method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
    api, repository = os.environ.get("GITHUB_API_URL", "https://api.github.com"), os.environ.get("GITHUB_REPOSITORY")
    token = os.environ.get("GITHUB_TOKEN")
    if not repository or not token:
        raise UserError("`fwbench ci comment` needs GITHUB_REPOSITORY, and GITHUB_TOKEN: ${{ github.token }}")
    request = urllib.request.Request(
        f"{api}/repos/{repository}/{path}",
        None if body is None else json.dumps(body).encode(),
        {"Authorization": f"Bearer {token}", "Accept": "application/vnd.github+json", "User-Agent": "fwbench"},
        method=method,
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            raise RefusedError from None
        raise UserError(f"GitHub answered {error.code} to {method} {path.partition('?')[0]}") from None
    except (OSError, ValueError) as error:
        raise UserError(f"GitHub cannot be asked at {api} ({error})") from None
