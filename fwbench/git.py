"""Runs git for the other modules of the package."""

import os
import subprocess
from pathlib import Path


def run(folder: str | Path, *arguments: str, index: Path | None = None) -> "subprocess.CompletedProcess[bytes]":
    """Run git in a folder.

    Args:
        index: the index to work with; None: the repository's own.

    Raises:
        OSError: it cannot be run.
    """
    # Looking at a repository must not rewrite its index.
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    environment |= {"GIT_INDEX_FILE": str(index)} if index else {}
    # In a session of its own, so that a second Ctrl-C does not end it halfway.
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, env=environment, start_new_session=True)


def output(folder: str | Path, *arguments: str, index: Path | None = None) -> bytes | None:
    """What git says; None if it fails or is not installed."""
    try:
        done = run(folder, *arguments, index=index)
    except OSError:
        return None
    return None if done.returncode else done.stdout


def text(folder: str | Path, *arguments: str, index: Path | None = None) -> str | None:
    """What git says, as text without the space around it; None if it fails or is not installed."""
    said = output(folder, *arguments, index=index)
    return None if said is None else os.fsdecode(said).strip()
