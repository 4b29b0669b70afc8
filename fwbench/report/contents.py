"""A report's contents: its tables in reading order, its missing parts, its failures."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fwbench import units
from fwbench.compare.cases import Case, Setting, grouped, measured, reasons
from fwbench.compare.parity import WORDS, doubts, tally
from fwbench.extensions import added
from fwbench.record.measurement import Measurement
from fwbench.record.metrics import METRICS
from fwbench.record.storage import Plain, Record
from fwbench.record.workload import MODES
from fwbench.report import answers, calls, limits, precisions, ratios, summary
from fwbench.report.tables import Column, Table, tabulate


def tables(setting: Setting, baseline: str | None) -> list[Table]:
    """Every table that has a row; speed-ups are relative to the baseline lane."""
    cases = setting.cases
    of_mode = {mode: _of(cases, mode) for mode in MODES}
    unknown = [case for case in cases if case.workload.mode not in MODES and not case.internal]
    everything = (
        answers.table(answers.answers(cases)),
        ratios.table(ratios.ratios(cases, baseline), baseline or ""),
        calls.table("inference", "Table II: inference", of_mode["inference"], baseline),
        calls.table("prefill", "Prefill: p50 is the time to first token", of_mode["prefill"], baseline),
        calls.table("decode", "Decode: p50 is the time per output token", of_mode["decode"], baseline),
        calls.table("training-steps", "Training steps", of_mode["train_step"], baseline),
        precisions.table(precisions.prices(cases)),
        calls.table("other-modes", "Modes that this fwbench does not know", unknown, baseline),
        limits.table(setting.measurements),
        *added("tables", setting, baseline),
        calls.table("harness", "The harness's own overhead", [case for case in cases if case.internal], None),
        failures(setting),
        parity(setting),
        sources(setting),
        fingerprint(setting),
        runs(setting),
    )
    return [table for table in everything if table.rows]


def remarks(setting: Setting) -> list[str]:
    """The sentences to read before the numbers: missing parts, and numbers that may not be the machine's."""
    made = [m for case in setting.cases for m in case.measurements]
    evidence = [*doubts(setting.cases), *precisions.unlike(setting.cases)]
    return [*evidence, *missing(setting), *summary.cautions(made), *summary.overhead(made)]


def missing(setting: Setting) -> list[str]:
    """A sentence on each part that a whole report has and this one lacks, and the notes on its records."""
    shown = measured(setting.cases)
    modes = {"inference": "inference", "train_step": "training steps", "fit": "epochs of training (mode fit)"}
    left_out = (what for mode, what in modes.items() if not _of(shown, mode))
    sentences = [f"No {what} measured: Tables and figures of them are left out." for what in left_out]
    lanes = {case.workload.lane for case in shown}
    if len(lanes) == 1:
        sentences.append(f"One lane only ({lanes.pop()}): nothing to compare it with.")
    sizes = {case.workload.batch_size for case in _of(shown, "inference")}
    if len(sizes) == 1:
        sentences.append(f"One batch size of inference only ({sizes.pop()}): no throughput against batch size to see.")
    sentences += [f"No energy: {reason}." for reason in sorted(reasons(shown, "energy_per_sample"))]
    failed = [case for case in setting.cases if case.why_failed()]
    if failed:
        sentences.append(f"{len(failed)} of {len(setting.cases)} workloads have no numbers: see what failed.")
    commits = {record.commit["id"] for record in setting.records if "id" in record.commit}
    if len(commits) > 1:
        sentences.append(
            f"Runs of {len(commits)} commits stand together, and are no replicates: `fwbench history` shows them apart."
        )
    for record in setting.records:
        counts = Counter(m.workload.id for m in record.measurements if not m.failure)
        twice = (f"holds {name} {n} times, which count as processes of its run" for name, n in counts.items() if n > 1)
        sentences += [f"{record.path.name}: {note}." for note in (*record.told, *twice)]
    return sentences


def failures(setting: Setting) -> Table:
    """The table of failures: the workload, and the failure's kind, stage and message."""

    def part(name: str) -> Column[Measurement]:
        return Column(name, lambda failed: getattr(failed.failure, name))

    return tabulate(
        "failures",
        "What failed",
        "unavailable: cannot run here; crashed: the process died; timed_out: passed its deadline; error: an exception.",
        (Column("workload", lambda failed: failed.workload.id), part("kind"), part("stage"), part("message")),
        [m for case in setting.cases for m in case.failures],
    )


@dataclass(frozen=True)
class _Stamp:
    """The evidence that a model's numbers are comparable, over all of its measurements."""

    model: str
    measurements: tuple[Measurement, ...]

    @property
    def proofs(self) -> list[Mapping[str, Any]]:
        return [m.parity.get("proof") or {} for m in self.measurements]

    def error(self, quantity: str) -> float | None:
        """The largest error over all frameworks; None where no proof states it."""
        errors = (proof.get("errors", {}).get(quantity) for proof in self.proofs)
        return max((float(error) for error in errors if isinstance(error, int | float)), default=None)

    def state(self) -> str:
        """The state of every framework's proof, with what is wrong."""
        states: dict[str, None] = {}
        for proof in self.proofs:
            framework, state = proof.get("framework", "?"), proof.get("state", "missing")
            reason = f" ({proof['reason']})" if proof.get("reason") else ""
            states[f"{framework} {state}{reason}"] = None
        return ", ".join(states)

    def weights(self) -> str:
        """The digests if all lanes started from the same weights, seed by seed; else the error, in words."""
        by_seed: dict[tuple[int, str], set[str]] = {}
        for m in self.measurements:
            by_seed.setdefault((m.workload.seed, m.workload.weights), set()).add(str(m.parity.get("weights")))
        if all(len(digests) == 1 for digests in by_seed.values()):
            return f"the same ({', '.join(sorted(set().union(*by_seed.values())))})"
        return "error: different, so not comparable"

    def arithmetic(self) -> str:
        arithmetics = {
            f"{of.lane} {found}{' in attention' if name == 'attention' and found != of.precision else ''}"
            for of, probes in ((m.workload, m.parity.get("probe") or {}) for m in self.measurements)
            for name, probe in probes.items()
            for found in [probe.get("arithmetic")]
        }
        return ", ".join(sorted(arithmetics))


