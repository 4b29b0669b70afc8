"""`fwbench doctor`: what this machine can measure, and what would make its numbers better."""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from fwbench.commands.doctor import accelerator, sending
from fwbench.commands.doctor.advice import Advice, Level, dotted, lines, other_load, sound
from fwbench.errors import Absent
from fwbench.machine import Machine, cpu_vendor, machine, nvml, versions
from fwbench.machine.load import OtherLoad
from fwbench.meters.energy import Counter, counter
from fwbench.record import files
from fwbench.record.lanes import LANES
from fwbench.record.measurement import Measurement
from fwbench.record.storage import STORAGE
from fwbench.report import units

_WATCHED = 1.0  # seconds

_STDOUT = "-"

# On a GPU: the first step, and once that is done, the next one.
_BEGIN = "Begin with `fwbench doctor --check --json doctor.json`: it runs what can be wrong on this GPU."
_MEASURE = "Begin with `pytest --pyargs fwbench.suite.benchmarks --benchmark-only --benchmark-autosave`."

# What fwbench was tested with and an older Python cannot have: `constraints.txt` holds an older version for that one.
NEEDS_PYTHON: Mapping[str, tuple[int, int]] = {"jax 0.12": (3, 12)}


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "--json",
        nargs="?",
        const=_STDOUT,
        metavar="FILE",
        help="as JSON; into FILE with all that a maintainer needs, and without user names, paths and host names",
    )
    parser.add_argument(
        "--check", action="store_true", help="also run what can be wrong here, and judge it: five minutes at most"
    )
    parser.set_defaults(run=_run)


def examine(
    here: Machine,
    environment: Mapping[str, str] = os.environ,
    system: Path = Path("/sys"),
    sleep: Callable[[float], None] = time.sleep,
    gpu: nvml.Gpu | Absent | None = None,
    energy: Callable[[str], Counter | Absent] = counter,
    python: tuple[int, int, int] = sys.version_info[:3],
) -> list[Advice]:
    """Look at everything that numbers depend on; changes nothing and imports no framework.

    Args:
        here: this machine.
        system: sysfs.
        sleep: lets the second pass in which other load is watched.
        gpu: what NVML finds; default: asked.
        energy: finds the counter of a device, or the reason why there is none.
        python: version of the interpreter.
    """
    gpu = nvml.find() if gpu is None else gpu
    return [
        *_lanes(python),
        _python(python),
        *accelerator.findings(gpu, environment),
        _energy(here.device, energy(here.device)),
        _cpus(here),
        _governor(system),
        _boost(system),
        _watched(sleep),
        *_environment(environment),
        _host_memory(),
        _storage(),
    ]


def _run(options: argparse.Namespace) -> int:
    here = machine()
    findings = examine(here)
    measured: list[Measurement] = []
    if options.check:
        # What weighs pairs takes longer to import than all else here.
        from fwbench.commands.doctor.check import check

        results, measured = check(here, lambda text: print(text, file=sys.stderr, flush=True))
        # What was run says more than what was looked at.
        run = {finding.subject for finding in results}
        findings = [*(finding for finding in findings if finding.subject not in run), *results]
    if options.json == _STDOUT:
        print(json.dumps(sending.findings(findings), indent=1))
        return 0 if sound(findings) else 1
    print("\n".join(lines(findings)))
    if options.json:
        with files.writing("choose another file with --json."):
            files.write(Path(options.json), sending.report(here, findings, measured))
        print(f"{options.json} holds all of it: docs/gpu.md says how to send it.")
    if here.device == "gpu" and sound(findings):
        print(_MEASURE if options.check else _BEGIN)
    return 0 if sound(findings) else 1


def _lanes(python: tuple[int, ...]) -> Iterator[Advice]:
    """Whether what each lane needs is installed here, and where the lane comes from."""
    lanes = [lane for lane in LANES.values() if not lane.internal]
    installed = {lane.name: versions(lane.distributions) for lane in lanes}
    lacking = {lane.name: [name for name in lane.distributions if name not in installed[lane.name]] for lane in lanes}
    any_whole = not all(lacking.values())
    for lane in lanes:
        source = "" if lane.package == "fwbench" else f"; the lane comes from {_with_version(lane.package)}"
        missing = lacking[lane.name]
        if not missing:
            sentence = ", ".join(f"{name} {version}" for name, version in installed[lane.name].items())
            yield Advice(lane.name, "good", f"{sentence}{source}")
            continue
        # fwbench's own lanes have extras of their frameworks' names.
        wanted = f"'fwbench[{lane.framework}]'" if lane.package == "fwbench" else " ".join(missing)
        yield Advice(
            lane.name,
            "better" if any_whole else "bad",
            f"not installed in {sys.executable}, Python {dotted(python)}: {', '.join(missing)}{source}",
            f"`pip install {wanted}`, or name its interpreter: --fwbench-python {lane.framework}=PATH",
        )


