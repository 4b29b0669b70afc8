"""Runs of the suite that are killed at random moments and resumed: the table in ../reliability.md.

    python docs/evidence/resume.py                 # 20 kills with the seed 0, in about 20 minutes on two cores

Each time a real run of pytest over small models is begun in an empty storage and ended by SIGKILL at a random moment of
its measuring or of its rounds of turns. Then `--fwbench-resume` ends it, and the journal that the kill has left is held
against the JSON of that second run.
"""

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fwbench.record import journal
from fwbench.record.workload import Workload

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- resume: begin -->\n", "<!-- resume: end -->"

# Of the profile `quick` its inference, in short windows; and rounds of its four workloads, in at least so many of which
# a run can be killed.
BENCHMARKS, ROUNDS = 8, 4
SUITE = (
    *("tests/benchmarks/test_inference.py", "--benchmark-only", "--fwbench-models=mlp,cnn"),
    *(
        "--fwbench-lanes=torch,jax",
        "--benchmark-max-time=0.2",
        "--fwbench-set=patience=0",
        "--fwbench-minutes=1",
        "-p",
        "no:cacheprovider",
    ),
)

# Seconds until pytest has measured something, about.
START = 8.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    found = []
    for number in range(1, options.kills + 1):
        share = draw.random()
        with tempfile.TemporaryDirectory() as folder:
            found.append(_killed(Path(folder), share))
        print(f"{number}: killed after {share:.0%} of its benchmarks and first rounds: {found[-1]}", flush=True)
    kept = sum(one.kept for one in found)
    rows = {
        f"runs of {BENCHMARKS} benchmarks that were killed and resumed": len(found),
        "measurements on disk when their runs were killed": kept,
        "of these unchanged in the resumed run's JSON: samples, metrics and all else": sum(one.same for one in found),
        "of these lost or different": sum(one.kept - one.same for one in found),
        "of these measured again": sum(one.again for one in found),
        "benchmarks that were begun when the kill came, and begun again: in all": sum(one.cut for one in found),
        "the same: at most in one run": max(one.cut for one in found),
        "benchmarks missing in a resumed run's JSON": sum(BENCHMARKS - one.saved for one in found),
        "rounds of turns on disk when their runs were killed": sum(one.rounds for one in found),
        "of these lost or different in the resumed run's JSON": sum(one.lost for one in found),
        "rounds that the resumed runs have played besides": sum(one.further for one in found),
    }
    table = ["| | |", "|---|---|", *(f"| {what} | {count} |" for what, count in rows.items())]
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(before + BEGIN + "\n".join(table) + "\n" + END + after, encoding="utf-8")
    print("\n".join(table))


@dataclass(frozen=True)
class Counted:
    """What became of a run's measurements.

    Attributes:
        kept: in the journal when the run was killed.
        same: of these, in the resumed run's JSON as they were.
        again: of these, measured again.
        cut: begun when the run was killed, and in no journal.
        saved: in the resumed run's JSON.
        rounds: in the journal when the run was killed.
        lost: of these, not in the resumed run's JSON as they were.
        further: rounds in that JSON, besides these.
    """

    kept: int
    same: int
    again: int
    cut: int
    saved: int
    rounds: int
    lost: int
    further: int


def _killed(folder: Path, share: float) -> Counted:
    """Kill a run when so large a share of its benchmarks and first rounds is in its journal, resume it, and count."""
    whole, rest = divmod(share * (BENCHMARKS + ROUNDS), 1)
    with (folder / "said").open("w+") as said:
        process = subprocess.Popen(_command(folder), cwd=ROOT, stdout=said, stderr=subprocess.STDOUT)
        moments = [time.monotonic()]
        while len(moments) <= whole and process.poll() is None:
            # Whoever reads all records is other load, beside which no round counts.
            lines = sum(path.read_bytes().count(b"\n") for path in folder.glob("journal/*"))
            moments += [time.monotonic()] * (max(1, lines) - len(moments))
            time.sleep(0.05)
        # Within the next one, which takes about as long as the last; the first one waits for pytest itself.
        time.sleep(rest * (moments[-1] - moments[-2] if len(moments) > 2 else START / len(moments) ** 2))
        process.kill()
        process.wait()
    begun = len(re.findall(r"^\[ ?\d+/", (folder / "said").read_text(), re.MULTILINE))
    kept, rounds = _kept(folder)
    resumed = _command(folder, "--fwbench-resume")
    done = subprocess.run(resumed, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"pytest ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    saved = {_key(one["extra_info"]["workload"]): _of_json(one) for one in record["benchmarks"]}
    measured = [line for line in done.stdout.splitlines() if re.match(r"\[ ?\d+/.*: build", line)]
    again = [key for key in kept if any(f" {_id(kept[key])}: " in line for line in measured)]
    same = sum(saved.get(key) == one for key, one in kept.items())
    played = record["fwbench"].get("rounds", [])
    lost = sum(one not in played for one in rounds)
    cut, further = begun - len(kept), len(played) - len(rounds) + lost
    return Counted(len(kept), same, len(again), cut, len(saved), len(rounds), lost, further)


def _command(folder: Path, *options: str) -> list[str]:
    files = (f"--benchmark-storage={folder}", f"--benchmark-json={folder / 'run.json'}")
    return [sys.executable, "-m", "pytest", *SUITE, *files, *options]


def _kept(folder: Path) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
    """The newest journal's measurements, by workload, and its rounds."""
    path = journal.newest(folder / "journal")
    whole, _ = journal.lines(path.read_text(encoding="utf-8")) if path else ([], False)
    records = [json.loads(line) for line in whole[1:]]
    measurements = {_key(one["workload"]): one for one in records if journal.ROUND not in one}
    return measurements, [one[journal.ROUND] for one in records if journal.ROUND in one]


def _id(measurement: dict[str, Any]) -> str:
    return Workload.from_json(measurement["workload"]).id


def _of_json(benchmark: dict[str, Any]) -> dict[str, Any]:
    """What pytest-benchmark keeps of a measurement, as the journal has it."""
    return {**benchmark["extra_info"], "samples": benchmark["stats"]["data"], "failure": None}


def _key(workload: dict[str, Any]) -> str:
    return json.dumps(workload, sort_keys=True)


if __name__ == "__main__":
    main()
