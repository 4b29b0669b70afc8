"""The studies' figures of training, and figures in the size of a paper's column."""

import dataclasses

import pytest

from fwbench.compare.cases import cases
from fwbench.ext.studies.figures import draw, panels
from tests.unit.recorded import fitted, measured, metric, saved

TORCH, JAX = "#D55E00", "#0072B2"


def drawn(*measurements, sheet=panels.PAGE):
    return {drawing.key: drawing for drawing in draw(cases(measurements), None, sheet)}


def trained(lane, batch, seed=0, variant="", **values):
    """A training at a batch size, with these metrics."""
    m = fitted(lane, seed, variant=variant)
    metrics = {**m.metrics, **{name: metric(value) for name, value in values.items()}}
    return dataclasses.replace(m, workload=dataclasses.replace(m.workload, batch_size=batch), metrics=metrics)


def points(axes):
    """Of each line with bars its colour, its points, and how far the bars go down and up."""
    found = []
    for line, _, (bars,) in axes.containers:
        middle = list(zip(*line.get_data(), strict=True))
        ends = [(low[1], high[1]) for low, high in bars.get_segments()]
        spans = [(y - low, high - y) for (_, y), (low, high) in zip(middle, ends, strict=True)]
        found.append((line.get_color(), middle, spans, line.get_linestyle()))
    return found


def test_training_steps_are_drawn_against_the_batch_size():
    steps = [
        measured(lane, mode="train_step", batch_size=batch, throughput=speed * batch)
        for lane, speed in (("torch", 10.0), ("jax", 20.0))
        for batch in (128, 32)
    ]
    (panel,) = drawn(*steps)["training-steps-by-batch"].figure.axes
    (torch, jax) = points(panel)
    assert torch[:2] == (TORCH, [(32, 320.0), (128, 1280.0)])
    assert jax[:2] == (JAX, [(32, 640.0), (128, 2560.0)])
    assert [tick.get_text() for tick in panel.get_xticklabels()] == ["32", "128"]


def test_times_are_medians_with_their_range_over_processes():
    runs = [trained("torch", batch, seed, epoch_time=t) for batch in (32, 64) for seed, t in enumerate((1.0, 2.0, 5.0))]
    (panel,) = drawn(*runs)["epoch-time-by-batch"].figure.axes
    ((_, middle, spans, _),) = points(panel)
    assert middle == [(32, 2.0), (64, 2.0)]
    assert spans == [(1.0, 3.0), (1.0, 3.0)]


def test_accuracies_are_means_with_their_standard_deviation_over_seeds():
    runs = [trained("torch", batch, seed, test_top1=t) for batch in (32, 64) for seed, t in enumerate((0.4, 0.5, 0.9))]
    (panel,) = drawn(*runs)["accuracy-by-batch"].figure.axes
    ((_, middle, spans, _),) = points(panel)
    assert middle == [(32, pytest.approx(0.6)), (64, pytest.approx(0.6))]
    assert spans == [pytest.approx((0.2645751, 0.2645751))] * 2


def test_accuracy_is_of_the_test_split_where_there_is_one():
    runs = [trained("torch", batch, test_top1=0.75) for batch in (32, 64)]
    ((_, middle, _, _),) = points(drawn(*runs)["accuracy-by-batch"].figure.axes[0])
    assert [y for _, y in middle] == [0.75, 0.75]
    without = [trained("torch", batch) for batch in (32, 64)]
    ((_, middle, _, _),) = points(drawn(*without)["accuracy-by-batch"].figure.axes[0])
    assert [y for _, y in middle] == [0.5, 0.5]


def test_what_is_not_the_default_is_dotted_and_a_line_of_its_own():
    runs = [trained("torch", batch, variant=variant, epoch_time=1.0) for batch in (32, 64) for variant in ("", "other")]
    lines = points(drawn(*runs)["epoch-time-by-batch"].figure.axes[0])
    assert [style for *_, style in lines] == ["-", ":"]


def test_energy_is_drawn_where_it_was_measured():
    assert "epoch-energy-by-batch" not in drawn(trained("torch", 32), trained("torch", 64))
    runs = [trained("torch", batch, epoch_energy=100.0 * batch) for batch in (32, 64)]
    ((_, middle, _, _),) = points(drawn(*runs)["epoch-energy-by-batch"].figure.axes[0])
    assert middle == [(32, 3200.0), (64, 6400.0)]


def test_one_batch_size_is_no_scaling():
    assert not {key for key in drawn(trained("torch", 32), trained("jax", 32)) if key.endswith("by-batch")}


