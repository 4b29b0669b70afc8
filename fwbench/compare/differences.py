"""Differences between two records besides the code, which forbid a comparison of their numbers."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass
from typing import Any

from fwbench.machine import Machine
from fwbench.record.lanes import PLACES
from fwbench.record.measurement import ALSO_IMPORTED, LEFT_OUT, Measurement
from fwbench.record.storage import Record
from fwbench.suite.profiles import Protocol

# A field of the protocol that a record lacks did not exist when it was made; its runs did what is now the default.
_PROTOCOL = {field.name: field.default for field in dataclasses.fields(Protocol) if field.default is not MISSING}

# Settings that may differ: places on the machine; the number of cores, which is compared as the machine's `threads`;
# and what networks import or are, which is a change of the code.
_NO_CONDITIONS = (*PLACES, "cpus", ALSO_IMPORTED, LEFT_OUT)


@dataclass(frozen=True)
class Difference:
    """A property besides the code that differs between two sides, with each side's value for readers."""

    name: str
    base: str
    head: str


def in_words(differences: Iterable[Difference], base: str = "in the baseline", head: str = "here") -> str:
    """Half a sentence on differences; `base` and `head` are the words that say where each side's values are."""
    return "; ".join(f"{each.name} differs: {each.base} {base}, {each.head} {head}" for each in differences)


def mismatches(base: Machine | None, head: Machine | None) -> tuple[Difference, ...]:
    """The differences that forbid a comparison of two machines' numbers; none if a machine is unknown."""
    if base is None or head is None:
        return ()
    return tuple(
        Difference(name, *(f"{getattr(of, name)}{' W' if name == 'power_limit' else ''}" for of in (base, head)))
        for name in base.differences(head)
    )


def other_cpu(base: Record, head: Record) -> tuple[Difference, ...]:
    """The difference of two records' CPUs as pytest-benchmark names them, if fwbench does not know both machines."""
    if base.machine and head.machine:
        return ()
    infos = [record.machine_info.get("cpu") for record in (base, head)]
    names = [info.get("brand_raw") if isinstance(info, Mapping) else None for info in infos]
    if None in names or names[0] == names[1]:
        return ()
    return (Difference("cpu", str(names[0]), str(names[1])),)


def differences(base: Measurement | None, head: Measurement | None) -> Iterator[Difference]:
    """Yield each difference besides the code and the frameworks' versions."""
    if base is None or head is None:
        return
    one, other = _conditions(base, head.parity), _conditions(head, base.parity)
    for name in one | other:
        if one.get(name) != other.get(name):
            yield Difference(name, repr(one.get(name)), repr(other.get(name)))


def _conditions(m: Measurement, other: Mapping[str, Any]) -> dict[str, Any]:
    """Conditions that must be equal on both sides; weights and arithmetic only if the other's `parity` has them too."""
    beside = other.get("probe") or {}
    probes = {name: probe for name, probe in (m.parity.get("probe") or {}).items() if name in beside}
    return {
        **m.workload.anywhere.to_json(),
        **{f"profile: {name}": amount for name, amount in (_PROTOCOL | dict(m.protocol)).items()},
        **{f"lane setting: {name}": value for name, value in m.settings.items() if name not in _NO_CONDITIONS},
        **({"digest of the weights": m.parity["weights"]} if m.parity.get("weights") and other.get("weights") else {}),
        **{f"arithmetic of the {name}": probe.get("arithmetic") for name, probe in probes.items()},
    }


def versions_that_differ(base: Mapping[str, str], head: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The distributions whose versions differ, with both versions; those that only one side has are left out."""
    return {name: (version, head[name]) for name, version in base.items() if head.get(name, version) != version}