def _python(version: tuple[int, ...]) -> Advice:
    """Whether newer frameworks could be had with a newer Python, or would run better."""
    here = dotted(version)
    wanting = {what: needed for what, needed in NEEDS_PYTHON.items() if version < needed}
    if wanting:
        sentence = ", ".join(f"{what} needs Python {dotted(needed)} or newer" for what, needed in wanting.items())
        newest = dotted(max(wanting.values()))
        return Advice(
            "Python", "better", f"{sentence}; this is {here}", f"install fwbench with Python {newest} or newer"
        )
    if version == (3, 13, 0):
        # PyTorch's own warning (torch/_dynamo/guards.py).
        sentence = f"{here}, on which calls of the lane torch-compile may take longer than from 3.13.1 on"
        return Advice("Python", "better", sentence, "install fwbench with Python 3.13.1 or newer, or 3.12")
    return Advice("Python", "good", here)


def _with_version(package: str) -> str:
    return " ".join((package, *versions((package,)).values()))


def _energy(device: str, meter: Counter | Absent) -> Advice:
    if not isinstance(meter, Absent):
        return Advice("energy", "good", meter.name)
    step = meter.next_step or "energy stays absent from the records, with this reason"
    return Advice("energy", "better", f"of the {device}: {meter}", step)


def _cpus(here: Machine) -> Advice:
    sentence = f"{here.cpu} ({cpu_vendor()}), {here.threads} physical cores for every lane, {units.size(here.memory)}"
    if here.quota is None or here.quota >= here.threads:
        return Advice("CPU", "good", sentence)
    # A single thread that is held back has no true time at all.
    level: Level = "better" if here.quota >= 1 else "bad"
    fewer = f", or measure with --fwbench-threads={int(here.quota)}" if here.quota >= 1 else ""
    step = f"raise it (cpu.max, `docker --cpus`, `limits.cpu`) to {here.threads} or more{fewer}"
    return Advice("CPU", level, f"{sentence}; a quota of the control group allows {here.quota:g} CPUs", step)


def _governor(system: Path) -> Advice:
    told = system.glob("devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor")
    governors = sorted({text for path in told if (text := files.content(path))})
    if not governors:
        return Advice(
            "CPU governor",
            "better",
            "the system shows none: a virtual machine, or no frequency scaling",
            "prefer a machine of your own for CPU numbers, or several runs (fwbench report takes them together)",
        )
    if governors == ["performance"]:
        return Advice("CPU governor", "good", "performance")
    return Advice("CPU governor", "better", ", ".join(governors), "`sudo cpupower frequency-set -g performance`")


def _boost(system: Path) -> Advice:
    intel = files.content(system / "devices/system/cpu/intel_pstate/no_turbo")
    boost = files.content(system / "devices/system/cpu/cpufreq/boost")
    if intel == "" and boost == "":
        return Advice("CPU boost", "good", "the system shows no switch")
    if intel == "1" or boost == "0":
        return Advice("CPU boost", "good", "off: the clock does not depend on heat")
    path = "intel_pstate/no_turbo" if intel else "cpufreq/boost"
    step = f"for steadier, slower numbers: `echo {1 if intel else 0} | sudo tee /sys/devices/system/cpu/{path}`"
    return Advice("CPU boost", "better", "on: the clock moves with load and heat", step)


def _watched(sleep: Callable[[float], None]) -> Advice:
    watch = OtherLoad()
    sleep(_WATCHED)
    return other_load(watch.read(), watch.cpus, _WATCHED)


def _environment(environment: Mapping[str, str]) -> Iterator[Advice]:
    lanes = [lane for lane in LANES.values() if not lane.internal]
    caches = sorted({variable for lane in lanes for variable in lane.caches})
    notes = [f"{variable} is set; " for variable in caches if environment.get(variable)]
    yield Advice("compiler caches", "good", f"{''.join(notes)}workers start with empty ones, so compile times are true")
    prefixes = ("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD", *(prefix for lane in lanes for prefix in lane.recorded))
    overridden = {variable for lane in lanes for variable in (*lane.environment, *lane.caches, *lane.sharing)}
    changed = sorted(name for name in environment if name.startswith(prefixes) and name not in overridden)
    if changed:
        yield Advice(
            "environment",
            "better",
            f"{', '.join(changed)} set: workers inherit that, and records say so",
            f"`unset {' '.join(changed)}` unless it is what you want to measure",
        )


def _host_memory() -> Advice:
    if os.access("/proc/self/clear_refs", os.W_OK):
        return Advice("host memory", "good", "the kernel lets the peak be reset before each reading")
    return Advice(
        "host memory", "better", "the kernel does not let the peak be reset, so it is absent", "measure on Linux"
    )


def _storage() -> Advice:
    folder = STORAGE.absolute()
    if reason := files.unwritable(folder):
        return Advice("storage", "bad", f"{folder} cannot be written ({reason})", "change to a folder of your own")
    return Advice("storage", "good", str(folder))