def parity(setting: Setting) -> Table:
    """The table of evidence for comparing: each model's proof, its weights, and the arithmetic that was probed."""
    made = [m for case in measured(setting.cases) for m in case.measurements]

    def error(quantity: str) -> Column[_Stamp]:
        return Column(quantity, lambda stamp: stamp.error(quantity), "1", "{:.1e}".format)

    shown = tally(setting.cases)
    return tabulate(
        "parity",
        "Why these numbers may be compared",
        f"Evidence: for how many pairs of lanes the evidence is {WORDS}. Largest float64 error between the frameworks' "
        "networks, as `fwbench prove` found it, and whether that proof is of the networks that were measured "
        "(reference: the one that the others are proved against); the weights that the lanes started from; the "
        "arithmetic that a numeric probe found in the process that measured.",
        (
            Column("model", lambda stamp: stamp.model),
            Column("evidence", lambda stamp: shown.get(stamp.model, "")),
            error("output"),
            error("gradients"),
            Column("proof", _Stamp.state),
            Column("weights", _Stamp.weights),
            Column("arithmetic", _Stamp.arithmetic),
        ),
        [_Stamp(model, tuple(of)) for model, of in grouped(made, lambda m: m.workload.model).items()],
    )


def sources(setting: Setting) -> Table:
    """The table of sources: the way in which each number was made, according to the records."""
    ways: dict[str, dict[str, None]] = {}
    for m in setting.measurements:
        for name, metric in m.metrics.items():
            # Counts differ from workload to workload, so `n` stands for each.
            way = re.sub(r"\d+(\.\d+)?", "n", metric.source.partition(", n=")[0])
            ways.setdefault(name, {})[way] = None
    return tabulate(
        "sources",
        "How each number was made",
        "Units are those of the CSV files and the records; n stands for a count that differs from workload to "
        "workload. docs/method.md says when not to trust a number.",
        (
            Column("metric", lambda pair: pair[0]),
            Column("unit", lambda pair: METRICS[pair[0]].unit if pair[0] in METRICS else "?"),
            Column("better", lambda pair: METRICS[pair[0]].direction if pair[0] in METRICS else "?"),
            Column("what", lambda pair: METRICS[pair[0]].meaning if pair[0] in METRICS else "unknown to this fwbench"),
            Column("read from", lambda pair: "; ".join(pair[1])),
        ),
        ways.items(),
    )


def fingerprint(setting: Setting) -> Table:
    """The machine, the versions and the settings of each lane."""
    machines = [record.machine.to_json() for record in setting.records if record.machine]
    # Records of one machine may differ in fields that do not tell machines apart, such as the kernel.
    lines = {
        f"machine: {name}": ", ".join(dict.fromkeys(str(machine[name]) for machine in machines))
        for name in (machines[0] if machines else ())
    }
    lines |= {
        f"{lane}: version of {name}": version for lane, of in setting.versions.items() for name, version in of.items()
    }
    for m in setting.measurements:
        if not m.failure:
            devices = f" over {m.workload.devices} devices" if m.workload.devices > 1 else ""
            lines |= {f"{m.workload.lane}{devices}: {name}": value for name, value in m.settings.items()}
    return tabulate(
        "fingerprint",
        "The machine and the settings",
        "What the numbers depend on besides the code, as written on the records.",
        (Column("what", lambda line: line[0]), Column("is", lambda line: str(line[1]))),
        lines.items(),
    )


def runs(setting: Setting) -> Table:
    """The records that the tables were made from."""

    def commit(name: str) -> Column[Record]:
        return Column(name, lambda record: str(record.commit[name]) if name in record.commit else None)

    return tabulate(
        "records",
        "The records",
        "If there are several, their numbers stand together as medians. They are replicates only if they are of one "
        "commit and do not drift.",
        (
            Column("file", lambda record: record.path.name),
            Column("made", lambda record: f"{record.made:%Y-%m-%d %H:%M} UTC"),
            commit("id"),
            commit("branch"),
            commit("dirty"),
            Column("measurements", lambda record: len(record.measurements), "1"),
        ),
        setting.records,
    )


def foreign(benchmarks: Sequence[tuple[Record, Plain]]) -> Table:
    """The table of benchmarks that fwbench did not measure, with pytest-benchmark's numbers."""

    def time(name: str) -> Column[tuple[Record, Plain]]:
        return Column(name, lambda pair: pair[1].stats.get(name), "s", units.seconds)

    return tabulate(
        "other-benchmarks",
        "Benchmarks without a workload",
        "Measured by pytest-benchmark itself, in pytest's own process; rounds of one process.",
        (
            Column("benchmark", lambda pair: pair[1].fullname),
            Column("file", lambda pair: pair[0].path.name),
            Column("rounds", lambda pair: pair[1].stats.get("rounds"), "1"),
            time("median"),
            time("mean"),
            time("stddev"),
        ),
        benchmarks,
    )


def _of(cases: Sequence[Case], mode: str) -> list[Case]:
    return [case for case in cases if case.workload.mode == mode and not case.internal]
