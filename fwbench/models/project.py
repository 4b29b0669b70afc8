"""The project that a run measures: where its modules lie, and its models by name."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fwbench.models.catalog import CATALOG
from fwbench.models.model import Model
from fwbench.record import lanes


@dataclass(frozen=True)
class Project:
    """The user's project.

    Attributes:
        root: pytest's root folder.
        path: the folders in which workers look for the user's modules, before all others.
        models: by name: those of the catalog, and those that the collected tests name.
    """

    root: Path
    path: tuple[Path, ...]
    models: dict[str, Model] = field(default_factory=lambda: dict(CATALOG))

    def add(self, models: Sequence[Model]) -> None:
        """Make models known.

        Raises:
            ValueError: another model has the same name.
        """
        for model in models:
            known = self.models.setdefault(model.name, model)
            if known != model:
                raise ValueError(
                    f"two different models are called {model.name!r}, so their records could not be told apart: "
                    "rename one of them"
                )


def complete(model: Model, lane: str = "") -> Model:
    """The model, with networks from installed lanes in the frameworks for which it names none itself.

    Args:
        lane: that the model is run in: the networks of other derived lanes are left out, as an interpreter that lacks
            their packages would take them for the model's own.
    """
    # The model's own networks come first, to keep their order, and again last, to win.
    networks = model.networks | lanes.networks(model.name) | model.networks
    derived = {
        each.framework: networks[each.derived]
        for each in lanes.LANES.values()
        if each.derived in networks and lane in ("", each.name)
    }
    return Model.from_json({**model.to_json(), "networks": networks | derived | networks})


def provable(model: Model) -> list[str]:
    """The frameworks whose networks a proof holds against the reference's: those of a complete model's own."""
    derived = {lane.framework for lane in lanes.LANES.values() if lane.derived}
    return [framework for framework in model.networks if framework not in {model.reference, *derived}]
