"""The options of gates."""

from pathlib import Path

import pytest

from fwbench.compare.criteria import CRITERIA, Threshold, parse
from fwbench.errors import UserError

FAIL = "--fwbench-fail"
MARKER = "fwbench_fail"


def add_options(group: pytest.OptionGroup) -> None:
    """Declare them."""
    group.addoption(
        "--fwbench-against",
        metavar="REVISION|PYTHON",
        help="Measure in turns with a git revision of this project, or with another interpreter's frameworks, and fail "
        "where this one is slower.",
    )
    group.addoption(
        "--fwbench-gate",
        action="store_true",
        help="Fail where a benchmark is worse than in the record of --benchmark-compare=PATH, or is missing.",
    )
    group.addoption(
        FAIL,
        metavar="METRIC:PERCENT%[+AMOUNT]",
        action="append",
        default=[],
        help=f"How much of a change fails a gate, as in latency:5% or peak_memory:2%+1MiB; metrics: "
        f"{', '.join(CRITERIA)}. May be repeated; a test's own is its marker {MARKER}.",
    )
    group.addoption(
        "--fwbench-allow-mismatch",
        action="store_true",
        help="Let --fwbench-gate compare records of other machines, settings or profiles.",
    )
    group.addoption(
        "--fwbench-summary",
        type=Path,
        metavar="FILE",
        help="Write what a gate has found as Markdown, for a pull request's comment.",
    )
    group.addoption(
        "--fwbench-programs-only",
        action="store_true",
        help="Time nothing: build and compile each program and take its fingerprint; with --benchmark-compare=PATH, "
        "fail where it is not the one in that record or journal.",
    )


def thresholds(config: pytest.Config, kind: str) -> dict[str, Threshold]:
    """By metric, those of a gate's kind (`duet` or `saved`) with what the options ask for.

    Raises:
        pytest.UsageError: an option is none, or names a metric that this gate has not.
    """
    found = {name: limit for name, criterion in CRITERIA.items() if (limit := getattr(criterion, kind))}
    asked = _parsed(config.getoption("fwbench_fail"), FAIL)
    for name in asked:
        if name not in found:
            other = "--fwbench-gate" if kind == "duet" else "--fwbench-against"
            raise pytest.UsageError(f"{name} in {FAIL} is not measured by this gate: {other} does.")
    return found | asked


def of_test(item: pytest.Item, kind: str) -> dict[str, Threshold]:
    """What a test's own markers ask for, the closest one winning; it may name metrics of either gate.

    Raises:
        pytest.UsageError: a marker is no threshold.
    """
    where = f"the marker {MARKER} of {item.nodeid}"
    markers = list(item.iter_markers(MARKER))
    for marker in markers:
        if marker.kwargs or not marker.args or not all(isinstance(text, str) for text in marker.args):
            raise pytest.UsageError(f'{where} takes its thresholds as text: {MARKER}("latency:5%").')
    asked = _parsed([text for marker in reversed(markers) for text in marker.args], where)
    return {name: limit for name, limit in asked.items() if getattr(CRITERIA[name], kind)}


def _parsed(texts: list[str], where: str) -> dict[str, Threshold]:
    try:
        return parse(texts, where)
    except UserError as error:
        raise pytest.UsageError(str(error)) from None
