"""The gate's own test: its rate of false alarms on this machine, and its rate of real slowdowns found.

It runs suites of this revision against itself, and suites in which head does real extra work in some benchmarks; half
of them while other processes come and go. Each suite is kept as soon as it is done, so that hours of them can be
stopped and resumed.
"""

import argparse
import dataclasses
import hashlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fwbench.compare import duet, evidence
from fwbench.compare.criteria import CRITERIA, thresholds
from fwbench.compare.pair import Comparison, Pair
from fwbench.compare.statistics import RULE
from fwbench.errors import UserError
from fwbench.ext.trials import rates
from fwbench.machine import Machine, machine
from fwbench.machine.load import OtherLoad
from fwbench.models import CATALOG
from fwbench.models.project import Project
from fwbench.record import files
from fwbench.record.journal import Journal
from fwbench.record.storage import SELFTEST
from fwbench.record.workload import Workload
from fwbench.suite.profiles import PROFILES
from fwbench.suite.studies import SUITES
from fwbench.worker.client.starting import PACKAGE
from fwbench.worker.turns import pairs
from fwbench.worker.turns.servers import Servers
from fwbench.worker.turns.sides import sides

# Slowdowns in a planted suite, each in another benchmark.
_PLANTED = 2
# Rounds of each side that a pair keeps for rules on rounds.
_ROUNDS = 60

# Busy loops that come and go: each is busy, then idle, for a random time of up to so many seconds.
_LOADERS = 2
_LOADER = """
import os, random, sys, time
parent, draw = int(sys.argv[1]), random.Random(int(sys.argv[2]))
while os.getppid() == parent:
    until = time.monotonic() + draw.uniform(0, 8)
    while time.monotonic() < until and os.getppid() == parent:
        sum(range(10000))
    until = time.monotonic() + draw.uniform(0, 8)
    while time.monotonic() < until and os.getppid() == parent:
        time.sleep(0.1)
"""


@dataclass(frozen=True)
class Suite:
    """One run of all benchmarks.

    Attributes:
        slowdown: planted in some of them; 0: base and head do the same.
        loaded: whether other processes come and go.
        number: among the suites of its kind.
    """

    slowdown: float
    loaded: bool
    number: int


def schedule(unchanged: int) -> list[Suite]:
    """So many suites without a change, and among them a quarter as many with 5 %, an eighth with 3 and with 10 %."""
    suites: list[Suite] = []
    counts: dict[float, int] = {}
    for index in range(unchanged):
        # Two without a change, then one with; every kind by turns with other load and without.
        planted = (0.05, 0.10, 0.05, 0.03)[index // 2 % 4]
        for slowdown in (0.0, planted) if index % 2 else (0.0,):
            number = counts.get(slowdown, 0)
            counts[slowdown] = number + 1
            suites.append(Suite(slowdown, number % 2 == 1, number))
    return suites


def workloads(device: str) -> list[Workload]:
    """The workloads of a suite: those of the profile `ci`."""
    return [
        Workload(lane, model, part.mode, batch_size, device=device)
        for part in SUITES[device]["ci"]
        for model in part.models
        for batch_size in part.batch_sizes
        for lane in part.lanes
    ]


def run(suite: Suite, benchmarks: Sequence[Workload], here: Machine) -> dict[str, Any]:
    """Run one suite, and return the record that is kept of it."""
    seed = random.Random(f"{suite}").randrange(1 << 32)
    draw = random.Random(seed)
    planted = dict.fromkeys(draw.sample(benchmarks, _PLANTED), suite.slowdown) if suite.slowdown else {}
    begun = time.monotonic()
    load = OtherLoad()
    both = sides(sys.executable, Project(PACKAGE.parent, ()), {})
    with both as (base, head), Servers() as servers, _load(suite.loaded, draw):
        # The same fwbench in the same place, as in a user's repository, so that pairs share servers as they do there.
        base, head = (dataclasses.replace(side, package=PACKAGE) for side in (base, head))
        given = (base, head, CATALOG, here, here.device, PROFILES["ci"].deadline, planted, draw.randrange(1 << 32))
        players = pairs.Pairs(*given, servers=servers)
        compared = duet.compare(dict.fromkeys(benchmarks, thresholds("duet")), players.play, _tell)
        other = load.read().value
    return {
        **dataclasses.asdict(suite),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - begun, 1),
        "other_load": other,
        "benchmarks": [_line(comparison, planted.get(w, 0.0)) for w, comparison in compared.items()],
    }


