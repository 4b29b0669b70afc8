"""The studies' tables: of a report, and of a run's end."""

from collections.abc import Sequence

from fwbench.compare.cases import Setting, cases
from fwbench.ext.studies import fits, limited, published
from fwbench.record.measurement import Measurement
from fwbench.report.tables import Table

# Studies whose table of fits at a run's end is another one than that of epochs.
_OF_STUDIES = {"simple-cnn": fits.training_times}


def of_report(setting: Setting) -> list[Table]:
    """The tables of epochs and of limits, and published numbers beside one's own."""
    trained = [case for case in setting.cases if case.workload.mode == "fit" and not case.internal]
    of_fits = (fits.final_epochs, fits.all_epochs, fits.epoch_times, fits.training_times)
    return [
        *(table(trained) for table in of_fits),
        limited.table(setting.cases, setting.machine),
        *published.beside(setting.cases),
    ]


def of_run(measurements: Sequence[Measurement], study: str | None, numbers: bool) -> list[Table]:
    """The table of fits; a study that has a table of its own gets that one."""
    return [_OF_STUDIES.get(study or "", fits.epoch_times)(cases(m for m in measurements if m.workload.mode == "fit"))]


def notes(measurements: Sequence[Measurement]) -> list[str]:
    """A note on rows that are faster than the machine's ceilings, if there are any."""
    return limited.above(cases(measurements))
