"""The parts of head that made a regression, after a gate has found it."""

import shlex
from collections.abc import Callable
from contextlib import AbstractContextManager

from fwbench.ext.causes.explaining import explain
from fwbench.ext.causes.sentences import pairs, sentences
from fwbench.ext.causes.series import Asked, Players, of_plain, of_workload
from fwbench.ext.causes.suspects import resolve
from fwbench.gates.contract import Regression
from fwbench.record.workload import Workload


def sentences_on(regression: Regression, tell: Callable[[str], None]) -> list[str]:
    """Search for the parts of head that made a regression, and say which they are.

    Args:
        tell: called after each comparison with the number of pairs that it played, in words.

    Raises:
        UserError: a side cannot be measured, or nothing that the subject uses differs.
    """
    subject = regression.subject
    playing: AbstractContextManager[Players] = (
        of_workload(subject, regression.project.models, regression.machine)
        if isinstance(subject, Workload)
        else of_plain(regression.called)
    )
    asked = Asked(subject, regression.project, {}, regression.python, playing, regression.end, regression.metric)
    stated = resolve(shlex.quote(regression.against), regression.head, regression.top, regression.python)
    explanation = explain(asked, stated, regression.top, on_comparison=lambda compared: tell(pairs(compared.pairs)))
    return sentences(explanation, subject.device)