def _line(comparison: Comparison[Workload], planted: float) -> dict[str, Any]:
    def rounds(pair: Pair, side: str) -> list[float]:
        every = pair.rounds[side]
        chosen = every[:: max(1, len(every) // _ROUNDS)][:_ROUNDS]
        return [float(f"{seconds:.4g}") for seconds in chosen]

    def differences(pairs: Sequence[Pair]) -> dict[str, list[float]]:
        metrics = pairs[0].differences if pairs else ()
        return {metric: [round(pair.differences[metric], 6) for pair in pairs] for metric in metrics}

    return {
        "id": comparison.workload.id,
        "planted": planted,
        "kind": comparison.kind,
        "note": comparison.note,
        "verdicts": {metric: verdict.kind for metric, verdict in comparison.verdicts.items()},
        "seconds": [round(seconds, 2) for seconds in comparison.seconds],
        "screening": differences(comparison.screening),
        "confirmation": differences(comparison.confirmation),
        "rounds": [{side: rounds(pair, side) for side in ("base", "head")} for pair in comparison.screening],
    }


@contextmanager
def _load(wanted: bool, draw: random.Random) -> Iterator[None]:
    loaders = [
        subprocess.Popen([sys.executable, "-c", _LOADER, str(os.getpid()), str(draw.randrange(1 << 32))])
        for _ in range(_LOADERS if wanted else 0)
    ]
    try:
        yield
    finally:
        for loader in loaders:
            loader.kill()
            loader.wait()


def _tell(what: str) -> None:
    print(f"  {what}", file=sys.stderr, flush=True)


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compares this revision with itself, suite after suite, with and without slowdowns planted in it, "
        "and reports how often the gate was wrong. It can be stopped, and resumes where it was when it is run again."
    )
    parser.add_argument("--suites", type=int, default=40, metavar="N", help="suites without a change (default: 40)")
    parser.add_argument(
        "--output",
        type=Path,
        default=SELFTEST,
        metavar="FILE",
        help=f"where suites are kept, and counted from (default: {SELFTEST})",
    )
    parser.set_defaults(run=_selftest)


def _selftest(options: argparse.Namespace) -> int:
    here = machine().in_turns()
    benchmarks = workloads(here.device)
    # The workloads of both sides, and the rules that judge them.
    asked = [*(workload.id for workload in benchmarks), repr((RULE, CRITERIA, pairs.PARAMETERS))]
    header = {
        "definition": hashlib.sha256("\n".join(asked).encode()).hexdigest()[:16],
        # Through JSON, so that it equals what is read back.
        "machine": json.loads(json.dumps(here.to_json())),
    }
    kept = evidence.read(options.output) if options.output.exists() else None
    made = {name: kept.header[name] for name in header} if kept else header
    done = {(suite["slowdown"], suite["number"]) for suite in kept.suites} if kept else set()
    left = [suite for suite in schedule(options.suites) if (suite.slowdown, suite.number) not in done]
    if left and made != header:
        raise UserError(
            f"{options.output} holds suites of another machine or another procedure: give --output another file."
        )
    journal = Journal(options.output.parent, header, options.output.name)
    if left:
        try:
            # Before the first suite, which takes a minute.
            with _writing():
                journal.begin(())
            for suite in left:
                print(f"{suite}", file=sys.stderr, flush=True)
                record = run(suite, benchmarks, here)
                with _writing():
                    journal.append(record)
        finally:
            with _writing():
                journal.close()
    for loss in journal.losses:
        print(f"fwbench: {loss}", file=sys.stderr)
    print("\n".join(rates.report(evidence.read(journal.path or options.output))))
    return 0


@contextmanager
def _writing() -> Iterator[None]:
    try:
        with files.writing("free space and run it again, or give --output another file."):
            yield
    except BlockingIOError as error:
        raise UserError(
            f"another `fwbench selftest` writes into {error.filename}: give --output another file."
        ) from None
