"""What a report holds: its tables in reading order, what it lacks, what failed."""

from collections.abc import Sequence

from fwbench.measurement import Measurement
from fwbench.records import Plain, Record
from fwbench.report import answers, calls, fits, published, units
from fwbench.report.cases import Case, Setting
from fwbench.report.tables import Column, Table, tabulate


def tables(setting: Setting) -> list[Table]:
    """Every table that has a row."""
    cases = setting.cases
    of_mode = {mode: _of(cases, mode) for mode in ("inference", "train_step", "fit")}
    everything = (
        answers.table(answers.answers(cases)),
        calls.summary(of_mode["inference"]),
        calls.table("inference", "Table II: inference", of_mode["inference"]),
        calls.table("training-steps", "Training steps", of_mode["train_step"]),
        fits.final_epochs(of_mode["fit"]),
        fits.all_epochs(of_mode["fit"]),
        fits.epoch_times(of_mode["fit"]),
        fits.training_times(of_mode["fit"]),
        calls.break_even([*of_mode["inference"], *of_mode["train_step"]]),
        *published.beside(cases),
        calls.table("harness", "The harness's own price", [case for case in cases if case.internal]),
        failures(setting),
    )
    return [table for table in everything if table.rows]


def missing(setting: Setting) -> list[str]:
    """What a whole report has and this one lacks: a sentence each."""
    measured = [case for case in setting.cases if case.replicates and not case.internal]
    modes = {"inference": "inference", "train_step": "training steps", "fit": "epochs of training (mode fit)"}
    found = [
        f"No {what} measured: Tables and figures of them are left out."
        for mode, what in modes.items()
        if not _of(measured, mode)
    ]
    lanes = {case.workload.framework for case in measured}
    if len(lanes) == 1:
        found.append(f"One lane only ({lanes.pop()}): nothing to compare it with.")
    sizes = {case.workload.batch_size for case in _of(measured, "inference")}
    if len(sizes) == 1:
        found.append(f"One batch size of inference only ({sizes.pop()}): no throughput against batch size to see.")
    reasons = {m.reason for case in measured if (m := case.metric("energy_per_sample")) and m.reason}
    found += [f"No energy: {reason}." for reason in sorted(reasons)]
    failed = [case for case in setting.cases if case.why_failed()]
    if failed:
        found.append(f"{len(failed)} of {len(setting.cases)} workloads have no numbers: see what failed.")
    return [*found, *(f"{record.path.name}: {note}." for record in setting.records for note in record.notes)]


def failures(setting: Setting) -> Table:
    """What failed, of which kind, where and why."""

    def part(name: str) -> Column[Measurement]:
        return Column(name, lambda failed: getattr(failed.failure, name))

    return tabulate(
        "failures",
        "What failed",
        "unavailable: cannot run here; crashed: the process died; timed_out: passed its deadline; error: an exception.",
        (
            Column("workload", lambda failed: failed.workload.id),
            part("kind"),
            part("stage"),
            part("message"),
        ),
        [m for case in setting.cases for m in case.failures],
    )


def foreign(benchmarks: Sequence[tuple[Record, Plain]]) -> Table:
    """Benchmarks that fwbench did not measure, as pytest-benchmark states them."""

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
