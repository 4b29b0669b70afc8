"""Findings of `fwbench doctor`: a line each, and what to do about it. They decide the exit code."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

QUIET = "end what else runs, `top` names it, and check again"


@dataclass(frozen=True)
class Finding:
    """A finding of a check, with the next step; without one, all is good.

    Attributes:
        bad: whether numbers cannot be had or trusted until the next step is done.
    """

    subject: str
    found: str
    next_step: str = ""
    bad: bool = False

    @property
    def level(self) -> Literal["good", "warning", "bad"]:
        """The gravity; at a `warning` numbers are true, but worse or fewer than they could be."""
        return "good" if not self.next_step else "bad" if self.bad else "warning"


def sound(findings: Sequence[Finding]) -> bool:
    """True if numbers can be had and trusted: then the exit code is 0."""
    return all(finding.level != "bad" for finding in findings)


def lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Lines for the screen: one or two for each finding, and a last one that sums up."""
    width = max(len(finding.subject) for finding in findings)
    for each in findings:
        yield f"{each.level:7}  {each.subject:{width}}  {each.found}"
        if each.next_step:
            yield f"{'':{9 + width}}  -> {each.next_step}"
    warnings, bad = (sum(each.level == level for each in findings) for level in ("warning", "bad"))
    yield ""
    if bad:
        yield f"{bad} of {len(findings)} findings are bad: correct them before you trust a number."
    else:
        yield f"Measuring is possible; {warnings} of {len(findings)} findings are warnings."


def as_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """The findings as JSON primitives."""
    names = ("subject", "level", "found", "next_step")
    return {"sound": sound(findings), "findings": [{name: getattr(each, name) for name in names} for each in findings]}
