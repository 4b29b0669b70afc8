"""Each row's FLOP/s against the limits of its machine: measured ceilings and data-sheet peaks."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from fwbench import units
from fwbench.compare.cases import Case, OfCase, grouped, measured, over_seeds
from fwbench.ext.studies.peaks import Peaks, peaks
from fwbench.machine import Machine
from fwbench.record.workload import Workload
from fwbench.report.columns import workload_columns
from fwbench.report.limits import ceilings
from fwbench.report.tables import Column, Table, tabulate

Binds = Literal["host", "compute", "memory", "caches", "neither", "unknown"]

# A limit binds a row if it explains at least this share of the row's time.
_BINDS = 0.5


@dataclass(frozen=True)
class Limited(OfCase):
    """A row against the limits of its machine.

    Attributes:
        flops: FLOP of a call.
        seconds: seconds of a call in calls back to back, as throughput is measured.
        moved: bytes that a call reads and writes; None if the lane does not report them.
        ceiling, bandwidth: as measured, in FLOP/s and B/s; None if they were not.
        fastest: FLOP/s of the fastest operation, which may be more than `ceiling`.
        peak: the data sheet's, in FLOP/s.
        busy: seconds of a call in which the GPU works for it; None if unknown.
    """

    flops: float
    seconds: float
    moved: float | None
    ceiling: float | None
    fastest: float | None
    bandwidth: float | None
    peak: float | None
    busy: float | None = None

    @property
    def rate(self) -> float:
        """FLOP/s."""
        return self.flops / self.seconds

    @property
    def share(self) -> float | None:
        """The share of the measured ceiling."""
        return self.rate / self.ceiling if self.ceiling else None

    @property
    def intensity(self) -> float | None:
        """FLOP for each byte that is moved."""
        return self.flops / self.moved if self.moved else None

    @property
    def binds(self) -> Binds:
        """The limit that explains at least half of a call's time.

        `host`: the GPU waits for its host for more than half of the time. `caches`: its bytes come faster than memory
        could give them. `neither`: most of the time goes to something else, such as starting many small operators, or
        code that uses the processor badly.
        """
        if self.busy is not None and self.busy < _BINDS * self.seconds:
            return "host"
        computing = self.flops / self.ceiling / self.seconds if self.ceiling else None
        if computing is not None and computing >= _BINDS and self.moved is None:
            return "compute"
        if computing is None or self.moved is None or not self.bandwidth:
            return "unknown"
        moving = self.moved / self.bandwidth / self.seconds
        if max(computing, moving) < _BINDS:
            return "neither"
        if computing >= moving:
            return "compute"
        return "memory" if moving <= 1 else "caches"


def limited(cases: Sequence[Case], machine: Machine | None = None) -> list[Limited]:
    """Every row with known FLOPs and throughput, against the ceilings on the same records."""
    shown = over_seeds(measured(cases))
    best, sheet = ceilings(m for case in shown for m in case.measurements), _sheet(machine)
    # One count for all lanes: none gets credit for operations that another one does without.
    flops = {
        across: min(filter(None, (case.value("model_flops") for case in of)), default=None)
        for across, of in grouped(shown, _across).items()
    }
    rows = []
    for case in shown:
        workload, counted, throughput = case.workload, flops[_across(case)], case.value("throughput")
        if counted and throughput:
            precision, peak = workload.precision, sheet.flops.get(workload.precision) if sheet else None
            rates = best.limit(precision, workload.device), best.reached(precision), best.bandwidth, peak
            # A ceiling is that of one GPU; on a CPU it is that of all cores, even if several processes share them.
            devices = workload.devices if workload.device == "gpu" else 1
            ceiling, fastest, bandwidth, peak = (rate and devices * rate for rate in rates)
            seconds, busy = workload.samples / throughput, case.value("device_time")
            rows.append(Limited(case, counted, seconds, _moved(case), ceiling, fastest, bandwidth, peak, busy))
    return rows


def _sheet(machine: Machine | None) -> Peaks | None:
    return peaks(machine.accelerator) if machine and machine.device == "gpu" else None


def above(cases: Sequence[Case]) -> list[str]:
    """A sentence if rows compute faster than the measured ceiling, which then is no ceiling; else nothing."""
    rows = [(row.rate / row.fastest, row) for row in limited(cases) if row.fastest and row.rate > row.fastest]
    if not rows:
        return []
    share, most = max(rows, key=lambda pair: pair[0])
    workload = most.workload
    subject = "1 row computes" if len(rows) == 1 else f"{len(rows)} rows compute"
    return [
        f"{subject} faster than the measured ceiling ({share:.0%} of it: {workload.id}), so it is no ceiling: it was "
        "measured beside other load, or what was tried is not the fastest that this machine can do. Measure again on a "
        "quiet machine."
    ]


def table(cases: Sequence[Case], machine: Machine | None) -> Table:
    """The table of limits: each row's FLOP/s, shares and binding limit; columns empty in all rows are left out."""
    rows, sheet = limited(cases, machine), _sheet(machine)
    best = ceilings(m for case in measured(cases) for m in case.measurements)
    optional = [
        Column[Limited]("of ceiling", lambda row: row.share, "1", "{:.1%}".format),
        Column[Limited]("MFU", lambda row: row.rate / row.peak if row.peak else None, "1", "{:.1%}".format),
        Column[Limited]("bytes a call", lambda row: row.moved, "B", units.size),
        Column[Limited]("intensity", lambda row: row.intensity, "FLOP/B", units.rate),
    ]
    if any(row.share is not None or row.busy is not None for row in rows):
        optional.append(Column("limit", lambda row: row.binds))
    return tabulate(
        "limits",
        "How near the limit",
        f"{_TOLD} MFU is the share of the peak in the {sheet.source}, without sparsity." if sheet else _TOLD,
        (
            *workload_columns(rows),
            Column("lane", lambda row: row.case.lane),
            Column("FLOP a call", lambda row: row.flops, "FLOP", units.flop),
            Column("achieved", lambda row: row.rate, "FLOP/s", units.flop_rate),
            *(column for column in optional if any(column.of(row) is not None for row in rows)),
        ),
        rows,
        _missing(rows, machine, sheet, best.disturbed),
    )


