"""The published JSON Schema of a gate's summary, which `python tools/summary_schema.py` prints."""

import inspect
import json
import sys
from typing import Any

import msgspec

from fwbench.compare.criteria import CRITERIA
from fwbench.compare.findings import ORDER, Outcome
from fwbench.report.outcome_file import SCHEMA


def exported() -> dict[str, Any]:
    """JSON Schema (2020-12): an `Outcome`, with the exit code and what JSON writes in another way."""
    _, found = msgspec.json.schema_components([Outcome], ref_template="#/$defs/{name}")
    kinds = {"enum": list(ORDER)}
    found["Finding"]["properties"] |= {"kind": kinds, "metric": {"enum": ["", *CRITERIA]}}
    end = {"type": ["number", "null"], "description": "null: the interval is open on this side"}
    found["Verdict"]["properties"]["interval"]["prefixItems"] = [end, end]
    outcome = found["Outcome"]
    outcome["properties"] = {
        "schema": {"const": SCHEMA},
        "exit_code": {"type": "integer", "description": "of the run"},
        "reason": {"type": "string", "description": "for the exit code, as in `1 regressed, 1 missing`"},
        "counts": {
            "description": "the number of benchmarks by the gravest that became of each",
            "type": "object",
            "propertyNames": kinds,
            "additionalProperties": {"type": "integer", "minimum": 1},
        },
        **outcome["properties"],
    }
    for shape in found.values():
        # As Python 3.13 has docstrings.
        shape["description"] = inspect.cleandoc(shape["description"])
        # All of them are written, those with a default, too.
        shape["required"] = list(shape["properties"])
        shape["properties"] = {
            name: {key: value for key, value in field.items() if key != "default"}
            for name, field in shape["properties"].items()
        }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Summary of a gate of fwbench, schema {SCHEMA}",
        "$ref": "#/$defs/Outcome",
        "$defs": found,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(exported(), indent=1) + "\n")
