"""The studies' tables: of a report, and of a run's end."""

from collections.abc import Sequence

from fwbench.compare.cases import Setting, cases, grouped
from fwbench.ext.studies import compiling, fits, largest, limited, published
from fwbench.record.measurement import Measurement
from fwbench.report.tables import Table

# Studies whose table of fits at a run's end is another one than that of epochs.
_OF_STUDIES = {"simple-cnn": fits.training_times}


def of_report(setting: Setting, baseline: str | None) -> list[Table]:
    """The tables of the largest batch, epochs, limits and compiling, and published numbers beside one's own."""
    of_mode = grouped((case for case in setting.cases if not case.internal), lambda case: case.workload.mode)
    inference, steps, trained = (of_mode.get(mode, []) for mode in ("inference", "train_step", "fit"))
    of_fits = (fits.final_epochs, fits.all_epochs, fits.epoch_times, fits.training_times)
    return [
        largest.table(inference, baseline),
        *(table(trained) for table in of_fits),
        limited.table(setting.cases, setting.machine),
        compiling.table([*inference, *steps], baseline),
        *published.beside(setting.cases),
    ]


def of_run(measurements: Sequence[Measurement], study: str | None, numbers: bool) -> list[Table]:
    """The table of fits; a study that has a table of its own gets that one."""
    return [_OF_STUDIES.get(study or "", fits.epoch_times)(cases(m for m in measurements if m.workload.mode == "fit"))]


def notes(measurements: Sequence[Measurement]) -> list[str]:
    """A note on rows that are faster than the machine's ceilings, if there are any."""
    return limited.above(cases(measurements))
