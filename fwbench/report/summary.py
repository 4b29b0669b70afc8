"""The tables on the terminal when a run ends: answers, and each lane's own numbers; then the notes."""

import statistics
from collections.abc import Iterator, Sequence

from fwbench import units
from fwbench.compare.agreement import idle, wrong
from fwbench.compare.cases import baseline, cases, grouped, reasons, title
from fwbench.compare.parity import doubts
from fwbench.extensions import added
from fwbench.machine.disturbances import CAUSES, LOAD, capped, disturbances
from fwbench.record.lanes import BASELINE
from fwbench.record.measurement import ALSO_IMPORTED, LEFT_OUT, WAITING, Measurement, fitting
from fwbench.record.quantiles import quantile
from fwbench.report import calls, precisions, ratios
from fwbench.report.answers import answers, in_short
from fwbench.report.limits import matrix_products
from fwbench.report.tables import Table
from fwbench.report.tables import lines as for_terminal
from fwbench.text import line, shortened

_NAMED = 1  # benchmarks in a note, whose end is cut
# A power limit that holds the clocks down for at most this share of a pass is not worth a note.
_CAPPED = 0.05
# A row gets a note if it is slower than its turns by more than this factor.
_SLOWER = 1.2
# Between the 40th and the 60th percentile calls of one speed differ by less than this factor.
_TWO_SPEEDS = 1.5
# Seconds of a call; in a shorter one, the Python of a jit that takes modules apart is a large part.
_SHORT = 1e-3
# The most notes at the end of a run, and the most characters of a note; the report has the rest.
_MOST, _LONGEST = 5, 200

_LEFT = 4  # columns of text; numbers after them are set flush right


def answered(measurements: Sequence[Measurement]) -> list[str]:
    """The lines of the table of answers: which lane is faster in each workload; none if no two lanes are compared."""
    rows = answers(cases(m for m in measurements if m.workload.mode != "fit"))
    return for_terminal(in_short(rows)) if any(row.weighed for row in rows) else []


def priced(measurements: Sequence[Measurement]) -> list[str]:
    """The lines of the table of lower precisions: their speed over fp32's, and their errors; none if there are none."""
    return for_terminal(precisions.table(precisions.prices(cases(measurements)), brief=True))


def table(measurements: Sequence[Measurement]) -> list[str]:
    """The lines of the table of calls: inference and single training steps."""
    call_cases = cases(m for m in measurements if m.workload.mode != "fit")
    return _lines(calls.table("calls", "", call_cases, baseline(call_cases)))


def of_extensions(measurements: Sequence[Measurement], study: str | None, numbers: bool) -> list[list[str]]:
    """The lines of each table that extensions add to a run of this study, or of none.

    Args:
        numbers: whether the lanes' own numbers are shown.
    """
    return [_lines(table) for table in added("ending", measurements, study, numbers)]


def _lines(table: Table) -> list[str]:
    lines = for_terminal(table, _LEFT)
    # An empty line before each further model; the first line holds the names.
    for place in range(len(table.rows) - 1, 0, -1):
        if table.rows[place].values[0] != table.rows[place - 1].values[0]:
            lines.insert(place + 1, "")
    return lines


def notes(measurements: Sequence[Measurement]) -> list[str]:
    """The first of all notes, each on one line; the last says how many more the report has."""
    every = every_note(measurements)
    shown = [line(note, _LONGEST) for note in every[:_MOST]]
    if left_out := len(every) - len(shown):
        shown[-1] += f" (and {left_out} more note{'s' * (left_out > 1)} in the report)"
    return shown


def every_note(measurements: Sequence[Measurement]) -> list[str]:
    """The notes for readers of the table: cautions, the reasons of empty cells, the harness's overhead."""
    measured = [m for m in measurements if not m.failure]
    lines = [*doubts(cases(measured)), *precisions.unlike(cases(measured)), *cautions(measured)]
    of_calls = cases(m for m in measured if m.workload.mode != "fit")
    lane = baseline(of_calls)
    if lane not in (None, BASELINE.name):
        lines.append(f"speed-up is relative to {title(lane)}")
    lines += [
        f"{answer.workload.subject} {answer.workload.mode} b{answer.workload.batch_size}: {answer.weighed.apart}"
        for answer in answers(of_calls)
        if answer.weighed and answer.weighed.apart
    ]
    if any(ratio.weighed and ratio.weighed.disturbed for ratio in ratios.ratios(of_calls, lane)):
        lines.append(f"a speed-up {units.OPEN}: other load or the like disturbed its rows")
    lines += [f"no energy: {reason}" for reason in reasons(cases(measured), "energy_per_sample")[:1]]
    return [*lines, *overhead(measured)]


