"""The answers in short: the table that ends a run, with one row a workload."""

import math
from collections.abc import Sequence

from fwbench import units
from fwbench.compare.ratios import EQUAL
from fwbench.report.answers import QUESTIONS, Answer
from fwbench.report.columns import option_columns, workload_columns
from fwbench.report.tables import Column, Table, tabulate


def cell(answer: Answer) -> str:
    """An answer in the words of a table's cell: `jax 1.24 (1.21 to 1.27) times as fast`."""
    if answer.weighed is None:
        return answer.evidence
    reach, shown = answer.weighed.reach, answer.weighed.shown
    known = units.times((reach.low, reach.high))
    # A disturbed ratio is shown as its bounds alone.
    times = known if isinstance(shown, units.Within) else f"{shown:.2f} ({known})"
    of_first = f": {answer.fastest} {times}" if known else ""
    # If more than two lanes may be the fastest, the cell names them, as the columns name only two.
    several = f" ({', '.join(answer.shared)})" if len(answer.shared) > 2 else ""
    if answer.confidence == "equal":
        return f"equal within {100 * EQUAL:.0f} %{several}{of_first}"
    if answer.confidence == "near":
        return f"at most {math.ceil(100 * reach.farthest)} % apart{several}{of_first}"
    if answer.confidence == "undecided":
        return f"open{several}{of_first}"
    likely = "likely " if answer.confidence == "likely" else ""
    return f"{answer.fastest} {likely}{times} times as fast"


def table(rows: Sequence[Answer]) -> Table:
    """The answers in short, for the end of a run: one row a workload."""

    def best(name: str) -> Column[Answer]:
        def lane_and_multiple(answer: Answer) -> str | None:
            if name not in answer.least:
                return None
            lane, multiple = answer.least[name]
            return f"{lane}, {units.ratio(multiple)}"

        return Column(f"least {name}", lane_and_multiple)

    answered = {question.name for question in QUESTIONS for answer in rows if question.name in answer.least}
    return tabulate(
        "brief-answers",
        "Which lane is faster",
        "",
        (
            *workload_columns(rows),
            *option_columns(rows),
            Column("answer", cell),
            Column("against", lambda answer: answer.second if answer.weighed else None),
            *(best(question.name) for question in QUESTIONS if question.name in answered),
            Column("evidence", lambda answer: answer.evidence),
        ),
        rows,
    )
