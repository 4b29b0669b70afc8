"""The figures: what they show is the cases', and a lane looks the same everywhere."""

import pytest

from fwbench.report import figures, look
from fwbench.report.cases import baseline, cases
from tests.unit.recorded import fitted, measured, metric


def drawn(*measurements):
    found = cases(measurements)
    return {drawing.key: drawing for drawing in figures.draw(found, baseline(found))}


def lines(axes):
    """What is drawn of lines in a panel: colour, and points."""
    return [(line.get_color(), list(zip(*line.get_data(), strict=True))) for line in axes.get_lines()]


TORCH, JAX = "#D55E00", "#0072B2"


def test_throughput_is_drawn_at_its_batch_size_one_line_a_lane():
    drawing = drawn(
        *(measured("torch", batch_size=size, throughput=size * 10.0) for size in (8, 1)),
        *(measured("jax", batch_size=size, throughput=size * 20.0) for size in (1, 8)),
    )["throughput-by-batch"]
    (panel,) = drawing.figure.axes
    assert lines(panel) == [(TORCH, [(1, 10.0), (8, 80.0)]), (JAX, [(1, 20.0), (8, 160.0)])]
    assert [tick.get_text() for tick in panel.get_xticklabels()] == ["1", "8"]


def test_bars_are_of_the_largest_batch_and_begin_at_zero():
    keys = drawn(
        measured("torch", batch_size=1, throughput=10.0),
        measured("torch", batch_size=8, throughput=30.0),
        measured("jax", batch_size=8, throughput=50.0),
    )
    (panel,) = keys["throughput-bars"].figure.axes
    assert [bar.get_height() for bar in panel.patches] == [30.0, 50.0]
    assert panel.get_ylim()[0] == 0
    assert [text.get_text() for text in panel.texts] == ["30.0", "50.0"]
    assert "energy-bars" not in keys
    assert "memory-bars" not in keys


def test_energy_has_bars_where_it_was_measured():
    energy = {"energy_per_sample": metric(2.5)}
    (panel,) = drawn(measured("torch", metrics=energy))["energy-bars"].figure.axes
    assert [bar.get_height() for bar in panel.patches] == [2.5]


def test_latency_is_the_share_of_calls_that_took_at_most_so_long():
    drawing = drawn(measured("torch", samples=(0.4, 0.1, 0.2, 0.3)))["latency-inference"]
    (panel,) = drawing.figure.axes
    (_, steps), (_, median) = lines(panel)
    assert steps == [(0.1, 0.0), (0.1, 0.25), (0.2, 0.5), (0.3, 0.75), (0.4, 1.0)]
    assert median == [(0.25, 0.5)]


def test_every_process_has_its_own_latency_line():
    once, again = measured(samples=(0.1, 0.2)), measured(samples=(0.3, 0.4))
    (panel,) = drawn(once, again)["latency-inference"].figure.axes
    assert len(panel.get_lines()) == 4


def test_a_first_epoch_is_hollow_and_a_steady_one_filled():
    (panel,) = drawn(fitted(epochs=(9.0, 4.0, 5.0)))["epochs"].figure.axes
    points = {line.get_fillstyle(): line.get_xdata() for line in panel.get_lines() if line.get_linestyle() == "None"}
    assert list(points["none"]) == [9.0]
    assert 4.0 in [line.get_xdata()[0] for line in panel.get_lines()]


def test_curves_have_bands_of_one_standard_deviation_and_one_standard_error():
    drawing = drawn(*(fitted("torch", seed, scale=scale) for seed, scale in enumerate((1.0, 2.0, 3.0, 4.0))))
    panel = drawing["learning-curves-1"].figure.axes[0]
    ((colour, mean),) = lines(panel)
    assert (colour, mean[0]) == (TORCH, (1, 2.5))
    # The standard deviation of 1, 2, 3, 4 is 1.29, and its standard error half of that.
    corners = [band.get_paths()[0].vertices for band in panel.collections]
    spreads = [max(abs(y - 2.5) for x, y in corner if x == 1) for corner in corners]
    assert spreads == pytest.approx([1.2909944, 0.6454972])


def test_one_seed_has_no_band():
    assert not drawn(fitted())["learning-curves-1"].figure.axes[0].collections


def test_a_seed_measured_twice_is_one_replicate():
    once = drawn(fitted(seed=0), fitted(seed=0))["training-curves-1"]
    assert not once.figure.axes[0].collections


def test_each_model_and_data_has_its_curves():
    keys = drawn(fitted(), fitted(data="mnist"), fitted(model="cnn"))
    assert {"training-curves-1", "training-curves-2", "training-curves-3"} <= keys.keys()


def test_compilations_that_never_pay_off_are_hollow():
    def compiled(batch_size, call):
        extra = {"compile_time": metric(2.0)}
        return [
            measured("torch", batch_size=batch_size, throughput=batch_size / 0.2),
            measured("jax", batch_size=batch_size, throughput=batch_size / call, metrics=extra),
        ]

    (panel,) = drawn(*compiled(1, 0.1), *compiled(8, 0.3))["break-even"].figure.axes
    marks = {line.get_fillstyle(): line.get_data() for line in panel.get_lines() if line.get_marker() == "s"}
    assert [list(part) for part in marks["full"]] == [[2.0], [20.0]]
    assert marks["none"][1][0] > 20.0


def test_a_lane_has_one_look_that_no_other_lane_has():
    names = ["torch", "torch-compile", "jax", "tensorflow", "tensorflow-xla", "mxnet", "mine", "yours", "a", "b"]
    looks = look.styles(names)
    assert look.styles(reversed(names)) == looks
    for part in ("colour", "marker", "hatch"):
        assert len({getattr(one, part) for one in looks.values()}) == len(names)


def test_more_lanes_than_colours_still_look_different():
    looks = look.styles(f"lane-{number}" for number in range(40))
    assert len({(one.colour, one.marker) for one in looks.values()}) == 40


@pytest.mark.parametrize(
    "values", [[1.0], [0.9, 1.1], [1e-9, 5.0], [42.0, 43.0], [7.25, 9.73], [1e-7, 1.2e-3], [100.0, 100.0]]
)
def test_a_logarithmic_axis_has_at_least_two_round_marks_and_holds_every_value(values):
    (panel,) = drawn(measured(samples=tuple(values)))["latency-inference"].figure.axes
    ticks = panel.get_xticks()
    assert 2 <= len(ticks) <= 5
    low, high = panel.get_xlim()
    assert low < min(values)
    assert high > max(values)


def test_every_figure_has_words_for_who_cannot_see_it():
    for drawing in drawn(measured("torch"), measured("jax"), fitted()).values():
        assert drawing.alternative.endswith(".")
        assert "table" in drawing.alternative.lower()
