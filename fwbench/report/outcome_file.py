"""A comparison as a file: Markdown for readers, or JSON for programs; `docs/summary.schema.json` says what is in it."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

from fwbench.compare.findings import Outcome
from fwbench.record import files
from fwbench.report import verdicts

SCHEMA = 1


def write(path: Path, outcome: Outcome, exit_code: int) -> None:
    """Write an outcome and the run's exit code, as JSON if the path ends in `.json`; else the outcome as Markdown.

    Raises:
        OSError: it could not be written.
    """
    text = verdicts.markdown(outcome)
    if path.suffix == ".json":
        told = {"exit_code": exit_code, "reason": outcome.reason(exit_code), "counts": outcome.counts}
        text = f"{json.dumps({'schema': SCHEMA, **told, **_finite(dataclasses.asdict(outcome))}, allow_nan=False)}\n"
    files.write(path, text)


def _finite(value: Any) -> Any:
    """The value with None for every number that JSON lacks; an infinite number is an interval's open end."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
