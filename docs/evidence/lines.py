"""What the scripts beside this one share: measurements kept a line each, and Markdown's tables."""

import json
from collections.abc import Iterable
from pathlib import Path


def stored(path: Path) -> list[dict]:
    """The measurements that a file of JSON lines holds; none if there is no such file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(headings: tuple[str, ...], rows: Iterable[tuple]) -> str:
    """A table in Markdown."""
    lines = [headings, tuple("---" for _ in headings), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
