"""A derived lane for tests: it exports the module's graph, and PyTorch runs that."""

import os
import sys

import torch

from fwbench.ext.derived.adapter import Derived, Loaded


def export(module, inputs, folder, workload):
    """Write the module, or fail as the test wants."""
    wanted = os.environ.get("DERIVED_LANE", "")
    if wanted == "refuse":
        raise TypeError("\x1b[96mno operator\x1b[0m for it") from ValueError("it is\nodd")
    if wanted == "die":
        sys.exit("gone")
    torch.export.save(torch.export.export(module, tuple(inputs.values())), folder / "module.pt2")


class Graph(Loaded):
    """The graph that was exported."""

    def __init__(self, file, inputs):
        self.module = torch.export.load(file).module()
        self.inputs = [torch.from_numpy(array) for array in inputs.values()]
        self.settings = {"inputs": list(inputs)}

    def run(self):
        with torch.inference_mode():
            self.out = self.module(*self.inputs)

    def output(self):
        return self.out.numpy()


class Graphs(Derived):
    """A lane that runs exported graphs."""

    title = "Graph"
    exporter = "tests.ext.derived.graphs:export"

    def load(self, folder, inputs, workload):
        return Graph(folder / "module.pt2", inputs)

    def probe(self, workload, operands):
        raise NotImplementedError
