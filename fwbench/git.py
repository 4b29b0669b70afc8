"""Runs git for the other modules of the package; the user's repository is only read, and no hook is run.

`run` raises a UserError if git cannot be run or does not end in time; functions that use its answer raise one that
quotes git if it fails, too.
"""

import functools
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from fwbench.errors import Absent, UserError
from fwbench.processes import finished
from fwbench.text import line

# Seconds. The slowest call that makes progress fetches the whole history of a large repository, or large files for a
# checkout. A call that waits for longer waits for a filter, a server or a lock that will never answer.
DEADLINE = 1200.0

# Files of these kinds are code even if git neither tracks nor ignores them. Other such files are outputs, data or
# secrets.
_CODE = (b".py", b".so", b".cfg", b".ini", b".toml", b".yaml", b".yml")

# Variables that git does not list itself: those by which `git --literal-pathspecs` instructs its hooks, and the folder
# of a push's objects.
_PATHSPECS = frozenset(f"GIT_{how}_PATHSPECS" for how in ("LITERAL", "GLOB", "NOGLOB", "ICASE"))
_BINDING = _PATHSPECS | {"GIT_QUARANTINE_PATH"}

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def unbound(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without the variables that give a hook of git its repository, index and objects.

    With them, git, and programs that call git, would use that repository in every other folder, too.
    """
    try:
        bound = _BINDING | _local_variables()
    except UserError:
        # Without git there is no hook either.
        bound = _BINDING
    return {name: value for name, value in environment.items() if name not in bound}


def run(
    folder: str | Path, *arguments: str, variables: Mapping[str, str] | None = None, given: bytes = b""
) -> "subprocess.CompletedProcess[bytes]":
    """Run git in a folder.

    Args:
        variables: environment variables, added to this process's.
        given: its standard input.
    """
    # Looking at a repository must not rewrite its index.
    environment = {**unbound(os.environ), "GIT_OPTIONAL_LOCKS": "0", **(variables or {})}
    return _run(["git", "-c", f"core.hooksPath={os.devnull}", "-C", str(folder), *arguments], environment, given)


def answer(
    folder: str | Path, *arguments: str, variables: Mapping[str, str] | None = None, given: bytes = b""
) -> bytes:
    """Run git in a folder and return its output."""
    done = run(folder, *arguments, variables=variables, given=given)
    if done.returncode:
        raise _failed(folder, arguments, done)
    return done.stdout


def ask(folder: str | Path, *arguments: str) -> str | None:
    """Ask git a question: return its output without the final line break, or None for exit code 1, which means no."""
    done = run(folder, *arguments)
    if done.returncode == 1:
        return None
    if done.returncode:
        raise _failed(folder, arguments, done)
    # A path may begin or end with spaces, and hold line feeds.
    return os.fsdecode(done.stdout).removesuffix("\n")


def top(folder: Path) -> Path | Absent:
    """The root of the working tree that contains a folder, or git's reason why there is none."""
    try:
        return Path(os.fsdecode(answer(folder, "rev-parse", "--show-toplevel")).removesuffix("\n"))
    except UserError as error:
        return Absent(str(error))


def commit(folder: str | Path, word: str) -> str | None:
    """The hash of the one commit that a word names; None if it names none."""
    found = ask(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{word}^{{commit}}")
    # `^main` names all commits that main does not have.
    return found if found and _COMMIT.fullmatch(found) else None


def untracked(folder: Path, *where: str) -> tuple[list[bytes], list[bytes]]:
    """The paths that git neither tracks nor ignores: those of code, and the others.

    Args:
        where: pathspecs; none: everywhere.
    """
    listed = answer(folder, "ls-files", "-z", "--others", "--exclude-standard", "--", *where).split(b"\0")
    code = sorted(path for path in listed if path.endswith(_CODE))
    return code, sorted(path for path in listed if path and not path.endswith(_CODE))


@functools.cache
def _local_variables() -> frozenset[str]:
    done = _run(["git", "-C", os.curdir, "rev-parse", "--local-env-vars"], os.environ, b"")
    return frozenset(os.fsdecode(done.stdout).split())


def _run(command: list[str], environment: Mapping[str, str], given: bytes) -> "subprocess.CompletedProcess[bytes]":
    try:
        return finished(command, DEADLINE, given, environment)
    except OSError as error:
        raise UserError(f"git cannot be run ({error.strerror}): install it, or put it on the PATH.") from None
    except subprocess.TimeoutExpired:
        what = line(" ".join(command[command.index("-C") + 2 :]), 80)
        raise UserError(
            f"`git {what}` did not end within {DEADLINE:g} s and was killed: see what it waits for, such as a "
            "filter of .gitattributes, a server or a lock."
        ) from None


def _failed(folder: str | Path, arguments: tuple[str, ...], done: "subprocess.CompletedProcess[bytes]") -> UserError:
    """The error that quotes git from its first line with `fatal:` or `error:`, or else its last line."""
    said = os.fsdecode(done.stderr).strip()
    errors = re.search(r"^(?:fatal|error): .*", said, re.MULTILINE | re.DOTALL)
    quoted = line(errors[0] if errors else said.rpartition("\n")[2], 300) or f"exit code {done.returncode}"
    # Settings (`-c NAME=VALUE`) come before the command's name.
    command = next(each for each in arguments if each != "-c" and "=" not in each)
    return UserError(f"git {command} failed in {line(str(folder))}: {quoted}")
