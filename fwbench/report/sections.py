"""A report's parts: the contents on each setting, before they have any format."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fwbench.compare import cases
from fwbench.compare.cases import Setting
from fwbench.errors import UserError
from fwbench.record.storage import Record
from fwbench.report import answers, contents, ratios
from fwbench.report.cards import Card
from fwbench.report.cards import cards as cards_of
from fwbench.report.origin import origin
from fwbench.report.tables import Table

if TYPE_CHECKING:
    from fwbench.report.figures import Drawing


@dataclass(frozen=True)
class Section:
    """A report's part on one setting, or on the benchmarks that fwbench did not measure.

    Attributes:
        folder: the folder of its files: the report's own if there is one setting alone.
        headline: the answers in sentences.
        remarks: the sentences to read before the numbers.
        setting: None where fwbench did not measure.
        baseline: the lane that others are compared with; None where there is nothing to compare.
    """

    heading: str
    folder: Path
    headline: list[str]
    remarks: list[str]
    tables: list[Table]
    setting: Setting | None
    baseline: str | None = None

    @functools.cached_property
    def drawings(self) -> "list[Drawing]":
        """Its figures, drawn once for the page and for LaTeX; needs Matplotlib."""
        from fwbench.report import drawings

        return drawings.draw(self.setting.cases if self.setting else (), self.baseline)

    def svg(self, drawing: "Drawing") -> Path:
        """The path of a figure's SVG."""
        return self.folder / "figures" / f"{drawing.key}.svg"

    @property
    def cards(self) -> Mapping[str, Sequence[Card]]:
        """The answers of each mode as cards."""
        return cards_of(answers.answers(self.setting.cases if self.setting else ()))

    @property
    def origin(self) -> str:
        """The records' days, machine, versions and commits; empty where fwbench did not measure."""
        if self.setting is None:
            return ""
        made = sorted(f"{record.made:%Y-%m-%d}" for record in self.setting.records)
        return f"{' to '.join(dict.fromkeys((made[0], made[-1])))}; {origin(self.setting, '')}"

    @property
    def details(self) -> list[tuple[str, str, str]]:
        """The failures that have details: the workload's id, the failure in a sentence, and its traceback or output."""
        measurements = self.setting.measurements if self.setting else []
        failures = ((m.workload.id, m.failure) for m in measurements if m.failure and m.failure.detail)
        return [(name, f"{failure.kind}: {failure.message}", failure.detail) for name, failure in failures]


def sections(read: Sequence[Record], out: Path, asked: str | None = None) -> list[Section]:
    """The report's parts, its settings first.

    Args:
        out: the report's folder.
        asked: the baseline lane; None: each setting's own (`fwbench.compare.cases.baseline`).

    Raises:
        UserError: the records have no numbers of the lane `asked`.
    """
    settings = cases.settings(read)
    lanes = dict.fromkeys(case.workload.lane for setting in settings for case in cases.measured(setting.cases))
    if asked and lanes and asked not in lanes:
        raise UserError(f"--baseline {asked}: the records have no numbers of that lane, but of {', '.join(lanes)}")
    several = len(settings) > 1
    parts = []
    for number, (setting, separating) in enumerate(zip(settings, cases.separations(settings), strict=True), 1):
        baseline = asked or cases.baseline(setting.cases)
        against = ratios.sentences(ratios.ratios(setting.cases, baseline), baseline) if baseline else []
        answered = [*answers.headline(answers.answers(setting.cases)), *against]
        named, folder = heading(setting, number * several, separating), out / f"setting-{number}" if several else out
        remarks, tables = contents.remarks(setting), contents.tables(setting, baseline)
        parts.append(Section(named, folder, answered, remarks, tables, setting, baseline))
    if foreign := [(record, plain) for record in read for plain in record.plain.values()]:
        parts.append(Section("Other benchmarks", out, [], [], [contents.foreign(foreign)], None))
    return parts


def heading(setting: Setting, number: int, separating: Sequence[str]) -> str:
    """A setting in a line: its number unless that is 0, its machine and profile, and what else separates it from
    others."""
    traits = setting.traits
    on_gpu = setting.machine is not None and setting.machine.device == "gpu"
    usual = [traits["machine"], *([traits["threads"]] if setting.machine and not on_gpu else []), traits["profile"]]
    told = ", ".join(dict.fromkeys([*usual, *separating]))
    return f"{f'{number}. ' if number else ''}{told}"
