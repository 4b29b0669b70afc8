"""The studies' figures: what they show is the cases'."""

import re

import pytest

from fwbench.compare.cases import baseline, cases
from fwbench.ext.studies.figures import draw
from fwbench.report import look
from fwbench.report.answers import answers
from tests.unit.recorded import fitted, measured, metric

TORCH, JAX = "#D55E00", "#0072B2"


def drawn(*measurements):
    found = cases(measurements)
    return {drawing.key: drawing for drawing in draw(found, baseline(found))}


def lines(axes):
    """What is drawn of lines in a panel: colour, and points."""
    return [(line.get_color(), list(zip(*line.get_data(), strict=True))) for line in axes.get_lines()]


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
    assert not {"energy-bars", "memory-bars"} & keys.keys()
    (panel,) = drawn(measured("torch", metrics={"energy_per_sample": metric(2.5)}))["energy-bars"].figure.axes
    assert [bar.get_height() for bar in panel.patches] == [2.5]


def test_a_lane_with_an_option_of_its_own_is_no_bar():
    """The first case of a lane stands for it."""
    called = [measured("jax", call=call, throughput=speed) for call, speed in (("module", 90.0), ("program", 50.0))]
    (panel,) = drawn(*called, measured("torch", throughput=30.0))["throughput-bars"].figure.axes
    assert sorted(bar.get_height() for bar in panel.patches) == [30.0, 50.0]
    trained = (fitted(remat=True, epochs=(9.0, 40.0, 50.0)), fitted(epochs=(9.0, 4.0, 5.0)))
    (panel,) = drawn(*trained)["training-time-bars"].figure.axes
    assert [bar.get_height() for bar in panel.patches] == [9.0]


def test_latency_is_the_share_of_calls_that_took_at_most_so_long():
    drawing = drawn(measured("torch", samples=(0.4, 0.1, 0.2, 0.3)))["latency-inference"]
    (panel,) = drawing.figure.axes
    (_, steps), (_, median) = lines(panel)
    assert steps == [(0.1, 0.0), (0.1, 0.25), (0.2, 0.5), (0.3, 0.75), (0.4, 1.0)]
    assert median == [(0.2, 0.5)]
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("time of a call", "share of calls")
    # Every process has its own.
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


@pytest.mark.parametrize("curves", ["learning-curves-1", "training-curves-1"])
@pytest.mark.parametrize("times", [1, 2])
def test_one_seed_has_no_band_however_often_it_was_measured(curves, times):
    assert not drawn(*[fitted(seed=0)] * times)[curves].figure.axes[0].collections


def test_each_model_data_and_precision_has_its_curves():
    keys = drawn(fitted(), fitted(data="mnist"), fitted(model="cnn"))
    assert {"training-curves-1", "training-curves-2", "training-curves-3"} <= keys.keys()
    found = drawn(fitted(), fitted(precision="bf16"))
    assert [found[f"training-curves-{number}"].title for number in (1, 2)] == [
        "Training curves: mlp on digits",
        "Training curves: mlp on digits in bf16",
    ]
    assert [len(lines(found[f"learning-curves-{number}"].figure.axes[0])) for number in (1, 2)] == [1, 1]


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


def test_the_figures_are_relative_to_the_lane_that_was_asked_for():
    compiled = {"compile_time": metric(2.0)}
    found = cases([measured("torch", throughput=50.0), measured("jax"), measured("torch-compile", metrics=compiled)])
    assert "JAX (jit)" in {drawing.key: drawing for drawing in draw(found, "jax")}["break-even"].caption


def test_throughput_and_energy_stand_against_latency():
    def lane(name, batch_size, throughput, p50, joules):
        values = {"latency_p50": metric(p50), "energy_per_sample": metric(joules)}
        return measured(name, batch_size=batch_size, throughput=throughput, metrics=values)

    lanes = [lane("torch", 8, 80.0, 0.1, 2.0), lane("torch", 1, 10.0, 0.05, 3.0), lane("jax", 1, 20.0, 0.2, 1.0)]
    found = drawn(*lanes)
    for key, torch, jax in (
        ("throughput-latency", [(0.05, 10.0), (0.1, 80.0)], [(0.2, 20.0)]),
        ("energy-latency", [(0.05, 3.0), (0.1, 2.0)], [(0.2, 1.0)]),
    ):
        (panel,) = found[key].figure.axes
        assert lines(panel) == [(TORCH, torch), (JAX, jax)]
        assert [text.get_text() for text in panel.texts] == ["b1", "b8"]
        assert panel.get_xlabel() == "latency (p50)"
    assert not {"throughput-latency", "energy-latency"} & drawn(*lanes[:2]).keys()


