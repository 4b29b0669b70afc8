"""What `fwbench doctor` says of a GPU: what it is, whether the frameworks can use it, what changes its numbers."""

import shutil
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path

from fwbench.commands.doctor.advice import Advice, Level, dotted
from fwbench.errors import Absent
from fwbench.machine import cuda, nvml, versions
from fwbench.machine.disturbances import computes, unseen
from fwbench.record.machine import AcceleratorProcess, AcceleratorState
from fwbench.report import units

_HEADERS = Path(sysconfig.get_path("include"))

# What to do about what holds the clocks down, by the reasons that `AcceleratorState` names.
_COOL = "let it cool, and see to its cooling"
REMEDIES = {
    "power cap": "lighten the load, or raise the power limit: `nvidia-smi -q -d POWER`",
    "hardware slowdown": "see to cooling and power supply: `nvidia-smi -q -d PERFORMANCE`",
    "sync boost": "take it out of the group of GPUs that boost together",
    "thermal limit": _COOL,
    "hardware thermal slowdown": _COOL,
    "hardware power brake": "see to the power supply: `nvidia-smi -q -d POWER`",
}


def findings(gpu: nvml.Gpu | Absent, environment: Mapping[str, str], headers: Path = _HEADERS) -> Iterator[Advice]:
    """Look at what NVML finds.

    Args:
        headers: of this Python, which torch.compile needs beside a C compiler.
    """
    if isinstance(gpu, Absent):
        yield Advice("GPU", "better", f"{gpu}; measuring on the CPU", gpu.next_step)
        return
    newest = "" if gpu.cuda is None else f" for CUDA up to {dotted(gpu.cuda)}"
    yield Advice("GPU", "good", f"{gpu.name}, {units.size(gpu.memory)}, driver {gpu.driver}{newest}")
    yield from _cuda(gpu)
    yield from _compiler(environment, headers)
    state = gpu.state()
    yield from _settings(state)
    yield from _power(state)
    yield from _throttling(state)
    yield from _load(state)


