"""What `fwbench doctor` finds, whether it has only looked or run something: one line each, and what to do about it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from fwbench.machine.load import busy
from fwbench.record.measurement import Metric

Level = Literal["good", "better", "bad"]


@dataclass(frozen=True)
class Advice:
    """What was looked at and found.

    Attributes:
        level: `good`: nothing to do; `better`: numbers are worse or fewer than they could be; `bad`: numbers cannot be
            had, or cannot be trusted, before it is corrected.
        next_step: what to do about it; empty where there is nothing to do.
    """

    subject: str
    level: Level
    found: str
    next_step: str = ""


def sound(findings: Sequence[Advice]) -> bool:
    """Whether none of them is bad."""
    return all(finding.level != "bad" for finding in findings)


def lines(findings: Sequence[Advice]) -> Iterator[str]:
    """For the screen: a line or two each, and a last one that sums up."""
    width = max(len(finding.subject) for finding in findings)
    for finding in findings:
        yield f"{finding.level:6}  {finding.subject:{width}}  {finding.found}"
        if finding.next_step:
            yield f"{'':6}  {'':{width}}  -> {finding.next_step}"
    better, bad = (sum(finding.level == level for finding in findings) for level in ("better", "bad"))
    yield ""
    yield (
        f"Measuring is possible; {better} of {len(findings)} findings would make the numbers better."
        if not bad
        else f"{bad} of {len(findings)} findings are bad: correct them before you measure."
    )


def other_load(load: Metric, cpus: int, seconds: float) -> Advice:
    """Whether others used the CPUs, so many of them, in so many seconds."""
    if load.value is None:
        return Advice("other load", "better", str(load.reason), "watch the machine yourself")
    sentence = f"{load.value:.1%} of the CPUs, over {seconds:.0f} s"
    if load.value > busy(cpus):
        return Advice("other load", "better", sentence, "end what else runs; `top` names it")
    return Advice("other load", "good", sentence)


def dotted(version: tuple[int, ...]) -> str:
    """A version as it is written."""
    return ".".join(map(str, version))
