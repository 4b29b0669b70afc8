"""The verdicts of an audit as Markdown."""

from collections.abc import Iterator, Sequence

from fwbench import text
from fwbench.ext.proofs.audit.pairs import Pair, Source
from fwbench.ext.proofs.audit.verdicts import Verdict

_HEAD = ("pair", "kind", "networks", "verdict", "errors", "where they differ, or why nothing is known", "min")
_STATES = ("same", "different", "not runnable")


def page(rows: Sequence[tuple[Pair, Verdict]], given: str) -> str:
    """The page of the list of this name: counts, the table, and each difference in full."""
    return "\n".join([*_top(rows, given), *_table(rows), *_differences(rows)]) + "\n"


def summary(rows: Sequence[tuple[Pair, Verdict]]) -> str:
    """The counts of the verdicts in one line."""
    counts = [f"{sum(verdict.state == state for _, verdict in rows)} {state}" for state in _STATES]
    return f"{len(rows)} pair{'s' * (len(rows) != 1)}: {', '.join(counts)}"


def shown(pair: Pair, verdict: Verdict) -> str:
    """A verdict in one line of a terminal."""
    line = f"{pair.name}: {_verdict(pair, verdict)}"
    return line if verdict.state == "same" else f"{line}: {verdict.place}"


def _top(rows: Sequence[tuple[Pair, Verdict]], given: str) -> Iterator[str]:
    versions = {name: version for _, verdict in rows for name, version in verdict.versions.items()}
    frameworks = [f"{name} {versions[name]}" for name in ("torch", "jax", "flax", "tensorflow") if name in versions]
    yield from ("# Ports by others, proved", "", f"Made by `fwbench audit {given}`. {summary(rows)}.", "")
    yield from (
        "Each row is a pair of public networks, in a small configuration, which `fwbench prove` has compared in",
        "float64 from the same weights. *Same* names the modes and the power of the proof: how many mistakes, planted",
        "one at a time in the second network, it would have found. *Different* names the quantities that exceed their",
        "bounds, and whether a network in which the difference is mended is the same. Errors are relative, the largest",
        "over all points, and those beyond their bounds stand below the table. A port may differ on purpose. Versions:",
        f"{', '.join(frameworks)}.",
        "",
    )


def _table(rows: Sequence[tuple[Pair, Verdict]]) -> Iterator[str]:
    yield text.row(_HEAD)
    yield text.row(["---"] * (len(_HEAD) - 1) + ["---:"])
    for pair, verdict in rows:
        networks = "; ".join(f"{framework}: {_source(source, verdict)}" for framework, source in pair.sources.items())
        reached = verdict.proved.errors if verdict.proved else {}
        errors = ", ".join(f"{name} {error:.0e}" for name, error in reached.items())
        where = "" if verdict.state == "same" else text.markdown(verdict.place)
        yield text.row(
            [
                text.markdown(pair.name),
                text.markdown(pair.kind),
                networks,
                text.markdown(_verdict(pair, verdict)),
                errors,
                where,
                f"{verdict.minutes:.1f}",
            ]
        )


def _verdict(pair: Pair, verdict: Verdict) -> str:
    proved = verdict.proved
    if proved is None:
        return verdict.state
    if verdict.state == "different":
        fixed = f"; the same with {pair.fix}" if verdict.fixed == "same" else ""
        # In a failed proof without a quantity beyond its bound, the obstacle to comparing them.
        beyond = [name for name in proved.bounds if name not in proved.errors] or ["randomness in training"]
        return f"different in {', '.join(beyond if proved.bounds else ['weights'])}{fixed}"
    modes = "inference and training" if "gradients" in proved.bounds else "inference"
    tolerance = ", ".join(f"{name} {bound:g}" for name, bound in pair.model.tolerance.items())
    admitted = f", with a tolerance of {tolerance}" if tolerance else ""
    power = f", {proved.power.found} of {proved.power.planted} planted mistakes" if proved.power else ""
    return f"same in {modes}{admitted}{power}"


def _source(source: Source, verdict: Verdict) -> str:
    if source.package:
        return text.markdown(f"{source.package} {verdict.versions.get(source.package, '')}".strip())
    short = text.markdown(f"{source.title}@{source.commit[:7]}")
    if not source.repository.startswith("https://"):
        return short
    return f"[{short}]({source.repository.removesuffix('.git')}/tree/{source.commit})"


def _differences(rows: Sequence[tuple[Pair, Verdict]]) -> Iterator[str]:
    told = [(pair, verdict) for pair, verdict in rows if verdict.state != "same" or pair.note]
    if told:
        yield from ("", "## Differences and notes", "")
    for pair, verdict in told:
        said = [verdict.sentence.rstrip(".")] if verdict.state != "same" else []
        if verdict.fixed == "same":
            said.append(f"With {pair.fix} the proof says: same")
        elif verdict.fixed:
            said.append(f"With {pair.fix} they are still not the same: {verdict.fixed.rstrip('.')}")
        said += [pair.note.rstrip(".")] if pair.note else []
        yield f"- **{text.markdown(pair.name)}**: {text.markdown('. '.join(said))}."
