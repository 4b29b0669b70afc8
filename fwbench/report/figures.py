"""A figure with its words, and its file."""

import io
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from fwbench.record import files
from fwbench.report.look import looking

# In a viewer with a dark theme the figure is dark, too, in the same hues.
_DARK = b"@media (prefers-color-scheme: dark){svg{filter: invert(0.9) hue-rotate(180deg)}}"


@dataclass(frozen=True)
class Drawing:
    """A figure and its words.

    Attributes:
        key: the name of its files.
        alternative: words for readers who cannot see the figure: its contents, and the table that has the numbers.
        mode: the mode of the workloads that it shows; empty if it shows several modes.
        rows: a link's words for each row of the table with this key; the page makes the artist `row-N` a link to row N.
    """

    key: str
    title: str
    caption: str
    alternative: str
    figure: Figure
    mode: str = ""
    rows: tuple[str, ...] = ()


def save(drawing: Drawing, path: Path) -> Path:
    """Write a figure as its path's ending says, `.svg` or `.pdf`, the same bytes for the same records."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure = drawing.figure
    with looking():
        # Lay out once: otherwise each format lays out again, and draws once more to do so.
        engine = figure.get_layout_engine()
        if engine is not None:
            engine.execute(figure)
            figure.set_layout_engine(None)
        drawn = io.BytesIO()
        metadata = {"Date" if path.suffix == ".svg" else "CreationDate": None}
        figure.savefig(drawn, format=path.suffix.removeprefix("."), metadata=metadata)
    # A PDF has no such tag. The page has colours of its own and removes the style.
    files.write(path, drawn.getvalue().replace(b'<style type="text/css">', b'<style type="text/css">' + _DARK, 1))
    return path