def test_a_lanes_options_are_lines_of_their_own_against_latency():
    def one(size, lane, speed, call="program"):
        p50 = {"latency_p50": metric(size / speed)}
        return measured(lane, batch_size=size, call=call, throughput=size * speed, metrics=p50)

    lanes = ("torch", 10.0), ("jax", 20.0), ("jax", 16.0, "module")
    (panel,) = drawn(*(one(size, *lane) for lane in lanes for size in (1, 8)))["throughput-latency"].figure.axes
    assert lines(panel) == [
        (TORCH, [(0.1, 10.0), (0.8, 80.0)]),
        (JAX, [(0.05, 20.0), (0.4, 160.0)]),
        (JAX, [(0.0625, 16.0), (0.5, 128.0)]),
    ]


def test_bars_and_lines_have_whiskers_from_the_lowest_to_the_highest_process():
    several = {"processes": tuple({"throughput": speed} for speed in (90.0, 120.0, 100.0))}
    found = drawn(measured("torch", batch_size=8, **several), measured("torch"), measured("jax"))
    for key, ends in (("throughput-bars", [[90, 120]]), ("throughput-by-batch", [[100, 100], [90, 120], [100, 100]])):
        (panel,) = found[key].figure.axes
        whiskers = [line for part in panel.collections for line in part.get_segments()]
        assert [[y for _, y in whisker] for whisker in whiskers] == ends


def test_bars_say_what_is_undecided_and_disturbed():
    busy = {"other_load": metric(0.2)}
    found = drawn(measured("torch", metrics=busy), measured("jax", throughput=110.0))
    (bars,) = found["throughput-bars"].figure.axes
    assert [text.get_text() for text in bars.texts] == ["100 *", "110"]
    assert bars.get_xlabel() == "undecided"
    (decided,) = drawn(measured("torch"), measured("jax", throughput=300.0))["throughput-bars"].figure.axes
    assert decided.get_xlabel() == ""
    sizes = drawn(measured("torch", metrics=busy), measured("torch", batch_size=8))
    (panel,) = sizes["throughput-by-batch"].figure.axes
    hollow = [line for line in panel.get_lines() if line.get_markerfacecolor() == look.PAPER]
    assert [list(line.get_ydata()) for line in hollow] == [[100.0]]
    (latency,) = found["latency-inference"].figure.axes
    assert {line.get_fillstyle() for line in latency.get_lines() if line.get_marker() == "o"} == {"none"}


def breaking_even(torch, jax):
    """The panel of PyTorch at this speed and of JAX, which compiles for 2 s, at these speeds at batch 1, 2, 4 and 8."""
    compiled, sizes = {"compile_time": metric(2.0)}, (1, 2, 4, 8)
    given = [measured("torch", batch_size=size, throughput=torch) for size in sizes]
    given += [
        measured("jax", batch_size=size, throughput=speed, metrics=compiled)
        for size, speed in zip(sizes, jax, strict=True)
    ]
    (panel,) = drawn(*given)["break-even"].figure.axes
    return panel


def test_marks_of_what_is_undecided_are_pale():
    panel = breaking_even(100.0, [110.0, 300.0, 90.0, 30.0])
    marks = [(line.get_fillstyle(), line.get_alpha()) for line in panel.get_lines()]
    assert sorted(marks) == [("full", 0.4), ("full", 1.0), ("none", 0.4), ("none", 1.0)]


def test_marks_of_what_never_pays_off_do_not_cover_each_other():
    panel = breaking_even(200.0, [100.0] * 4)
    heights = [line.get_ydata()[0] for line in panel.get_lines() if line.get_fillstyle() == "none"]
    assert len(set(heights)) == 4


def test_more_panels_than_anybody_compares_are_left_to_the_tables():
    found = drawn(*(measured(lane, f"model-{number}") for number in range(30) for lane in ("torch", "jax")))
    for key in ("throughput-bars", "latency-inference"):
        assert len([axes for axes in found[key].figure.axes if axes.axison]) == 18
        assert found[key].caption.endswith("The first 18 of 30 are drawn; the tables have all.")


