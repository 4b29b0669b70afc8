"""The result of a search for the parts of a difference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fwbench.ext.causes.operators import Profile
from fwbench.ext.causes.steps import Search
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.spans import Span


@dataclass(frozen=True)
class Explanation:
    """The parts in which two sides differ, and the search over them.

    State 0 is head; state n is head with its first n parts put back to what they are in base. A pair also calls its
    two processes `base` and `head`: the lower state runs as `base`, so in the first pair the user's head does.

    Attributes:
        parts: their titles, in the order in which they were put back.
        search: over the states; its changes are from head towards base.
        programs: the fingerprint of each measured state, by its number.
        recorded: the spans of base, and those of head; a plain test's profiles; or the reason why there are none.
        latency: head's latency in seconds, from the first pair; None: unknown.
        different: by two measured states without one between them, the difference in what they compute.
        metric: the metric that was searched by.
    """

    parts: Sequence[str]
    search: Search
    programs: Mapping[int, Fingerprint] = field(default_factory=dict)
    recorded: tuple[Sequence[Span] | Profile | str, Sequence[Span] | Profile | str] = ("", "")
    latency: float | None = None
    different: Mapping[tuple[int, int], str] = field(default_factory=dict)
    metric: str = "latency"
