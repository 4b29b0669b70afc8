"""A lane of fwbench for PyTorch's AOTInductor: inference by a library that is compiled ahead of time."""

from fwbench.record.lanes import OWN, Lane

LANE = Lane(
    name="torch-aoti",
    framework="torch_aoti",
    title="PyTorch (AOTInductor)",
    derived="torch",
    adapter="torch_aoti_lane.adapter:FRAMEWORK",
    distributions=("torch",),
    environment=OWN["torch"].environment,
    recorded=OWN["torch"].recorded,
    caches=OWN["torch-compile"].caches,
)


def export(module, inputs, folder, workload):
    """Compile the module into a package of a shared library and its weights. The exporting process calls this."""
    import torch

    with torch.inference_mode():
        program = torch.export.export(module, tuple(inputs.values()))
        # Inductor folds frozen weights, and lays them out for the CPU's kernels.
        configs = {"freezing": True}
        package = str(folder / "model.pt2")
        torch._inductor.aoti_compile_and_package(program, package_path=package, inductor_configs=configs)
