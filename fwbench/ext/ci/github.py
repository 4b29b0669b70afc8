"""GitHub's part in `fwbench ci`: the event that a workflow runs for, and comments on its pull requests.

Whatever a stranger can choose in an event, such as the name of a branch, is data here: it never reaches a shell.
"""

import json
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any

from fwbench.errors import UserError
from fwbench.record import files

# Marks our own comment, to find it again; readers do not see it.
MARKER = "<!-- fwbench -->"
# GitHub takes 65,536 characters.
_LONGEST = 60_000
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_A_PAGE = 100
# The most pages that are read, far more comments than anybody reads; a server that repeats itself has no last page.
_PAGES = 100
# The most seconds for an answer, and the most bytes of it. GitHub's events and answers have some hundred kilobytes.
_DEADLINE = 60.0
_LARGEST = 32 * 2**20


class RefusedError(Exception):
    """GitHub does not let this token do what was asked; a fork's token may only read."""


def event() -> tuple[str, Mapping[str, Any]]:
    """The name and the data of the event that the workflow runs for; empty outside of a workflow.

    Raises:
        UserError: the file of the data cannot be read, or holds no event.
    """
    name, path = os.environ.get("GITHUB_EVENT_NAME", ""), os.environ.get("GITHUB_EVENT_PATH")
    if not name or not path:
        return "", {}
    try:
        data = json.loads(files.read(Path(path), _LARGEST))
        if not isinstance(data, dict):
            raise ValueError(f"it holds a {type(data).__name__}")
    except (OSError, ValueError, RecursionError) as error:
        why = f" ({error.strerror})" if isinstance(error, OSError) else ""
        raise UserError(f"GITHUB_EVENT_PATH names {path}, which is no event of GitHub{why}") from None
    return name, data


def within(data: object, *keys: str) -> Any:
    """The value under these keys, each within the one before; None if there is none."""
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def sha(value: object) -> str | None:
    """The value as a commit's name; None if it is no such name, or the one that stands for no commit."""
    text = str(value)
    return text if _SHA.fullmatch(text) and text.strip("0") else None


def pull_requests(name: str, data: Mapping[str, Any]) -> list[int]:
    """The numbers of the open pull requests that an event is about.

    For another workflow's run, GitHub names no pull request of a fork. So it is asked for the open ones of the run's
    branch, and those count whose head still is the run's commit. The files that the run has left are not asked: a fork
    can write anything there.

    Raises:
        UserError: events of this kind are about none.
    """
    if name == "pull_request":
        return [_number(within(data, "pull_request", "number"))]
    if name != "workflow_run":
        raise UserError(
            f"`fwbench ci comment` runs on the events pull_request and workflow_run, not on {name or 'no event at all'}"
        )
    commit = sha(within(data, "workflow_run", "head_sha"))
    branch = within(data, "workflow_run", "head_branch")
    owner = within(data, "workflow_run", "head_repository", "owner", "login")
    if not commit or not owner or not branch:
        return []
    asked = urllib.parse.urlencode({"state": "open", "head": f"{owner}:{branch}"})
    return [_number(within(pull, "number")) for pull in _all(f"pulls?{asked}") if within(pull, "head", "sha") == commit]


def comment(number: int, text: str) -> str:
    """Comment on a pull request, in place of our earlier comment, and return the comment's address.

    Raises:
        RefusedError: the token may not comment.
    """
    if len(text) > _LONGEST:
        text = text[: text.rindex("\n", 0, _LONGEST)] + "\n\nThe rest is in the summary of the job."
    body = {"body": f"{MARKER}\n{text}"}
    for candidate in _all(f"issues/{number}/comments?"):
        # Anybody can write the marker, and only our own comment may be replaced.
        if str(within(candidate, "body")).startswith(MARKER) and within(candidate, "user", "type") == "Bot":
            answer = _ask("PATCH", f"issues/comments/{_number(within(candidate, 'id'))}", body)
            break
    else:
        answer = _ask("POST", f"issues/{number}/comments", body)
    return str(within(answer, "html_url") or "commented")


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise UserError("GitHub names no number where a pull request or a comment should have one")
    return value


def _all(path: str) -> Iterator[Any]:
    for page in range(1, _PAGES + 1):
        entries = _ask("GET", f"{path}&per_page={_A_PAGE}&page={page}")
        if not isinstance(entries, list):
            raise UserError(f"GitHub's answer to GET {path.partition('?')[0]} is no list")
        yield from entries
        if len(entries) < _A_PAGE:
            return


class _Unled(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, as the token would go wherever it leads."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _ask(method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
    api, repository = os.environ.get("GITHUB_API_URL", "https://api.github.com"), os.environ.get("GITHUB_REPOSITORY")
    token = os.environ.get("GITHUB_TOKEN", "").strip()
    if not repository or not token:
        raise UserError("`fwbench ci comment` needs GITHUB_REPOSITORY, and GITHUB_TOKEN: ${{ github.token }}")
    asked = f"{method} {path.partition('?')[0]}"
    try:
        given = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/vnd.github+json", "User-Agent": "fwbench"}
        request = urllib.request.Request(f"{api}/repos/{repository}/{path}", given, headers, method=method)
        with urllib.request.build_opener(_Unled).open(request, timeout=_DEADLINE) as answer:
            return json.loads(_whole(answer))
    except urllib.error.HTTPError as error:
        error.close()
        if _is_limited(error):
            told = f"GitHub's rate limit is used up ({error.code} to {asked})"
            raise UserError(f"{told}: run the job again later") from None
        if error.code in (401, 403):
            raise RefusedError from None
        led = ": it leads elsewhere, and the token goes to no other address" if 300 <= error.code < 400 else ""
        raise UserError(f"GitHub answered {error.code} to {asked}{led}") from None
    except OSError as error:
        raise UserError(f"GitHub cannot be asked at {api} ({error})") from None
    except (ValueError, HTTPException, RecursionError) as error:
        # Not in the error's own words, which may quote the token.
        raise UserError(f"GitHub cannot be asked at {api}: {asked} ended with {type(error).__name__}") from None


def _is_limited(error: urllib.error.HTTPError) -> bool:
    # GitHub answers 429, or 403 as to a token that may not (docs.github.com, "Rate limits for the REST API").
    used_up = error.headers.get("X-RateLimit-Remaining") == "0" or "Retry-After" in error.headers
    return error.code == 429 or (error.code == 403 and used_up)


def _whole(answer: HTTPResponse) -> bytes:
    """An answer's body; an `OSError` if it comes too slowly, does not end, or ends too early."""
    body, end = bytearray(), time.monotonic() + _DEADLINE
    while chunk := answer.read1(1 << 16):
        body += chunk
        if len(body) > _LARGEST or time.monotonic() > end:
            raise OSError(f"its answer has no end within {_DEADLINE:g} s and {_LARGEST >> 20} MiB")
    if answer.length:
        raise OSError(f"its answer lacks {answer.length} bytes")
    return bytes(body)