_TOLD = (
    "FLOP a call is counted alike for every lane: two for each multiply-accumulate of the model's forward pass, three "
    "times that in a training step. Achieved is at the throughput of calls back to back; of ceiling is its share of "
    "the fastest matrix product that any lane reached in this precision, or on a CPU of a convolution if that is "
    "faster, with all threads. Bytes a call "
    "are what its operators or compiled kernels read and write, in each lane by its own count; intensity is FLOP for "
    "each of them. Limit is what explains at least half of the time: host where a GPU waits for it; compute, memory, "
    "or caches where bytes come faster than memory gives them; neither, where the time goes to something else; "
    "unknown, where the lane does not "
    'tell its bytes (docs/method.md, "How near the limit").'
)


def _missing(
    rows: Sequence[Limited], machine: Machine | None, sheet: Peaks | None, disturbed: Sequence[str]
) -> Iterator[str]:
    if disturbed:
        yield f"a ceiling of {' and '.join(disturbed)} that was measured undisturbed: this one may be too low"
    if rows and machine and machine.device == "cpu":
        yield "no data-sheet peak: a CPU's clock under vector instructions is no published figure"
    elif rows and machine and sheet is None:
        yield f"no data-sheet peak: fwbench lists none of {machine.accelerator}"
    if untold := dict.fromkeys(row.workload.lane for row in rows if row.moved is None):
        yield f"bytes of {', '.join(untold)}, which the lane or the compiler does not state"


def _across(case: Case) -> Workload:
    return dataclasses.replace(case.workload, lane="", remat=False, plain=False, accumulate=1)


def _moved(case: Case) -> float | None:
    """Bytes that a call reads and writes; None with accumulation, as XLA counts its loop's body once."""
    if case.workload.accumulate > 1:
        return None
    programs = [m.program for m in case.measurements if m.program]
    return next((program.bytes_accessed for program in programs if program.bytes_accessed), None)
