"""`fwbench measure`: one workload, in the ranks that torchrun, srun or another launcher has started."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest_benchmark
from pytest_benchmark.utils import get_commit_info

from fwbench.commands.collecting import collected
from fwbench.errors import UserError, hint
from fwbench.extensions import addition, resolve
from fwbench.machine import machine
from fwbench.models import CATALOG
from fwbench.models.project import Project, complete, unknown_network
from fwbench.plugin.saving import extra_info, group, stats
from fwbench.record import files
from fwbench.record.fields import parse
from fwbench.record.journal import SCHEMA
from fwbench.record.lanes import LANES
from fwbench.record.measurement import Measurement
from fwbench.record.workload import FIELDS, Workload
from fwbench.suite.profiles import PROFILES
from fwbench.worker.client.workers import Workers


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Measures one workload and writes a record that `fwbench report` and `fwbench compare` read. "
        "Started by torchrun or srun it is one rank of a workload over as many devices: the first rank writes the "
        "record. Ends with 0 where there are numbers, 1 where there are none, and 4 where something must be corrected."
    )
    parser.add_argument(
        "fields",
        nargs="+",
        metavar="FIELD=VALUE",
        help=f"of the workload: {', '.join(name for name in FIELDS if name != 'target')}; axes as in "
        "axes=length:128,width:64",
    )
    parser.add_argument("--profile", choices=PROFILES, default="quick", help="how much to measure; default: quick")
    parser.add_argument(
        "--output", type=Path, metavar="PATH.json", help="where the record goes; default: it is not kept"
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    ranks = resolve(known) if (known := addition("ranks")) else None
    here = ranks.here() if ranks else None
    workload = stated(options.fields, here.size if here else 1)
    if here and here.size != workload.devices:
        raise UserError(f"{here.launcher} started {here.size} ranks, and devices={workload.devices} was asked for.")
    if ranks and here is None and LANES[workload.lane].in_ranks(workload.devices, workload.device):
        raise UserError(
            f"devices={workload.devices} needs as many ranks, and this process is alone: start it by torchrun or srun."
        )
    project = _project(workload)
    protocol = PROFILES[options.profile].on(workload.device)
    protocol = dataclasses.replace(protocol, deadline=protocol.deadline * workload.epochs)
    leads = here is None or here.rank == 0
    if leads and options.output and (reason := files.unwritable(options.output.resolve().parent)):
        raise UserError(f"{options.output} cannot be written ({reason}): name another file by --output.")

    def tell(stage: str) -> None:
        print(f"{workload.id}: {stage}", flush=True)

    workers = Workers(machine(), workload.device, {}, project)
    try:
        if ranks and here:
            measurement = ranks.take_part(here, workload, workers.job(workload, protocol), tell)
        else:
            measurement = workers.measure(workload, protocol, tell)
    finally:
        workers.close()
    if measurement.failure:
        print(f"fwbench: {measurement.failure}", file=sys.stderr)
        return 1
    if leads:
        print(_line(measurement))
        if options.output:
            with files.writing("choose another file with --output."):
                files.write(options.output, json.dumps(_record(measurement), indent=1))
            print(f"written: {options.output}")
    return 0


def stated(texts: Sequence[str], size: int) -> Workload:
    """The workload of `FIELD=VALUE` texts; a UserError, one sentence, if a text makes none."""
    try:
        given = parse(texts, {name: field for name, field in FIELDS.items() if name != "target"})
        values: dict[str, Any] = {"devices": size, "device": machine().device}
        values |= {name: value for name, (value,) in given.items()}
        for name in ("lane", "model"):
            if name not in values:
                raise ValueError(f"a workload needs a {name}: give {name}=NAME")
        if values["lane"] not in LANES:
            raise ValueError(f"unknown lane {values['lane']!r}: {hint(values['lane'], LANES)}")
        return Workload(**values)
    except ValueError as error:
        raise UserError(f"{error}.") from None


def _project(workload: Workload) -> Project:
    if workload.model in CATALOG:
        return Project(Path.cwd(), (Path.cwd(),))
    project = collected().project
    if workload.model not in project.models:
        known = [name for name, model in project.models.items() if complete(model).networks]
        raise UserError(f"unknown model {workload.model!r}: {hint(workload.model, known)}.")
    if why := unknown_network([project.models[workload.model]], workload.lane):
        raise UserError(f"{why}.")
    return project


def _line(measurement: Measurement) -> str:
    rate = measurement.value("throughput")
    devices = f" on {measurement.workload.devices} devices" if measurement.workload.devices > 1 else ""
    return f"{measurement.workload.id}: {rate:,.4g} samples/s{devices}" if rate else f"{measurement.workload.id}: done"


def _record(measurement: Measurement) -> dict[str, Any]:
    """A file of pytest-benchmark's, of one benchmark."""
    here, name = machine(), f"fwbench measure[{measurement.workload.id}]"
    return {
        "machine_info": {"node": here.cpu, "fwbench": {**here.to_json(), "versions": dict(measurement.versions)}},
        "commit_info": get_commit_info(),  # type: ignore[no-untyped-call]
        "benchmarks": [
            {
                "group": group(measurement.workload),
                "name": name,
                "fullname": name,
                "params": None,
                "param": measurement.workload.id,
                "extra_info": extra_info(measurement),
                "options": {},
                "stats": {**stats(measurement.samples).as_dict(), "data": list(measurement.samples)},
            }
        ],
        "datetime": datetime.now(UTC).isoformat(),
        "version": pytest_benchmark.__version__,
        "fwbench": {"schema": SCHEMA, "failures": []},
    }
