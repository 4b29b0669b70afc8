"""The outcome of the CUDA graphs that `torch.compile` was asked for."""

import torch


def recorded() -> int:
    """The number of graphs that Inductor has recorded on this process's GPU; calls replay them from the second on."""
    from torch._inductor import cudagraph_trees

    if not torch.cuda.is_initialized():
        return 0
    # Older versions do not choose the device themselves.
    manager = cudagraph_trees.get_manager(torch.cuda.current_device(), create_if_none_exists=False)
    nodes = list(manager.get_roots()) if manager else []
    for node in nodes:
        # Graphs that run after this one, such as the backward pass.
        nodes += [child for children in node.children.values() for child in children]
    return len(nodes)


def outcome() -> str:
    """The outcome of the graphs of a program that has made some steps, for the record.

    Inductor skips graphs that it cannot record, with no more than a line in its log. The steps are then launched kernel
    by kernel.
    """
    from torch._dynamo.utils import counters

    replayed, skips = recorded(), counters["inductor"]["cudagraph_skips"]
    told = [f"replayed ({replayed})"] * bool(replayed) + [f"skipped ({skips})"] * bool(skips)
    return ", ".join(told) or "none recorded"