def test_models_and_data_have_a_panel_each():
    runs = [fitted("torch", model=model, data=data) for model, data in (("a", "x"), ("a", "y"), ("b", "x"))]
    panels = drawn(*runs)["training-time-bars"].figure.axes
    assert [panel.get_title() for panel in panels] == ["a\nx, batch 64", "a\ny, batch 64", "b\nx, batch 64"]


def test_training_time_leaves_out_the_first_epoch_and_is_of_the_largest_batch():
    """Epochs of 9, 4 and 5 seconds."""
    (panel,) = drawn(trained("torch", 32), trained("torch", 64), trained("jax", 64))["training-time-bars"].figure.axes
    assert [bar.get_height() for bar in panel.patches] == [9.0, 9.0]
    assert [text.get_text() for text in panel.texts] == ["9.00 s", "9.00 s"]
    assert panel.get_title().endswith("batch 64")
    assert panel.get_ylim()[0] == 0


def test_memory_before_training_is_pale_in_front_of_its_peak():
    memory = {"host_peak_memory": 3.0 * 2**30, "host_initial_memory": 2.0**30}
    found = drawn(trained("torch", 64, **memory))
    (panel,) = found["training-memory-host"].figure.axes
    peak, before = panel.patches
    assert (peak.get_height(), before.get_height()) == (3.0 * 2**30, 2.0**30)
    assert before.get_alpha() < 1
    assert before.get_zorder() >= peak.get_zorder()
    assert "training-memory-device" not in found


def test_every_figure_has_words_and_names_its_table():
    memory = {"host_peak_memory": 3.0, "epoch_energy": 1.0, "test_top1": 0.5}
    found = drawn(trained("torch", 32, **memory), trained("torch", 64, **memory))
    sizes, bars = ("epoch-time", "epoch-energy", "accuracy"), ("training-time-bars", "training-memory-host")
    curves = ("epochs", "training-curves-1", "learning-curves-1")
    assert found.keys() == {*(f"{name}-by-batch" for name in sizes), *bars, *curves}
    for drawing in found.values():
        assert drawing.mode == "fit"
        assert drawing.alternative.endswith(".")
        assert "table" in drawing.alternative.lower()


def test_a_column_is_as_wide_as_one_and_has_what_the_page_has():
    runs = [
        trained(lane, batch, seed, epoch_time=1.0)
        for lane in ("torch", "jax")
        for batch in (16, 32, 64)
        for seed in (0, 1)
    ]
    calls = [measured(lane, f"model{n}", batch_size=b) for lane in ("torch", "jax") for n in range(4) for b in (1, 8)]
    page, column = (
        {drawing.key: drawing.figure for drawing in draw(cases([*runs, *calls]), "torch", sheet)}
        for sheet in (panels.PAGE, panels.COLUMN)
    )
    assert column.keys() == {key for key in page if not key.startswith("latency")}
    for key, figure in column.items():
        assert figure.get_figwidth() == 3.4
        assert sum(axes.axison for axes in figure.axes) == sum(axes.axison for axes in page[key].axes)
    assert {figure.get_figwidth() for figure in page.values()} <= {3.4, 4.5, 4.8, 5.0, 7.5}


def test_panels_beside_each_other_in_a_column_all_say_what_they_are():
    """Three batch sizes do not fit into two columns of panels, so that each has a row of its own."""
    runs = [trained("torch", batch) for batch in (16, 32, 64)]
    (drawing,) = [one for one in draw(cases(runs), "torch", panels.COLUMN) if one.key == "training-curves-1"]
    axes = drawing.figure.axes
    assert [panel.get_title() for panel in axes] == ["batch 16", "", "batch 32", "", "batch 64", ""]
    assert [panel.get_ylabel() for panel in axes] == ["training loss", "validation top-1"] * 3
    rows = {panel.get_subplotspec().rowspan.start for panel in axes[:2]}
    assert len(rows) == 1


def test_the_sheet_is_the_pages_again_afterwards():
    with pytest.raises(ZeroDivisionError), panels.on(panels.COLUMN):
        raise ZeroDivisionError
    assert panels.grid_of(3)[0].get_figwidth() == 7.5


@pytest.mark.parametrize(("models", "fits"), [(16, False), (8, True)])
def test_a_figure_that_is_taller_than_a_page_is_left_out_of_a_paper(report, models, fits):
    """Of 16 models six rows of panels are on the page, and eight in a column."""
    given = (measured("torch", f"model{n}", batch_size=b) for n in range(models) for b in (1, 8))
    names = {path.name for path in (report(saved(*given), formats="latex") / "figures").glob("*.tex")}
    assert ("throughput-by-batch-column.tex" in names, "throughput-bars-column.tex" in names) == (fits, fits)
    assert not fits or "throughput-by-batch.tex" in names