def test_a_long_name_leaves_its_batch_size_and_arithmetic_in_sight():
    lanes = [measured(lane, "a" * 60, batch_size=8, precision="bf16") for lane in ("torch", "jax")]
    found = drawn(*lanes)
    assert found["throughput-bars"].figure.axes[0].get_title() == f"{'a' * 19}... bf16, batch 8"


def test_seeds_make_one_point_of_a_batch_size():
    values = {"latency_p50": metric(0.1)}
    given = [
        measured(lane, seed=seed, batch_size=size, throughput=100.0 + seed, metrics=values)
        for lane in ("torch", "jax")
        for size in (1, 8)
        for seed in (0, 2)
    ]
    found = drawn(*given)
    assert lines(found["throughput-by-batch"].figure.axes[0])[0] == (TORCH, [(1, 101.0), (8, 101.0)])
    assert lines(found["throughput-latency"].figure.axes[0])[0] == (TORCH, [(0.1, 101.0)] * 2)


def in_turns(lane, call, throughput):
    turns = tuple(
        {"begun": float(number), "call": [call * jitter] * 4} for number, jitter in enumerate((1.0, 1.01, 0.99))
    )
    return measured(lane, throughput=throughput, turns=turns, samples=(call,) * 3)


def test_bars_of_lanes_that_took_turns_show_the_answer_and_its_interval():
    """JAX's own process found more than PyTorch's, and in turns PyTorch is faster."""
    given = [in_turns("torch", 0.1, throughput=100.0), in_turns("jax", 0.125, throughput=120.0)]
    (answer,) = answers(cases(given))
    found = drawn(*given)
    (panel,) = found["throughput-bars"].figure.axes
    assert [bar.get_height() for bar in panel.patches] == pytest.approx([1.0, 1 / answer.weighed.ratio])
    (whisker,) = [[y for _, y in line] for part in panel.collections for line in part.get_segments()]
    assert whisker == pytest.approx([1 / answer.weighed.reach.high, 1 / answer.weighed.reach.low])
    assert [text.get_text() for text in panel.texts] == ["1.00x", "0.80x"]
    assert "of single processes; the answers" in found["latency-inference"].caption
    assert "processes; the answers" not in found["throughput-bars"].caption


def test_bars_have_none_for_a_lane_that_may_not_be_compared():
    given = [in_turns("torch", 0.1, 100.0), in_turns("jax", 0.125, 120.0), measured("mxnet", parity={"weights": "abc"})]
    (panel,) = drawn(*given)["throughput-bars"].figure.axes
    assert (panel.patches[2].get_height(), panel.texts[2].get_text()) == (0.0, "unchecked")


def test_the_golden_record_covers_every_figure(golden):
    figures = {
        "ratios", "throughput-by-batch", "throughput-bars", "memory-bars", "energy-bars", "latency-inference",
        "latency-train-step", "break-even", "epochs", "training-curves-1", "learning-curves-1", "throughput-latency",
        "energy-latency", "training-time-bars", "training-memory-host",
    }  # fmt: skip
    narrow = {f"{name}-column" for name in figures if not name.startswith(("latency", "ratios"))}
    assert {path.stem for path in (golden / "figures").glob("*.svg")} == figures
    for ending in ("pdf", "tex"):
        assert {path.stem for path in (golden / "figures").glob(f"*.{ending}")} == figures | narrow


def test_a_narrow_page_has_a_picture_of_each_panel_and_of_the_legend(golden):
    page = (golden / "report.html").read_text()
    figure = re.search(r'<figure id="figure-1-throughput-bars">.*?</figure>', page, re.DOTALL)[0]
    views = re.findall(r'<svg viewBox="([^"]*)"[^>]*><use href="#s1-throughput-bars-(\w+)"/></svg>', figure)
    boxes = {key: [float(number) for number in view.split()] for view, key in views}
    drawn = re.split(r'<g id="s1-throughput-bars-((?:axes|legend)_\d+)">', figure)
    parts = dict(zip(drawn[1::2], drawn[2::2], strict=True))
    assert set(boxes) == set(parts)
    assert len(parts) > 2
    for part, content in parts.items():
        for x, y in re.findall(r'<text [^>]*x="([\d.]+)" y="([\d.]+)"', content):
            left, top, width, height = boxes[part]
            assert 0 <= float(x) - left <= width
            assert 0 <= float(y) - top <= height
