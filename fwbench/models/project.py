"""The project that a run measures: the folders of its modules, and its models by name."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fwbench.errors import hint
from fwbench.models.catalog import CATALOG
from fwbench.models.model import Model
from fwbench.record import lanes


@dataclass(frozen=True)
class Project:
    """The user's project: pytest's root folder, the folders in which workers look for modules first, and its models.

    `models` holds by name those of the catalog, and those that the collected tests name.
    """

    root: Path
    path: tuple[Path, ...]
    models: dict[str, Model] = field(default_factory=lambda: dict(CATALOG))

    def add(self, models: Sequence[Model]) -> None:
        """Make models known; one that differs from a known model of the same name raises a ValueError."""
        for model in models:
            known = self.models.setdefault(model.name, model)
            if known != model:
                raise ValueError(
                    f"two different models are called {model.name!r}, so their records could not be told apart: "
                    "rename one of them"
                )


def complete(model: Model, lane: str = "") -> Model:
    """The model as a lane runs it: with one network in each framework.

    If the model has several networks in a framework, the one that the lane names is taken, or else the first. In
    frameworks for which the model names none itself, it has those of installed lanes.

    Args:
        lane: the lane that runs the model. The networks of other derived lanes are left out, as an interpreter that
            lacks their packages would take them for the model's own.
    """
    # The model's own networks come first, to keep their order, and again last, to win.
    networks = model.networks | lanes.networks(model.name) | model.networks
    if name := lanes.network(lane):
        framework = lanes.LANES[lane].source
        networks[framework] = model.variants.get(framework, {}).get(name, networks.get(framework, ""))
    derived = {
        each.framework: networks[each.derived]
        for each in lanes.LANES.values()
        if each.derived in networks and lane.partition(":")[0] in ("", each.name)
    }
    buckets = model.buckets.get(name, ()) if isinstance(model.buckets, dict) else model.buckets
    own = {"variants": {}, "networks": networks | derived | networks, "buckets": buckets}
    return Model.from_json({**model.to_json(), **own})


def is_further(model: Model, lane: str) -> bool:
    """True if a lane runs another network than the one that stands for its framework in proofs."""
    return lanes.network(lane) in list(model.variants.get(lanes.LANES[lane].source, {}))[1:]


def proved_as(model: Model, lane: str) -> Model:
    """The model in proofs of a lane's network; with a further network its name is, for example, `block+torch.fused`."""
    whole = complete(model, lane)
    if not is_further(model, lane):
        return whole
    name = f"{model.name}+{lanes.LANES[lane].source}.{lanes.network(lane)}"
    return Model.from_json({**whole.to_json(), "name": name})


def proofs(model: Model) -> list[tuple[Model, str]]:
    """Each proof that a model can have: the model as `proved_as` has it, and the framework that is the candidate.

    A further network in a framework is proved as the first one is. So a further network in the reference's framework
    is the reference of its own proofs.
    """
    first = complete(model)
    pairs = [(first, candidate) for candidate in provable(first)]
    for framework, names in model.variants.items():
        lane = next(lane.name for lane in lanes.LANES.values() if lane.framework == framework)
        for name in list(names)[1:]:
            own = proved_as(model, f"{lane}:{name}")
            pairs += [(own, each) for each in provable(own) if framework in (each, own.reference)]
    return pairs


def unknown_network(models: Iterable[Model], lane: str) -> str:
    """Half a sentence on why a lane can run none of these models; empty if it names no network, or one that exists."""
    name, framework = lanes.network(lane), lanes.LANES[lane].source
    known = dict.fromkeys(name for model in models for name in model.variants.get(framework, {}))
    if not name or name in known:
        return ""
    hinted = hint(name, known) if known else f"name several as in {framework}={{'eager': 'mine.net:Net', ...}}"
    return f"no model has a network {name!r} in {framework}, which the lane {lane!r} names: {hinted}"


def provable(model: Model) -> list[str]:
    """The frameworks whose networks a proof compares with the reference's; those of derived lanes have no proof."""
    derived = {lane.framework for lane in lanes.LANES.values() if lane.derived}
    return [framework for framework in model.networks if framework not in {model.reference, *derived}]
