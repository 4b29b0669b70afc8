"""Faults injected from outside, and what was lost and said: runs their tests and writes faults.md.

    python docs/evidence/faults.py [PYTEST OPTIONS]

A test that fails leaves the page as it is.
"""

import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path(__file__).with_suffix(".md")
TESTS = (
    "tests/unit/faults",
    "tests/ext/ci/test_ci.py",
    "tests/ext/history/test_faults.py",
    "tests/ext/proofs/test_audit_faults.py",
)
HEAD = """# Faults injected from outside

Each row is a fault that a test of `tests/unit/faults` or of an extension brings about, what was lost, and what the user
was told. `...` stands for a folder. Made by `python docs/evidence/faults.py`, which runs these tests, the slow ones
included unless its options say otherwise.
"""


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.xml"
        kept = (f"--junitxml={results}", "-o", "junit_family=xunit1")
        command = [sys.executable, "-m", "pytest", *TESTS, "-m", "slow or not slow", *kept]
        code = subprocess.run([*command, *sys.argv[1:]], cwd=ROOT).returncode
        if code:
            return code
        told = [
            json.loads(each.attrib["value"])
            for each in ElementTree.parse(results).iter("property")
            if each.attrib["name"] == "fault"
        ]
    kinds: dict[str, list[dict[str, str]]] = {}
    for row in sorted(told, key=lambda row: (row["kind"], row["tried"])):
        kinds.setdefault(row["kind"], []).append(row)
    options = f", with the options `{shlex.join(sys.argv[1:])}`" if sys.argv[1:] else ""
    lines = [HEAD, f"{len(told)} faults of {len(kinds)} kinds{options}.\n"]
    for kind, rows in kinds.items():
        lines += [f"## {kind[:1].upper()}{kind[1:]}\n", "| tried | lost | said |", "| --- | --- | --- |"]
        lines += [f"| {_cell(row['tried'])} | {_cell(row['lost'])} | {_cell(row['said'])} |" for row in rows]
        lines.append("")
    PAGE.write_text("\n".join(lines), encoding="utf-8")
    return 0


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|") or "-"


if __name__ == "__main__":
    sys.exit(main())
