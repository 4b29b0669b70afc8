"""The workloads that a run measures: from the checked options, with a profile's defaults behind them."""

import dataclasses
import itertools
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from fwbench.errors import UserError
from fwbench.models import Model
from fwbench.models.project import complete
from fwbench.record.fields import Field, fields
from fwbench.record.lanes import LANES, network, of_profile
from fwbench.record.workload import FIELDS, LOWER, MODES, STATEFUL, Workload
from fwbench.suite.profiles import Protocol
from fwbench.suite.studies import Part


def pythons(entries: Iterable[str], option: str = "--fwbench-python") -> dict[str, str]:
    """Interpreters by framework, from an option's texts of the form `FRAMEWORK=PATH`; a later text wins.

    A text of another form, or one that names no interpreter, is a UserError of one sentence.
    """
    interpreters = {}
    frameworks = dict.fromkeys(lane.framework for lane in LANES.values() if not lane.internal)
    for entry in entries:
        framework, equals, path = entry.partition("=")
        if not equals or framework not in frameworks:
            raise UserError(f"{option} {entry!r} is not FRAMEWORK=PATH with a framework of {', '.join(frameworks)}.")
        interpreter = shutil.which(path)
        if interpreter is None:
            raise UserError(f"{option} {framework}: there is no interpreter {path!r}; give its path.")
        interpreters[framework] = os.path.abspath(interpreter)
    return interpreters


