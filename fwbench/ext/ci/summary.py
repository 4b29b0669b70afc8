"""Reads a comparison's file and trusts nothing in it.

A pull request from a fork may have changed the program that wrote the file. So a job with write access takes JSON,
checks every value in it, and makes the Markdown itself.
"""

import json
import math
from pathlib import Path
from typing import Any

import msgspec

from fwbench.compare.criteria import CRITERIA
from fwbench.compare.findings import Finding, Outcome
from fwbench.errors import UserError
from fwbench.record import files
from fwbench.report.outcome_file import SCHEMA

# The most bytes that are read; a suite of a thousand benchmarks takes a tenth of this.
_LARGEST = 8 * 2**20


def read(path: Path) -> Outcome:
    """Read an outcome from JSON that `fwbench.report.outcome_file`, or a stranger in its place, has written.

    Raises:
        UserError: the file is something else or cannot be read; the sentence quotes nothing from it.
    """
    try:
        data = json.loads(files.read(path, _LARGEST).decode(), object_hook=_opened)
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise ValueError(f"it is not of schema {SCHEMA}")
        outcome = msgspec.convert(data, Outcome)
        if not all(map(_sound, outcome.findings)) or not math.isfinite(outcome.seconds or 0.0):
            raise ValueError("a number, an interval or a metric that fwbench does not write")
        return outcome
    except (ValueError, OverflowError, RecursionError, msgspec.ValidationError):
        raise UserError(f"{path} is no summary of this version of fwbench") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror})") from None


def _opened(data: dict[str, Any]) -> dict[str, Any]:
    """Restore the infinite ends of a verdict's interval, which are null in the file; leave other data as it is."""
    interval = data.get("interval")
    if isinstance(interval, list):
        ends = zip(interval, (0.0, math.inf), strict=False)
        data["interval"] = [open_end if end is None else end for end, open_end in ends] + interval[2:]
    return data


def _sound(finding: Finding) -> bool:
    """True if fwbench could have written this finding; its types are right already."""
    numbers, ends = [finding.base, finding.head], (0.0, 0.0)
    if verdict := finding.verdict:
        numbers += [verdict.ratio, verdict.confidence, verdict.pairs]
        ends = verdict.interval
    finite = all(math.isfinite(number) for number in numbers if number is not None)
    # An interval may be unbounded.
    return finding.metric in ("", *CRITERIA) and finite and not any(map(math.isnan, ends))
