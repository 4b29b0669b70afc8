"""The looks of `fwbench doctor` at a GPU: its kind, its use by frameworks, and all that changes its numbers."""

import shutil
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fwbench import units
from fwbench.commands.doctor.findings import Finding
from fwbench.machine import cuda, nvml, versions
from fwbench.machine.disturbances import computes, unseen
from fwbench.record.machine import AcceleratorState

_HEADERS = Path(sysconfig.get_path("include"))

# Next steps, by the reasons for low clocks that `AcceleratorState` names.
REMEDIES = {
    "power cap": "lighten the load, or raise the power limit: `nvidia-smi -q -d POWER`",
    "hardware slowdown": "see to cooling and power supply: `nvidia-smi -q -d PERFORMANCE`",
    "sync boost": "take it out of the group of GPUs that boost together",
    **dict.fromkeys(("thermal limit", "hardware thermal slowdown"), "let it cool, and see to its cooling"),
    "hardware power brake": "see to the power supply: `nvidia-smi -q -d POWER`",
}


@dataclass(frozen=True)
class Card:
    """A look at each thing that numbers of a GPU depend on; a thing that the driver does not report is no finding."""

    gpu: nvml.Gpu
    environment: Mapping[str, str]
    state: AcceleratorState

    def findings(self) -> Iterator[Finding]:
        """All findings, in the order in which they are shown."""
        newest = "" if self.gpu.cuda is None else f" for CUDA up to {dotted(self.gpu.cuda)}"
        yield Finding("GPU", f"{self.gpu.name}, {units.size(self.gpu.memory)}, driver {self.gpu.driver}{newest}")
        for look in (self._cuda, self._compiler, self._settings, self._power, self._throttling, self._load):
            yield from look()

    def _cuda(self) -> Iterator[Finding]:
        if (newest := self.gpu.cuda) is None:
            step = "install the whole driver; give a container NVIDIA_DRIVER_CAPABILITIES=compute,utility"
            found = "the driver's libcuda is not found, and no framework computes without"
            yield Finding("CUDA", found, step, bad=True)
            return
        builds = cuda.builds()
        usable = {name for name, build in builds.items() if build and build[0] <= newest[0]}
        for name, build in builds.items():
            found, step = f"for CUDA {dotted(build)}" if build else "without CUDA", ""
            if name not in usable:
                step = cuda.next_step(name, newest, built=bool(build))
            if build and step:
                oldest = cuda.DRIVERS.get(build[0], f"for CUDA {build[0]}")
                found += f", which needs driver {oldest} or newer; this driver is {self.gpu.driver}"
            found = f"{name} {versions((name,))[name]} is built {found}"
            yield Finding(f"{name}'s CUDA", found, step, bad=not usable)

    def _compiler(self) -> Iterator[Finding]:
        # Triton, which builds a small Python extension when it first runs, looks for them in this order.
        compilers = [named] if (named := self.environment.get("CC")) else ["gcc", "clang"]
        compiler = next((name for name in compilers if shutil.which(name, path=self.environment.get("PATH"))), "")
        lacks = "a C compiler" if not compiler else "" if (_HEADERS / "Python.h").exists() else "Python's headers"
        if versions(("triton",)):
            found = f"torch-compile fails on a GPU without {lacks}" if lacks else compiler
            yield Finding(
                "C compiler", found, lacks and "`sudo apt install gcc python3-dev`, or let CC name a compiler"
            )

    def _settings(self) -> Iterator[Finding]:
        if (on := self.state.persistent) is not None:
            step = "" if on else "`sudo nvidia-smi -pm 1`"
            yield Finding("persistence", f"persistence mode is {'on' if on else 'off'}", step)
        if (mode := self.state.compute_mode) is not None:
            effects = {"default": "processes may share the GPU", "prohibited": "nothing may compute on the GPU"}
            found = f"{mode}: {effects.get(mode, 'the two sides of a duet cannot share the GPU')}"
            step = "" if mode == "default" else "`sudo nvidia-smi -c DEFAULT`"
            yield Finding("compute mode", found, step, bad=mode == "prohibited")
        if (on := self.state.ecc) is not None:
            found = "on" if on else "off: errors of the memory go unseen, and records with ECC do not compare"
            yield Finding("ECC", found, "" if on else "`sudo nvidia-smi -e 1`, then restart")

    def _power(self) -> Iterator[Finding]:
        clock, most = self.state.clock, self.state.most_clock
        if clock is not None and most is not None:
            found = f"{clock:.0f} MHz now, {most:.0f} MHz at most; it moves with load and heat"
            step = f"lock it: `sudo nvidia-smi -lgc {most:.0f}`, afterwards `sudo nvidia-smi -rgc`"
            yield Finding("GPU clock", found, step)
        limit, default = self.state.power_limit, self.state.default_power_limit
        if limit is not None and default is not None:
            step = "" if limit == default else f"`sudo nvidia-smi -pl {default:.0f}`"
            yield Finding("power limit", f"{limit:.0f} W of {default:.0f} W by default", step)

    def _throttling(self) -> Iterator[Finding]:
        if (reasons := self.state.throttle_reasons) is not None:
            heat = "" if self.state.temperature is None else f", at {self.state.temperature:.0f} degrees Celsius"
            found = f"the clocks are held down by: {', '.join(reasons)}" if reasons else "nothing holds the clocks down"
            yield Finding("throttling", found + heat, "; ".join(dict.fromkeys(REMEDIES[each] for each in reasons)))

    def _load(self) -> Iterator[Finding]:
        # This process does not compute, so any process that is seen is another one.
        state, step = self.state, "end them, or wait; `nvidia-smi` names them"
        busy = f", and it computes {state.utilisation:.0%} of the time" if computes(state) else ""
        screen = f"{len(state.graphics)} processes draw a screen" if state.graphics else ""
        if state.processes:
            sizes = {p.pid: "memory not told" if p.memory is None else units.size(p.memory) for p in state.processes}
            found = f"others hold the GPU: {', '.join(f'process {pid} ({size})' for pid, size in sizes.items())}"
        elif held := unseen(state):
            found = f"{units.size(held)} are held by processes that are not seen"
        elif busy:
            found = screen or "no process is seen"
        elif state.processes is None:
            found, step = "the driver does not tell who computes on the GPU", "ask `nvidia-smi` on the host"
        else:
            found, step = f"nobody else computes on the GPU{screen and f'; {screen}'}", ""
        yield Finding("GPU load", found + busy, step)


def dotted(version: tuple[int, ...]) -> str:
    """A version as it is written."""
    return ".".join(map(str, version))