def _cuda(gpu: nvml.Gpu) -> Iterator[Advice]:
    """Whether each installed framework can use the GPU with this driver."""
    if gpu.cuda is None:
        yield Advice(
            "CUDA",
            "bad",
            "the driver's libcuda is not found, and no framework computes without",
            "install the whole driver; give a container NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        )
        return
    builds = cuda.builds()
    usable = [name for name, build in builds.items() if build and build[0] <= gpu.cuda[0]]
    unusable: Level = "better" if usable else "bad"
    for framework, build in builds.items():
        subject, name = f"{framework}'s CUDA", f"{framework} {versions((framework,))[framework]}"
        step = cuda.how_to_install(framework, gpu.cuda)
        if build is None:
            yield Advice(subject, unusable, f"{name} is built without CUDA", step)
        elif framework in usable:
            yield Advice(subject, "good", f"{name} is built for CUDA {dotted(build)}")
        else:
            driver = cuda.DRIVERS.get(build[0])
            needs = f"which needs driver {driver} or newer" if driver else f"which needs a driver for CUDA {build[0]}"
            yield Advice(
                subject,
                unusable,
                f"{name} is built for CUDA {dotted(build)}, {needs}; this driver is {gpu.driver}",
                f"update the driver, or {step}",
            )


def _compiler(environment: Mapping[str, str], headers: Path) -> Iterator[Advice]:
    """What torch.compile needs on a GPU when it runs: Triton builds a small Python extension."""
    if not versions(("triton",)):
        return
    # In Triton's order.
    named = environment.get("CC")
    compilers = [named] if named else ["gcc", "clang"]
    compiler = next((name for name in compilers if shutil.which(name, path=environment.get("PATH"))), None)
    if compiler is None:
        step = "install a C compiler (`sudo apt install gcc`), or let CC name one"
        yield Advice("C compiler", "better", "there is none, and torch-compile fails on a GPU without", step)
    elif not (headers / "Python.h").exists():
        step = "install them (`sudo apt install python3-dev`)"
        yield Advice(
            "C compiler", "better", f"{compiler}, but Python's headers are missing, which torch-compile needs too", step
        )
    else:
        yield Advice("C compiler", "good", f"{compiler}, which torch-compile needs on a GPU")


def _settings(state: AcceleratorState) -> Iterator[Advice]:
    if state.persistent is False:
        yield Advice("persistence", "better", "persistence mode is off", "`sudo nvidia-smi -pm 1`")
    elif state.persistent:
        yield Advice("persistence", "good", "persistence mode is on")
    if state.compute_mode is not None:
        mode, default = state.compute_mode, "`sudo nvidia-smi -c DEFAULT`"
        if mode == "default":
            yield Advice("compute mode", "good", "default: processes may share the GPU")
        elif mode == "prohibited":
            yield Advice("compute mode", "bad", "prohibited: nothing may compute on the GPU", default)
        else:
            yield Advice("compute mode", "better", f"{mode}: the two sides of a duet cannot share the GPU", default)
    if state.ecc is False:
        step = "`sudo nvidia-smi -e 1`, then restart"
        yield Advice("ECC", "better", "off: errors of the memory go unseen, and records with ECC do not compare", step)
    elif state.ecc:
        yield Advice("ECC", "good", "on")


def _power(state: AcceleratorState) -> Iterator[Advice]:
    if state.clock is not None and state.most_clock is not None:
        yield Advice(
            "GPU clock",
            "better",
            f"{state.clock:.0f} MHz now, {state.most_clock:.0f} MHz at most; it moves with load and heat",
            f"lock it: `sudo nvidia-smi -lgc {state.most_clock:.0f}`, afterwards `sudo nvidia-smi -rgc`",
        )
    if state.power_limit is not None and state.default_power_limit is not None:
        default = state.power_limit == state.default_power_limit
        yield Advice(
            "power limit",
            "good" if default else "better",
            f"{state.power_limit:.0f} W of {state.default_power_limit:.0f} W by default",
            "" if default else f"`sudo nvidia-smi -pl {state.default_power_limit:.0f}`",
        )


def _throttling(state: AcceleratorState) -> Iterator[Advice]:
    if state.throttle_reasons is None:
        return
    heat = "" if state.temperature is None else f", at {state.temperature:.0f} degrees Celsius"
    if not state.throttle_reasons:
        yield Advice("throttling", "good", f"nothing holds the clocks down{heat}")
        return
    steps = dict.fromkeys(REMEDIES[reason] for reason in state.throttle_reasons)
    sentence = f"the clocks are held down by: {', '.join(state.throttle_reasons)}{heat}"
    yield Advice("throttling", "better", sentence, "; ".join(steps))


def _load(state: AcceleratorState) -> Iterator[Advice]:
    """Who else computes: this process does not, so whoever is seen is somebody else."""
    busy = f", and it computes {state.utilisation:.0%} of the time" if computes(state) else ""
    screen = f"{len(state.graphics)} processes draw a screen" if state.graphics else ""
    step = "end them, or wait; `nvidia-smi` names them"
    if state.processes:
        named = ", ".join(map(_process, state.processes))
        yield Advice("GPU load", "better", f"others hold the GPU: {named}{busy}", step)
    elif held := unseen(state):
        yield Advice("GPU load", "better", f"{units.size(held)} are held by processes that are not seen{busy}", step)
    elif busy:
        yield Advice("GPU load", "better", f"{screen or 'no process is seen'}{busy}", step)
    elif state.processes is None:
        step = "ask `nvidia-smi` on the host"
        yield Advice("GPU load", "better", "the driver does not tell who computes on the GPU", step)
    else:
        yield Advice("GPU load", "good", f"nobody else computes on the GPU{screen and f'; {screen}'}")


def _process(process: AcceleratorProcess) -> str:
    memory = "memory not told" if process.memory is None else units.size(process.memory)
    return f"process {process.pid} ({memory})"
