"""What a proof says of mistakes that are planted in six small ports: the place, and the cause.

python -m docs.evidence.causes # writes the tables in causes.md
"""

import re
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import tests.one_process  # noqa: F401 (before any framework)
from fwbench.ext.proofs.case import MODES
from tests.correctness.planted import PLANTED, Planted, said
from tests.correctness.planted_networks import TWINS

PAGE = Path(__file__).resolve().with_name("causes.md")
BEGIN, END = "<!-- causes: begin -->\n", "<!-- causes: end -->"
PACKAGES = ("torch", "jax", "flax", "equinox")


def row(planted: Planted, sentence: str) -> tuple[bool, str, str]:
    """Whether the place is the right one, the cause that is named, and the table's row."""
    right = sentence.startswith(f"First apart {planted.place} (torch: ")
    # A sentence on the cause follows that on the place, if there is one.
    place, *causes = re.split(r"\. (?=There |Their |SAME )", sentence, maxsplit=1)
    cause = "".join(causes)
    shown = place.removeprefix("First apart ").partition(" (torch: ")[0]
    cells = (planted.network, planted.name, shown or "none", "right" if right else "wrong", cause or "none")
    return right, cause, f"| {' | '.join(cells)} |"


def table(folder: Path) -> list[str]:
    """The page's lines between its marks."""
    rows = []
    for planted in PLANTED:
        rows.append((planted, *row(planted, said(planted.network, folder, planted.replacing))))
        print(rows[-1][-1], flush=True)
    twins = [(network, mode) for network in TWINS for mode in MODES]
    apart = sum(said(network, folder, mode=mode) != "" for network, mode in twins)
    return [
        f"With {', '.join(f'{package} {version(package)}' for package in PACKAGES)}.",
        "",
        *summary(rows),
        f"- {apart} of {len(twins)} right twins (six networks, each in inference and in training) had a place named.",
        "",
        "| network | planted | named place | | named cause |",
        "| --- | --- | --- | --- | --- |",
        *(line for *_, line in rows),
        "",
    ]


def summary(rows: Sequence[tuple[Planted, bool, str, str]]) -> list[str]:
    """How many places and causes were named, and how many wrongly."""
    places = sum(right for _, right, _, _ in rows)
    causes = [(planted.cause, cause) for planted, _, cause, _ in rows]
    named = sum(bool(cause) for _, cause in causes)
    wrongly = sum(bool(cause) and not (expected and expected in cause) for expected, cause in causes)
    return [
        f"- The right place was named for {places} of {len(rows)} planted mistakes ({places / len(rows):.0%}).",
        f"- A cause was named for {named} of them, and another one than the planted for {wrongly}.",
    ]


def write(page: Path, lines: Sequence[str]) -> None:
    """Put lines between the marks of a page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    page.write_text(before + BEGIN + "\n".join([*lines, END]) + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as work:
        sys.path.insert(0, work)
        write(PAGE, table(Path(work)))