def overhead(measured: Sequence[Measurement]) -> list[str]:
    """A sentence on the harness's overhead; none if the records lack it."""
    starts = [m.start_s for m in measured if m.start_s is not None]
    overheads = [m.overhead_s for m in measured if m.overhead_s is not None]
    if not starts or not overheads:
        return []
    return [
        f"harness, median of {len(overheads)}: a worker starts in {units.seconds(statistics.median(starts))}, "
        f"and {units.seconds(statistics.median(overheads))} a benchmark go to anything but the stages shown"
    ]


def cautions(measured: Sequence[Measurement]) -> list[str]:
    """Cautions on numbers that may mislead: crashes, halved batches, unusual paths, disturbances, recompilation."""
    return [
        *_replaced(measured),
        *added("notes", measured),
        *_of_products(measured),
        *(f"{m.workload.id}: {said}" for m in measured for said in _of_outputs(m)),
        *_of_settings(measured),
        *_left_out(measured),
        *(f"{m.workload.id}: {said}" for m in measured for said in _of_calls(m)),
        *_disturbed(measured),
        *_capped(measured),
        *_slower_alone(measured),
        *_repeated(measured),
    ]


def _replaced(measured: Sequence[Measurement]) -> Iterator[str]:
    """Notes on measurements not made as asked: after a crash, of smaller batches, elsewhere, on a part of a CPU."""
    yield from (f"{m.workload.id}: {m.after_crash}" for m in measured if m.after_crash)
    yield from dict.fromkeys(f"{m.workload.id}: {fitting(m.unfit)} (fit_batch=true)" for m in measured if m.unfit)
    for m in measured:
        if m.node and m.node.lost:
            lost = " and ".join(m.node.lost)
            yield f"{m.workload.id}: lost with its process on {lost}, and measured again on {m.node.host}"
    parts = [m.node.accelerators for m in measured if m.node and m.workload.device == "cpu"]
    if parts and max(parts) > 1:
        yield (
            f"{sum(count > 1 for count in parts)} of {len(measured)} were measured on a part of their CPU (one of "
            f"{max(parts)}) while others were measured on the rest, with which they share caches and memory: those "
            "numbers are not the whole machine's"
        )


def _of_products(measured: Sequence[Measurement]) -> Iterator[str]:
    """Notes on matrix products far slower than the best lane's."""
    for precision, (rates, slow) in matrix_products(measured).items():
        if slow:
            yield (
                f"matrix products in {precision} are far slower in {' and '.join(slow)} than this machine can: "
                f"{rates}. Networks that consist of them, such as ViT, are slow there for that reason "
                '(docs/method.md, "Matrix products")'
            )


def _of_settings(measured: Sequence[Measurement]) -> Iterator[str]:
    """Notes on rows whose settings hold a caution, or whose process also imported other frameworks."""
    cautioned = grouped((m for m in measured if m.settings.get("caution")), lambda m: m.settings["caution"])
    yield from (f"{_ids(of)}: {caution}" for caution, of in cautioned.items())
    mixed = (m for m in measured if m.settings.get(ALSO_IMPORTED))
    beside = grouped(mixed, lambda m: (m.workload.lane, " and ".join(m.settings[ALSO_IMPORTED])))
    for (lane, others), of in beside.items():
        yield (
            f"{_ids(of)}: the process of {lane} also imported {others}, whose memory is in the host memory shown, "
            "so no lane is said to have the least"
        )


def _of_calls(m: Measurement) -> Iterator[str]:
    """Notes on the durations of one row's calls: a few very slow calls, or two speeds."""
    p95 = m.value("latency_p95")
    if p95 is None or not m.samples:
        return
    if statistics.fmean(m.samples) > p95:
        yield (
            "the mean latency lies above p95; a few calls were very slow. "
            "Look for other load on the machine and measure again."
        )
    low, high = quantile(m.samples, 40), quantile(m.samples, 60)
    if high > _TWO_SPEEDS * low:
        yield (
            f"its calls have two speeds, and p50 is one of them: 40 % take at most {units.seconds(low)}, and 40 % at "
            f"least {units.seconds(high)}"
        )


