"""What happened to the CUDA graphs that `torch.compile` was asked for."""

import torch


def recorded() -> int:
    """How many graphs Inductor has recorded on this process's GPU; calls replay them from the second on."""
    from torch._inductor import cudagraph_trees

    if not torch.cuda.is_initialized():
        return 0
    # Older versions do not choose the device themselves.
    manager = cudagraph_trees.get_manager(torch.cuda.current_device(), create_if_none_exists=False)
    if manager is None:
        return 0
    count = 0
    nodes = list(manager.get_roots())
    while nodes:
        node = nodes.pop()
        count += 1
        # Graphs that run after this one, as the backward pass does.
        nodes += [child for children in node.children.values() for child in children]
    return count


def outcome() -> str:
    """What happened to the graphs of a program that has made some steps, for the record.

    Inductor skips those that it cannot record, without more than a line in its log, and the steps are then launched
    kernel by kernel.
    """
    from torch._dynamo.utils import counters

    replayed, skips = recorded(), counters["inductor"]["cudagraph_skips"]
    told = [f"replayed ({replayed})"] * bool(replayed) + [f"skipped ({skips})"] * bool(skips)
    return ", ".join(told) or "none recorded"
