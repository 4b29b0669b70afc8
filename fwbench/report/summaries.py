"""A comparison as a file: Markdown for readers, or JSON for a program that trusts nobody's Markdown.

A pull request from a fork may have changed whatever wrote the file. So a job that may write takes JSON, checks every
value of it, and makes the Markdown itself.
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fwbench.compare.criteria import CRITERIA
from fwbench.compare.findings import ORDER, Finding, Outcome, Verdict
from fwbench.errors import UserError
from fwbench.record import files
from fwbench.report import verdicts

# A suite of a thousand benchmarks takes a tenth of this.
_LARGEST = 8 * 2**20


def write(path: Path, outcome: Outcome) -> None:
    """As JSON where the path ends in `.json`, else as Markdown.

    Raises:
        OSError: it could not be written.
    """
    text = f"{json.dumps(dataclasses.asdict(outcome))}\n" if path.suffix == ".json" else verdicts.markdown(outcome)
    files.write(path, text)


def read(path: Path) -> Outcome:
    """What `write` has left as JSON, or somebody in its place.

    Raises:
        UserError: it is something else; the sentence says what, and quotes none of it.
    """
    try:
        if path.stat().st_size > _LARGEST:
            raise UserError(f"{path} is larger than any summary")
        data = json.loads(path.read_text(encoding="utf-8"))
        return Outcome(
            _text(data["base"]),
            _text(data["head"]),
            [_finding(finding) for finding in _list(data["findings"])],
            None if data["seconds"] is None else _number(data["seconds"]),
            [_text(note) for note in _list(data["notes"])],
        )
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror})") from None
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
        raise UserError(f"{path} is no summary of this version of fwbench") from None


def _finding(data: Mapping[str, Any]) -> Finding:
    if data["kind"] not in ORDER or data["metric"] not in ("", *CRITERIA):
        raise ValueError("an unknown kind or metric")
    return Finding(
        _text(data["benchmark"]),
        data["kind"],
        data["metric"],
        None if data["base"] is None else _number(data["base"]),
        None if data["head"] is None else _number(data["head"]),
        _text(data["replicates"]),
        None if data["verdict"] is None else _verdict(data["verdict"]),
        _text(data["note"]),
        data["in_test"] is True,
    )


def _verdict(data: Mapping[str, Any]) -> Verdict:
    low, high = _list(data["interval"])
    # An interval may be unbounded.
    if math.isnan(low) or math.isnan(high):
        raise ValueError("an interval without ends")
    if data["kind"] not in ORDER:
        raise ValueError("an unknown kind")
    return Verdict(
        data["kind"],
        _number(data["ratio"]),
        (float(low), float(high)),
        _number(data["confidence"]),
        int(_number(data["pairs"])),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("no number")
    return float(value)


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("no list")
    return value
