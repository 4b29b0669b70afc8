"""Peaks of known GPUs, from the vendor's documents, by the name that the driver gives them.

Peaks are dense: if a data sheet states them with sparsity, half of that. `fp32` is IEEE float32, which tensor cores do
not compute. If the data sheet has several kinds of sums, the peaks are those with float32 sums. A CPU's vendor
publishes no such figure: its clock under wide vector instructions depends on how many cores run them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Peaks:
    """The peaks of one GPU by the vendor's document: FLOP/s by precision, and the bandwidth of its memory, in B/s.

    A precision that the GPU has no instructions for is missing.
    """

    flops: Mapping[str, float]
    bandwidth: float
    source: str


def peaks(accelerator: str) -> Peaks | None:
    """A GPU's peaks; None if it is not listed, as a similar name proves nothing."""
    return next((peaks for name, peaks in _KNOWN if re.fullmatch(name, accelerator)), None)


def _tera(fp32: float, tf32: float | None, bf16: float | None, bandwidth: float, source: str) -> Peaks:
    """The peaks, made of figures in TFLOP/s and GB/s."""
    flops = {"fp32": fp32, "tf32": tf32, "bf16": bf16}
    return Peaks({name: value * 1e12 for name, value in flops.items() if value}, bandwidth * 1e9, source)


_A100 = "NVIDIA A100 Tensor Core GPU data sheet"
_H100 = "NVIDIA H100 Tensor Core GPU data sheet"
_H200 = "NVIDIA H200 Tensor Core GPU data sheet"
_V100 = "NVIDIA V100 Tensor Core GPU data sheet"

_KNOWN = (
    (r"NVIDIA A100-(SXM4|PCIE)-40GB", _tera(19.5, 156, 312, 1555, _A100)),
    (r"NVIDIA A100-SXM4-80GB", _tera(19.5, 156, 312, 2039, _A100)),
    (r"NVIDIA A100 80GB PCIe", _tera(19.5, 156, 312, 1935, _A100)),
    (r"NVIDIA H100 80GB HBM3", _tera(67, 494.5, 989.5, 3350, _H100)),
    (r"NVIDIA H100 PCIe", _tera(51, 378, 756.5, 2000, _H100)),
    (r"NVIDIA H100 NVL", _tera(60, 417.5, 835.5, 3900, _H100)),
    (r"NVIDIA H200", _tera(67, 494.5, 989.5, 4800, _H200)),
    (r"NVIDIA H200 NVL", _tera(60, 417.5, 835.5, 4800, _H200)),
    (r"NVIDIA L4", _tera(30.3, 60, 121, 300, "NVIDIA L4 Tensor Core GPU data sheet")),
    (r"NVIDIA L40S", _tera(91.6, 183, 362, 864, "NVIDIA L40S data sheet")),
    (r"(NVIDIA |)(Tesla |)T4", _tera(8.1, None, None, 320, "NVIDIA T4 Tensor Core GPU data sheet")),
    (r"(NVIDIA |)(Tesla |)V100-SXM2-(16|32)GB", _tera(15.7, None, None, 900, _V100)),
    (r"(NVIDIA |)(Tesla |)V100-PCIE-(16|32)GB", _tera(14, None, None, 900, _V100)),
    (r"NVIDIA GeForce RTX 4090", _tera(82.6, 82.6, 165.2, 1008, "NVIDIA Ada GPU architecture white paper, appendix A")),
)
