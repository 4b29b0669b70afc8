"""The forest plot: what it shows is the cases', and a lane looks the same everywhere."""

import itertools
import math
import statistics

import pytest

from fwbench.compare.cases import cases, settings
from fwbench.report import drawings, look
from fwbench.report.answers import answers
from tests.unit.recorded import measured, metric
from tests.unit.report.test_cases import record

JAX = "#0072B2"


def test_a_lane_has_one_look_that_no_other_lane_has():
    names = ["torch", "torch-compile", "jax", "tensorflow", "tensorflow-xla", "mxnet", "mine", "yours", "a", "b"]
    looks = look.styles(names)
    assert look.styles(reversed(names)) == looks
    for part in ("colour", "marker", "hatch"):
        assert len({getattr(one, part) for one in looks.values()}) == len(names)


def test_more_lanes_than_colours_still_look_different():
    looks = look.styles(f"lane-{number}" for number in range(40))
    assert len({(one.colour, one.marker) for one in looks.values()}) == 40


def runs(*pairs, **fields):
    """Runs of two lanes at these throughputs, as replicates."""

    def lane(name, number, speed):
        return measured(name, throughput=speed, stages={"latency": number + speed}, **fields)

    given = [record(lane("torch", n, torch), lane("jax", n, jax)) for n, (torch, jax) in enumerate(pairs)]
    return settings(given)[0].cases


def drawn(found, baseline="torch"):
    (drawing,) = [drawing for drawing in drawings.draw(found, baseline) if drawing.key == "ratios"]
    return drawing


def forest(found):
    return drawn(found).figure.axes[0]


def test_the_forest_plot_has_each_ratio_its_interval_and_its_pairs():
    axes = forest(runs(*((100.0, speed) for speed in (150.0, 200.0, 160.0, 190.0, 170.0, 180.0))))
    one, interval, pairs, mark = axes.get_lines()
    assert set(interval.get_ydata()) == set(mark.get_ydata()) == {1}
    assert (list(one.get_xdata()), axes.get_xscale()) == ([1.0, 1.0], "log")
    assert interval.get_xdata() == pytest.approx((1.5, 2.0))
    ratios = [1.5, 2.0, 1.6, 1.9, 1.7, 1.8]
    assert list(pairs.get_xdata()) == pytest.approx(ratios)
    # Hodges and Lehmann's estimate, of logarithms.
    means = [math.sqrt(one * other) for one, other in itertools.combinations_with_replacement(ratios, 2)]
    assert mark.get_xdata() == pytest.approx([statistics.median(means)])
    assert (mark.get_fillstyle(), mark.get_color()) == ("full", JAX)
    assert [text.get_text() for text in axes.texts] == ["inference", "mlp b1", "1.50x to 2.00x (n=6)"]
    # Above their lines, at either end.
    assert [text.get_position() for text in axes.texts[1:]] == [(0.0, pytest.approx(0.64)), (1.0, pytest.approx(0.64))]
    low, high = axes.get_xlim()
    assert low < 1.0 < 2.0 < high


@pytest.mark.parametrize(("pairs", "line"), [(5, "--"), (6, "-")])
def test_an_interval_of_less_than_95_percent_is_dotted(pairs, line):
    _, interval, *_ = forest(runs(*((100.0, 150.0 + number) for number in range(pairs)))).get_lines()
    assert interval.get_linestyle() == line


@pytest.mark.parametrize(("speed", "decided"), [(199.0, False), (201.0, True), (49.0, True)])
def test_the_line_of_single_processes_crosses_1x_where_they_decide_nothing(speed, decided):
    given = runs((100.0, speed))
    axes = forest(given)
    _, line, mark = axes.get_lines()
    low, high = line.get_xdata()
    assert (low, high) == pytest.approx((speed / 200, speed * 2 / 100))
    assert (low > 1 or high < 1) == decided == (answers(given)[0].confidence == "likely")
    assert (line.get_linestyle(), mark.get_fillstyle()) == ("--", "full")
    band, _ = axes.patches
    assert (band.get_x(), band.get_x() + band.get_width()) == pytest.approx((1 / 1.05, 1.05))


def test_disturbed_and_incomparable_ratios_are_marked():
    assert forest(runs((100.0, 120.0), metrics={"other_load": metric(0.2)})).texts[-1].get_text() == (
        "0.39x to 3.66x (n=1) *"
    )
    other = measured("mxnet", parity={"weights": "abc"})
    axes = forest(cases([measured("torch"), measured("jax", throughput=300.0), other]))
    assert [text.get_text() for text in axes.texts][2:] == ["3.00x (n=1)", "unchecked"]


@pytest.mark.parametrize("ratio", [1.0, 1.01, 1.9, 4.0, 60.0, 1e-4, 1e7])
def test_the_axis_of_ratios_has_1x_and_few_marks_among_them(ratio):
    axes = forest(runs((1.0, ratio)))
    marks = [tick.label1.get_text() for tick in axes.xaxis.get_major_ticks()]
    assert "1x" in marks
    assert 1 <= len(marks) <= 7
    low, high = axes.get_xlim()
    assert all(low <= tick <= high for tick in axes.get_xticks())
    assert low < ratio < high


@pytest.mark.parametrize(("lanes", "right"), [(["jax"], "JAX"), (["jax", "tensorflow"], "lane")])
def test_the_forest_plot_says_which_side_is_faster(lanes, right):
    axes = forest(cases([measured(lane) for lane in ("torch", *lanes)]))
    assert "PyTorch" in axes.get_title(loc="left")
    assert axes.get_title(loc="right").startswith(f"{right} faster")
    assert [patch.get_gid() for patch in axes.patches[1:]] == [f"row-{number + 1}" for number in range(len(lanes))]


def test_it_is_relative_to_the_lane_that_was_asked_for():
    found = cases([measured("torch", throughput=50.0), measured("jax"), measured("torch-compile")])
    drawing = drawn(found, "jax")
    assert drawing.title == "Every lane against JAX (jit)"
    # For who cannot see it.
    assert "the table of the same name." in drawing.alternative
    *_, torch, compiled = drawing.figure.axes[0].texts
    assert (torch.get_text(), compiled.get_text()) == ("0.50x (n=1)", "1.00x (n=1)")


def test_it_has_every_ratio_and_a_long_name_leaves_its_batch_size_and_arithmetic_in_sight():
    given = [measured(lane, f"model-{n}") for n in range(30) for lane in ("torch", "jax")]
    assert len(forest(cases(given)).texts) == 1 + 2 * 30
    lanes = [measured(lane, "a" * 60, batch_size=8, precision="bf16") for lane in ("torch", "jax")]
    assert forest(cases(lanes)).texts[1].get_text() == f"{'a' * 17}... b8 bf16"
