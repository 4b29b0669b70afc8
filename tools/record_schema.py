"""The published JSON Schema of records, which `python tools/record_schema.py` prints."""

import json
import sys
from typing import Any

import msgspec

from fwbench.record.bounds import OPEN
from fwbench.record.journal import SCHEMA
from fwbench.record.schema import ANY_METRIC, MACHINE, MEASUREMENT, METRIC, ROUND, Commit, Stats


def exported() -> dict[str, Any]:
    """JSON Schema (2020-12): of a saved file as a whole; of a journal's first line, and of the lines that follow it."""
    _, found = msgspec.json.schema_components(
        [MEASUREMENT, ROUND, MACHINE, Stats, Commit, ANY_METRIC, *OPEN.values()], ref_template="#/$defs/{name}"
    )
    parts = found["Measurement"]["properties"]
    parts |= {name: {"$ref": f"#/$defs/{shape.__name__}"} for name, shape in OPEN.items()}
    parts["metrics"] = {
        "description": "By name, which says unit, direction and bounds; a metric of another name is read too.",
        "type": "object",
        "properties": {name: _exported(metric) for name, metric in METRIC.items()},
        "additionalProperties": {"$ref": "#/$defs/Metric"},
    }
    ours = {"required": ["workload", "metrics"]}
    benchmark = {
        "type": "object",
        "required": ["stats"],
        "properties": {"fullname": {"type": "string"}, "stats": {"type": "object"}},
        "if": {"required": ["extra_info"], "properties": {"extra_info": ours}},
        "then": {
            "properties": {
                "extra_info": {"$ref": "#/$defs/Measurement"},
                "stats": {"properties": {"data": parts["samples"]}},
            }
        },
        "else": {"properties": {"stats": {"$ref": "#/$defs/Stats"}}},
    }
    schema = {"const": SCHEMA}
    made = {"type": "string", "format": "date-time"}
    saved = {
        "description": "A file of pytest-benchmark; what fwbench adds is `fwbench`, `machine_info.fwbench` and each "
        "benchmark's `extra_info`, with the samples in `stats.data`.",
        "type": "object",
        "required": ["benchmarks", "machine_info", "datetime"],
        "properties": {
            "datetime": made,
            "commit_info": {"$ref": "#/$defs/Commit"},
            "machine_info": {"type": "object", "properties": {"fwbench": {"$ref": "#/$defs/Machine"}}},
            "benchmarks": {"type": "array", "items": {"$ref": "#/$defs/Benchmark"}},
            "fwbench": {
                "type": "object",
                "properties": {
                    "schema": schema,
                    "failures": {"type": "array", "items": {"$ref": "#/$defs/Measurement"}},
                    "rounds": {"type": "array", "items": {"$ref": "#/$defs/PlayedRound"}},
                },
            },
        },
    }
    header = {
        "description": "The first line of a journal; each further line is a Measurement, or an object whose `round` "
        "is a PlayedRound.",
        "type": "object",
        "required": ["schema", "started", "machine"],
        "properties": {"schema": schema, "started": made, "machine": {"$ref": "#/$defs/Machine"}},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Records of fwbench, schema {SCHEMA}",
        "$ref": "#/$defs/SavedRun",
        "$defs": {"SavedRun": saved, "JournalHeader": header, "Benchmark": benchmark, **found},
    }


def _exported(metric: Any) -> dict[str, Any]:
    """The schema of a metric of a known name, which says more of some fields than that of any metric."""
    narrower = msgspec.json.schema_components([metric])[1]["Metric"]["properties"]
    return {"$ref": "#/$defs/Metric", "properties": {name: narrower[name] for name in ("value", "unit", "direction")}}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(exported(), indent=1) + "\n")
