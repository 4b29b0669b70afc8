"""A comparison as a file: Markdown for readers, or JSON for a program that trusts nobody's Markdown.

A pull request from a fork may have changed the program that wrote the file. So a job with write access takes JSON,
checks every value in it, and makes the Markdown itself.
"""

import dataclasses
import json
import math
from pathlib import Path

from fwbench.compare.criteria import CRITERIA
from fwbench.compare.findings import Finding, Outcome
from fwbench.errors import UserError
from fwbench.record import files
from fwbench.report import verdicts

# A suite of a thousand benchmarks takes a tenth of this.
_LARGEST = 8 * 2**20


def write(path: Path, outcome: Outcome) -> None:
    """Write an outcome, as JSON if the path ends in `.json`, else as Markdown.

    Raises:
        OSError: it could not be written.
    """
    text = f"{json.dumps(dataclasses.asdict(outcome))}\n" if path.suffix == ".json" else verdicts.markdown(outcome)
    files.write(path, text)


def read(path: Path) -> Outcome:
    """Read an outcome that `write`, or somebody in its place, has left as JSON.

    Raises:
        UserError: the file is something else; the sentence says what, and quotes nothing from it.
    """
    # Only reading a summary needs msgspec.
    import msgspec

    try:
        outcome = msgspec.convert(json.loads(files.read(path, _LARGEST).decode()), Outcome)
        if not all(map(_sound, outcome.findings)) or not math.isfinite(outcome.seconds or 0.0):
            raise ValueError("a number, an interval or a metric that fwbench does not write")
        return outcome
    except (ValueError, OverflowError, RecursionError, msgspec.ValidationError):
        raise UserError(f"{path} is no summary of this version of fwbench") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror})") from None


def _sound(finding: Finding) -> bool:
    """Whether fwbench could have written a finding that has the right types."""
    verdict, numbers = finding.verdict, [finding.base, finding.head]
    if verdict:
        numbers += [verdict.ratio, verdict.confidence, verdict.pairs]
    return (
        finding.metric in ("", *CRITERIA)
        and all(math.isfinite(number) for number in numbers if number is not None)
        # An interval may be unbounded.
        and not any(map(math.isnan, verdict.interval if verdict else ()))
    )
