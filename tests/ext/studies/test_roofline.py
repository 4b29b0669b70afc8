"""The roofline, from records alone."""

import pytest
from matplotlib.colors import to_hex

from fwbench.report.look import INK, PAPER
from tests.ext.studies.test_figures import JAX, TORCH, drawn, lines
from tests.ext.studies.test_limited import counted
from tests.unit.recorded import measured


def test_the_roofline_has_the_ceilings_as_lines_and_a_point_a_row():
    figures = drawn(
        counted("torch", ceiling=4e11, copy=1e10),
        counted("jax", moved=2e8, throughput=200.0),
        counted("torch-compile", moved=None),
        counted("torch", mode="train_step", flops=3e9, batch_size=2, throughput=10.0, model="mlp"),
    )
    (panel,) = figures["roofline"].figure.axes
    *points, roof = lines(panel)
    assert points == [(TORCH, [(10.0, 1e11)]), (JAX, [(5.0, 2e11)]), (TORCH, [(30.0, 1.5e10)])]
    (low, rising), ridge, (_, level) = roof[1]
    assert rising == pytest.approx(low * 1e10)
    assert (ridge, level) == ((40.0, 4e11), 4e11)
    assert [text.get_text() for text in panel.texts] == ["b1", "b1", "t2"]
    assert {text.get_color() for text in panel.texts} == {INK}
    same = [counted(lane, ceiling=4e11, copy=1e10) for lane in ("torch", "jax", "torch-compile", "tensorflow")]
    places = [text.get_position() for text in drawn(*same)["roofline"].figure.axes[0].texts]
    assert len(places) == len(set(places)) == 4
    (panel,) = drawn(counted("torch", mode="a\ufeff", ceiling=4e11, copy=1e10))["roofline"].figure.axes
    assert [text.get_text() for text in panel.texts] == ["a\N{REPLACEMENT CHARACTER} 1"]
    assert "roofline" not in drawn(counted("torch"))
    assert "roofline" not in drawn(measured("torch"))


def test_a_label_of_the_roofline_lies_on_no_other_mark():
    """The first place of a label is nine points right of its mark."""

    def panel(beside):
        first = counted("torch", ceiling=4e11, copy=1e10)
        (axes,) = drawn(first, counted("jax", moved=1e8 / beside))["roofline"].figure.axes
        return axes, [axes.transData.transform(label.xy) * 72 / axes.figure.dpi for label in axes.texts]

    _, (one, other) = panel(1.5)
    axes, marks = panel(1.5 ** (9 / (other - one)[0]))
    assert (marks[1] - marks[0])[0] == pytest.approx(9, abs=0.5)
    for label, own in zip(axes.texts, marks, strict=True):
        for mark in marks:
            across, up = abs(own + label.get_position() - mark)
            assert across >= 9 or up >= 7


def test_the_roof_crosses_no_label():
    (axes,) = drawn(counted("torch", ceiling=4e11, copy=1e10), counted("jax"))["roofline"].figure.axes
    *marks, roof = axes.get_lines()
    for label in axes.texts:
        assert roof.zorder < label.zorder < min(mark.zorder for mark in marks)
        assert to_hex(label.get_bbox_patch().get_facecolor()) == PAPER
