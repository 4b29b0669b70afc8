"""Floating-point operations that a call needs, counted alike for every lane."""

from fwbench.frameworks.contract import Program
from fwbench.frameworks.faults import first_line
from fwbench.models import Model
from fwbench.record.measurement import Metric, unavailable
from fwbench.record.workload import Workload

# Cost of a call in forward passes, by mode. A backward pass has two matrix products for each of the forward pass
# (Kaplan et al., arXiv:2001.08361, section 2.1). Operations that rematerialisation repeats are not counted, as in the
# model FLOPs utilisation of PaLM (Chowdhery et al., arXiv:2204.02311, appendix B).
PASSES = {"inference": 1, "train_step": 3}


def model_flops(workload: Workload, model: Model, program: Program) -> Metric:
    """Count a call's operations: two for each multiply-accumulate of the batch's forward pass, thrice that in training.

    The model's own figure is the same in every lane. If the model has none, or none for these sizes, the operations of
    the traced program are counted, and lanes may differ.
    """
    passes = PASSES[workload.mode]
    times = f", {passes} times for the backward pass" if passes > 1 else ""
    if model.macs and not workload.axes:
        flops = 2.0 * model.macs * workload.batch_size
        return Metric(flops * passes, f"the model's multiply-accumulates, two operations each{times}")
    source = f"matrix products, convolutions and attention of the traced forward pass{times}"
    if workload.devices > 1:
        return unavailable(source, "a program over several devices is not traced; state the model's macs")
    try:
        counted = program.forward_flops()
    except Exception as error:
        return unavailable(source, f"{type(error).__name__}: {first_line(error)}")
    if not counted:
        return unavailable(source, "the lane counts none in this program; state the model's macs")
    return Metric(float(counted * passes), source)
