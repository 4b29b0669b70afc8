"""`fwbench list`: the models, frameworks, lanes, studies and metrics that there are."""

import argparse
import dataclasses
import json
from collections.abc import Callable
from typing import Any

from fwbench import text
from fwbench.machine import versions
from fwbench.models import CATALOG
from fwbench.record.lanes import LANES
from fwbench.record.metrics import METRICS
from fwbench.suite.studies import studies

# The attributes of a model that are listed.
_OF_MODEL = ("name", "title", "input_shape", "classes", "parameters", "macs", "source")


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Lists the suite's models, the frameworks and their lanes with the versions installed here, studies, and "
        "metrics with their units. It measures nothing."
    )
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=_run)


def listing() -> dict[str, list[dict[str, Any]]]:
    """All there is, by kind, as JSON primitives; sizes are counts, shapes (height, width, channels)."""
    lanes = [lane for lane in LANES.values() if not lane.internal]
    by_framework = {lane.framework: lane for lane in reversed(lanes)}
    return {
        "models": [
            {name: getattr(model, name) for name in _OF_MODEL} for model in CATALOG.values() if model.parameters
        ],
        "frameworks": [
            {
                "name": name,
                "lanes": [lane.name for lane in lanes if lane.framework == name],
                "versions": versions(by_framework[name].distributions),
            }
            for name in dict.fromkeys(lane.framework for lane in lanes)
        ],
        "lanes": [
            {"name": lane.name, "title": lane.title, "framework": lane.framework, "package": lane.package}
            | ({"derived": lane.derived} if lane.derived else {})
            for lane in lanes
        ],
        "studies": [
            {"name": name, "title": study.title, "profile": study.profile} for name, study in studies().items()
        ],
        "metrics": [{"name": name, **dataclasses.asdict(metric)} for name, metric in METRICS.items()],
    }


def _run(options: argparse.Namespace) -> int:
    everything = listing()
    if options.json:
        print(json.dumps(everything, indent=1))
        return 0
    cells: dict[str, Callable[[dict[str, Any]], tuple[str, ...]]] = {
        "models": lambda row: (
            row["name"],
            row["title"],
            f"{row['parameters']:,}",
            f"{row['macs'] / 1e9:.3g} GMAC" if row["macs"] else "",
        ),
        "frameworks": lambda row: (
            row["name"],
            ", ".join(f"{name} {version}" for name, version in row["versions"].items()) or "not installed here",
        ),
        "lanes": lambda row: (
            row["name"],
            row["title"],
            f"from {row['package']}" + (f", derived from {row['derived']}" if "derived" in row else ""),
        ),
        "studies": lambda row: (row["name"], row["title"]),
        "metrics": lambda row: (row["name"], row["unit"], f"{row['direction']} is better", row["meaning"]),
    }
    for kind, rows in everything.items():
        print(f"{kind}:")
        print(*(f"  {shown}" for shown in text.columns([cells[kind](row) for row in rows])), "", sep="\n")
    return 0
