"""CUDA graphs: what became of those that `torch.compile` was asked for."""

import torch


def recorded() -> int:
    """How many Inductor has recorded on the current GPU in this process: calls replay them, from the second one on."""
    from torch._inductor import cudagraph_trees

    if not torch.cuda.is_initialized():
        return 0
    # Older versions do not choose the device themselves.
    manager = cudagraph_trees.get_manager(torch.cuda.current_device(), create_if_none_exists=False)
    if manager is None:
        return 0
    found = 0
    nodes = list(manager.get_roots())
    while nodes:
        node = nodes.pop()
        found += 1
        # Graphs that run after it, as the backward pass does.
        nodes += [child for children in node.children.values() for child in children]
    return found


def outcome() -> str:
    """What has become of the graphs of a program that has made some steps, for the record.

    Inductor skips those that it cannot record, without more than a line in its log, and the steps are then launched
    kernel by kernel.
    """
    from torch._dynamo.utils import counters

    replayed, skips = recorded(), counters["inductor"]["cudagraph_skips"]
    told = [f"replayed ({replayed})"] * bool(replayed) + [f"skipped ({skips})"] * bool(skips)
    return ", ".join(told) or "none recorded"