@dataclass(frozen=True)
class Selection:
    """The axes of a run and its protocol.

    Attributes:
        suite: the parts of the profile's suite or of the study, as they are written down.
        asked: values from the options for every part: `lanes`, `models` and `batch_sizes`; an option that was not given
            is left out.
        settings: values from the options for other fields of a workload, by name; likewise.
        study: the name of the study that was asked for, whose workloads alone are measured.
        pythons: interpreter by framework, for those that do not run under pytest's own.
        device: `cpu` or `gpu`.
        threads: threads of every lane.
        minutes: the run's time limit: lanes take turns in the minutes that remain after measuring.
        devices: numbers of devices over which each workload is spread.
    """

    protocol: Protocol
    suite: tuple[Part, ...]
    asked: Mapping[str, tuple[Any, ...]]
    settings: Mapping[str, tuple[Any, ...]]
    study: str | None
    pythons: Mapping[str, str]
    device: str
    threads: int
    minutes: float
    devices: tuple[int, ...] = (1,)
    scaling: Annotated[
        str,
        Field(
            "With several devices: `weak`, each has the batch that one would have; `strong`, its part of that.",
            choices=("weak", "strong"),
        ),
    ] = "weak"
    processes: Annotated[
        int,
        Field(
            "Processes that measure each workload, whose differences a gate against a record needs to know.",
            least=1,
        ),
    ] = 1
    patience: Annotated[
        int,
        Field(
            "Seconds that the run may wait in all for other load to end: before it times a benchmark, and before it "
            "measures disturbed ones again; with 0 it does neither.",
            least=0,
        ),
    ] = 60
    fit_batch: Annotated[bool, Field("A batch that does not fit into memory is halved until it does.")] = False
    # The models and modes, of the workloads made so far, that a lane with quantised weights measures.
    quantised: set[tuple[str, str]] = field(default_factory=set, compare=False)

    def workloads(self, mode: str, models: Mapping[str, Model]) -> list[Workload]:
        """Every combination of the suite's in one mode; lanes of one model and batch size stand side by side.

        A model with a state is measured in the modes that take one, and in no other. A ValueError says, in one
        sentence, which combination makes no sense.

        Args:
            models: by name.
        """
        # Without a study, a user who names a large model does not ask for epochs of it, which take hours: an option
        # only chooses among the models that a suite fits. The same holds for models measured in further precisions.
        parts = [
            self._asked_for(part, fixed=not self.study and (mode == "fit" or "precision" in part.settings))
            for part in self.suite
            if part.mode == mode
        ]
        # Two parts become equal if an option sets the field in which they differ.
        return list(
            dict.fromkeys(
                workload
                for part in parts
                for model in part.models
                if model in models and bool(models[model].state) == (mode in STATEFUL)
                # A study may name a lane of an extension that is not here.
                for workload in self._of(part, models[model], [lane for lane in part.lanes if lane in LANES])
            )
        )

    def lowers(self, workload: Workload) -> bool:
        """True if the run measures this model and mode in a lower precision than fp32 or quantised weights, too."""
        if (workload.model, workload.mode) in self.quantised:
            return True
        asked = [self.settings.get("precision", ())]
        if workload.mode in MODES and not asked[0]:
            parts = (part for part in self.suite if part.mode == workload.mode and workload.model in part.models)
            asked += [part.settings.get("precision", ()) for part in parts]
        return any(precision in LOWER for precisions in asked for precision in precisions)

    def of_test(self, model: Model, mode: str, batch_sizes: Sequence[int], lanes: Sequence[str]) -> list[Workload]:
        """Every combination that a user's own test asks for.

        Args:
            lanes: the only lanes to measure. Empty: the lanes that the options ask for, if the model has a network in
                their framework, its own or one that the lane brings. Without such options: the profile's lanes, if the
                model itself names a network in their framework.

        Raises:
            ValueError: a combination makes no sense; one sentence.
        """
        part = self._asked_for(Part(mode, tuple(lanes), (model.name,), tuple(batch_sizes)), fixed=True)
        if not part.models:
            return []
        if lanes:
            chosen = [lane for lane in _with_networks(model, part.lanes) if lane in _with_networks(model, lanes)]
        elif part.lanes:
            networks = complete(model).networks
            chosen = [lane for lane in part.lanes if LANES[lane].framework in networks]
        else:
            chosen = [*of_profile(self.protocol.profile, self.device, model.networks)]
        return self._of(part, model, chosen)

    def _asked_for(self, part: Part, *, fixed: bool) -> Part:
        """The part with the options' values; a study's variant keeps the lane and the optimizer that it is about.

        Args:
            fixed: whether options can only choose among the part's models.
        """
        changes: dict[str, Any] = {**self.asked, "settings": {**part.settings, **self.settings}}
        if fixed and "models" in changes:
            changes["models"] = tuple(model for model in part.models if model in changes["models"])
        if "batch_sizes" in changes:
            changes["smaller"] = {}
        if "variant" in part.settings:
            changes["settings"]["optimizer"] = part.settings["optimizer"]
            changes["lanes"] = tuple(lane for lane in part.lanes if lane in changes.get("lanes", part.lanes))
        return dataclasses.replace(part, **changes)

    def _of(self, part: Part, model: Model, lanes: Sequence[str]) -> list[Workload]:
        lanes = _with_networks(model, lanes)
        if any(LANES[lane].quantised for lane in lanes):
            self.quantised.add((model.name, part.mode))
        # The lanes that price the harness have nothing to spread.
        numbers = self.devices if part.mode in MODES else (1,)
        for lane in lanes if max(numbers) > 1 else ():
            if self.device not in LANES[lane].processes:
                raise ValueError(
                    f"--fwbench-devices {max(numbers)}: the lane {lane} runs on one device alone; choose other lanes "
                    "by --fwbench-lanes"
                )
        settings = {
            name: values
            for name, values in part.settings.items()
            if not FIELDS[name].modes or part.mode in FIELDS[name].modes
        }
        workloads = [
            Workload(
                lane,
                model.name,
                part.mode,
                batch_size * devices if self.scaling == "weak" else batch_size,
                device=self.device,
                axes=axes,
                devices=devices,
                **dict(zip(settings, values, strict=True)),
            )
            for axes in model.sweep()
            for batch_size in part.smaller.get(model.name, part.batch_sizes)
            for values in itertools.product(*settings.values())
            for devices in numbers
            for lane in lanes
        ]
        return [workload for workload in workloads if workload.weights == "drawn" or model.published]


def _with_networks(model: Model, lanes: Iterable[str]) -> list[str]:
    """The lanes; if the model has several networks in a lane's framework, `LANE:NETWORK` for each of them."""
    every: list[str] = []
    for lane in lanes:
        names, asked = model.variants.get(LANES[lane].source, {}), network(lane)
        if asked:
            every += [lane] if asked in names else []
        else:
            every += [f"{lane}:{name}" for name in names] or [lane]
    return list(dict.fromkeys(every))


# A run has one value of each of its own fields.
_OF_RUN = {name: dataclasses.replace(field, single=True) for name, field in fields(Selection).items()}
# The fields that `--fwbench-set` may set.
SETTINGS = {name: field for name, field in (FIELDS | _OF_RUN).items() if not field.source}
