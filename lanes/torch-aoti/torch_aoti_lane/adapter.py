"""What fwbench's workers run: a library that AOTInductor has compiled and PyTorch's own loader has loaded."""

import hashlib
import platform
import re
import zipfile
from collections import Counter

import torch

from fwbench.ext.derived.adapter import Derived, Loaded
from fwbench.frameworks.torch.adapter import FRAMEWORK as TORCH
from fwbench.record.fingerprint import Fingerprint

# A call of PyTorch's operators or of a compiled kernel in the generated C++.
_CALL = re.compile(r"^\s*(?:AOTI_TORCH_ERROR_CODE_CHECK\()?(aoti_torch_cpu_\w+|cpp_fused_\w+)\(", re.MULTILINE)


class Library(Loaded):
    """A loaded library and its batch."""

    def __init__(self, file, inputs):
        self.file = file
        self.call = torch._inductor.aoti_load_package(str(file))
        self.inputs = [torch.from_numpy(array) for array in inputs.values()]
        self.settings = {"freezing": True, "num_threads": torch.get_num_threads()}

    def run(self):
        with torch.inference_mode():
            self.out = self.call(*self.inputs)

    def output(self):
        return self.out.numpy()

    def fingerprint(self):
        """The C++ that Inductor wrote: its kernels, and the order in which they and PyTorch's operators are called."""
        with zipfile.ZipFile(self.file) as package:
            sources = {name: package.read(name).decode() for name in package.namelist() if name.endswith(".cpp")}
        lines = []
        for name, text in sources.items():
            if name.endswith("kernel.cpp"):
                lines += [line for line in text.splitlines() if not line.lstrip().startswith("//")]
        calls = [call for name, text in sources.items() if name.endswith("wrapper.cpp") for call in _CALL.findall(text)]
        return Fingerprint(
            form="AOTInductor's C++",
            digest=hashlib.sha256("\n".join((*lines, *calls)).encode()).hexdigest(),
            operators=dict(Counter(calls)),
            compiler={"torch": torch.__version__},
            processor=f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        )


class AotInductor(Derived):
    """The lane `torch-aoti`: on a CPU in float32."""

    title = "AOTInductor"
    exporter = "torch_aoti_lane:export"

    def load(self, folder, inputs, workload):
        return Library(folder / "model.pt2", inputs)

    def probe(self, workload, operands):
        return TORCH.probe(workload, operands)


FRAMEWORK = AotInductor()