def _repeated(measured: Sequence[Measurement]) -> Iterator[str]:
    """Notes on measuring again, on waiting for other load to end, and on recompilation."""
    attempted = (m for m in measured if m.attempts)
    for rerun, again in grouped(attempted, lambda m: any(attempt.get("rerun") for attempt in m.attempts)).items():
        when = "when the test was run again" if rerun else "as the first attempt was disturbed"
        yield f"measured a second time {when}: {len(again)} ({_ids(again)})"
    if waited := sum(m.stages.get(WAITING, 0.0) for m in measured):
        yield (
            f"waited {units.duration(waited)} for other load to end before timing "
            "(--fwbench-set=patience=SECONDS gives it more or less)"
        )
    for m in measured:
        if m.program and m.program.recompilations:
            yield (
                f"{m.workload.id}: recompiled while it was measured ({m.program.recompilations}x); a shape, a type or "
                "a value that it is compiled for changes from call to call"
            )


def _left_out(measured: Sequence[Measurement]) -> Iterator[str]:
    """Notes on short calls that leave out their jit's work at each call, which may take longer than the call."""
    short = [m for m in measured if m.settings.get(LEFT_OUT) and (m.value("latency_p50") or _SHORT) < _SHORT]
    for jit, of in grouped(short, lambda m: m.settings[LEFT_OUT]).items():
        yield (
            f"{_ids(of)}: what {jit} does at each call is left out, and can take longer than the call: "
            '--fwbench-set call=program,module measures both (docs/method.md, "What a call leaves out")'
        )


def _of_outputs(m: Measurement) -> Iterator[str]:
    """Notes on a measurement's own outputs, if wrong or constant, and on memory that grows from call to call."""
    if said := wrong(m):
        yield f"error: {said}"
    elif still := idle(m):
        yield (
            f"its output does not change with its {' or its '.join(still)}: the network is constant or rounds it away, "
            "or the lane does not compute it at each call"
        )
    if growth := m.value("memory_growth"):
        yield f"memory grows by {units.size(growth)} with each call ({m.metrics['memory_growth'].source})"


def _disturbed(measured: Sequence[Measurement]) -> Iterator[str]:
    """Yield a sentence for each cause that disturbed measurements."""
    # Threads that wait for each other suffer most; one alone waits for nobody.
    several = [m.settings for m in measured if m.settings.get("OMP_NUM_THREADS") != "1"]
    ways = ["--fwbench-threads=1"] if several else []
    if any(str(of.get("OMP_WAIT_POLICY")).upper() != "PASSIVE" for of in several):
        ways.insert(0, "OMP_WAIT_POLICY=PASSIVE")
    pairs = [(m.workload.id, disturbance) for m in measured for disturbance in disturbances([m])]
    by_cause = grouped(pairs, lambda pair: pair[1].cause)
    for cause in (cause for cause in CAUSES if cause in by_cause):
        worst, most = max(by_cause[cause], key=lambda pair: pair[1].degree)
        helps = f", or set {' or '.join(ways)}" if ways and cause == LOAD else ""
        yield (
            f"{cause.happened} while {len(by_cause[cause])} of {len(measured)} were measured (most: {most.detail}, "
            f"{worst}). {cause.next_step}{helps}, and measure again."
        )


def _capped(measured: Sequence[Measurement]) -> Iterator[str]:
    """A note on the time for which the GPU's power limit held the clocks down; at full load this is no disturbance."""
    shares = [(share, m.workload.id) for m in measured if (share := capped(m.accelerator) or 0.0) > _CAPPED]
    if shares:
        most, worst = max(shares)
        yield (
            f"the GPU's power limit held the clocks down in {len(shares)} of {len(measured)} (most: {most:.0%} of a "
            f"pass, {worst}): a GPU that computes all it can works at its limit, and with a higher one it would be "
            "faster"
        )


def _slower_alone(measured: Sequence[Measurement]) -> Iterator[str]:
    """A note on rows of a GPU that are slower than their turns, which load the programs that the rows compiled."""
    turned = (m for m in measured if m.workload.device == "gpu" and m.turns)
    factors = (
        (m.workload.samples / throughput / statistics.median(min(each["call"]) for each in m.turns), m.workload.id)
        for m in turned
        if (throughput := m.value("throughput"))
    )
    if slower := [each for each in factors if each[0] > _SLOWER]:
        most, worst = max(slower)
        yield (
            f"{len(slower)} rows are slower than their turns (most: {units.ratio(most)}, {worst}). The answers rest on "
            "the turns; a row is one process, and its host may have been slow"
        )


def _ids(measurements: Sequence[Measurement]) -> str:
    return shortened([m.workload.id for m in measurements], _NAMED)
