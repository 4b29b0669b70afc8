"""What is paid for what: throughput against latency, and energy against latency, batch size by batch size."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from fwbench.report import units
from fwbench.report.cases import Case, over_seeds
from fwbench.report.figures import Drawing
from fwbench.report.look import PAGE, Sheet, Style, grid_of, legend, logarithmic, looking, named, panels_of, styles


@dataclass(frozen=True)
class _TradeOff:
    """What stands against latency.

    Attributes:
        label: of its axis.
        better: where in a panel the better points lie.
    """

    key: str
    title: str
    metric: str
    label: str
    show: Callable[[float], str]
    better: str


_TRADE_OFFS = (
    _TradeOff(
        "throughput-latency",
        "Throughput against latency",
        "throughput",
        "samples/s",
        units.rate,
        "Up and to the left is better",
    ),
    _TradeOff(
        "energy-latency",
        "Energy against latency",
        "energy_per_sample",
        "energy of a sample",
        units.joules,
        "Down and to the left is better",
    ),
)


def draw(cases: Sequence[Case], sheet: Sheet = PAGE) -> list[Drawing]:
    """A figure of each trade-off that at least two lanes of one model have points of; inference alone."""
    measured = (case for case in cases if case.replicates and not case.internal)
    inference = over_seeds(case for case in measured if case.workload.mode == "inference")
    with looking(sheet):
        return [drawing for trade_off in _TRADE_OFFS if (drawing := _draw(inference, trade_off))]


def _draw(cases: Sequence[Case], trade_off: _TradeOff) -> Drawing | None:
    groups: dict[tuple[str, str], dict[str, list[Case]]] = {}
    for case in cases:
        if _positive(case, "latency_p50") and _positive(case, trade_off.metric):
            lanes = groups.setdefault((case.workload.subject, case.workload.precision), {})
            lanes.setdefault(case.workload.lane, []).append(case)
    shown, note = panels_of({key: lanes for key, lanes in groups.items() if len(lanes) > 1})
    if not shown:
        return None
    looks = styles(lane for lanes in shown.values() for lane in lanes)
    figure, panels = grid_of(len(shown))
    for axes, ((model, precision), lanes) in zip(panels, shown.items(), strict=True):
        _panel(axes, lanes, looks, trade_off)
        axes.set(title=named(model, precision), xlabel="latency (p50)", ylabel=trade_off.label)
    legend(figure, looks)
    names = ", ".join(dict.fromkeys(model for model, _ in shown))
    return Drawing(
        trade_off.key,
        trade_off.title,
        "One panel a model, one line a lane, one point a batch size, which is written at the first lane's points. "
        f"{trade_off.better}; both axes are logarithmic.{note}",
        f"Points of {trade_off.label} over latency, one panel for each of {names}. The numbers are in Table II.",
        figure,
    )


def _panel(axes: Axes, lanes: dict[str, list[Case]], looks: dict[str, Style], trade_off: _TradeOff) -> None:
    every: list[tuple[float, float]] = []
    for lane, cases in lanes.items():
        of_lane = sorted(cases, key=lambda case: case.workload.batch_size)
        points = [(_positive(case, "latency_p50"), _positive(case, trade_off.metric)) for case in of_lane]
        look = looks[lane]
        axes.plot(*zip(*points, strict=True), color=look.colour, marker=look.marker, linestyle=look.line)
        # Written at every lane's points the sizes would cover each other.
        for case, point in zip(of_lane if not every else (), points, strict=False):
            label = f"b{case.workload.batch_size}"
            axes.annotate(label, point, xytext=(4, -7), textcoords="offset points", fontsize=7)
        every += points
    axes.set(xscale="log", yscale="log")
    logarithmic(axes, "x", [x for x, _ in every], units.seconds)
    logarithmic(axes, "y", [y for _, y in every], trade_off.show)


def _positive(case: Case, metric: str) -> float:
    """The metric's value, 0 where it has none that a logarithmic axis could show."""
    return max(0.0, case.value(metric) or 0.0)
