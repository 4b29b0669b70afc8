# ruff: noqa: N802, N815 (NVML's own names)
import sys
import types

import pytest

from fwbench.machine import nvml, physical_cores
from fwbench.record.lanes import LANES
from fwbench.worker.client import environment


def test_one_cpu_a_physical_core(tmp_path):
    for cpu, siblings in enumerate(["0,2", "1,3", "0,2", "1,3"]):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{siblings}\n")
    assert physical_cores({0, 1, 2, 3}, tmp_path) == (0, 1)
    assert physical_cores({2, 3}, tmp_path) == (2, 3)


def test_every_cpu_counts_where_the_kernel_does_not_tell(tmp_path):
    assert physical_cores({4, 5}, tmp_path) == (4, 5)


class FakeNvml(types.ModuleType):
    """Two GPUs, whose handles are their UUIDs; cut into slices where `cut` is set."""

    NVML_DEVICE_MIG_ENABLE = 1

    class NVMLError(Exception):
        pass

    def __init__(self, *, cut=False):
        super().__init__("pynvml")
        self.cut = cut

    def nvmlInit(self):
        pass

    def nvmlDeviceGetCount(self):
        return 2

    def nvmlDeviceGetHandleByIndex(self, index):
        return f"GPU-{index}{index}{index}"

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid not in ("GPU-000", "GPU-111", "MIG-7"):
            raise self.NVMLError("Not Found")
        return uuid

    def nvmlDeviceGetUUID(self, handle):
        return handle

    nvmlDeviceGetName = nvmlDeviceGetUUID

    def nvmlSystemGetDriverVersion(self):
        return "580.1"

    def nvmlDeviceGetMemoryInfo(self, handle):
        return types.SimpleNamespace(total=2**30)

    def nvmlDeviceGetEnforcedPowerLimit(self, handle):
        raise self.NVMLError("Not Supported")

    def nvmlDeviceGetMigMode(self, handle):
        if handle.startswith("MIG"):
            raise self.NVMLError("Invalid Argument")
        return int(self.cut), int(self.cut)

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle, index):
        return "MIG-7"

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        raise self.NVMLError("Insufficient Permissions")


@pytest.mark.parametrize(
    ("visible", "cut", "found"),
    [
        (None, False, "GPU-000"),
        ("1", False, "GPU-111"),
        ("GPU-1", False, "GPU-111"),
        ("GPU-111", True, "MIG-7"),
        ("MIG-7", True, "MIG-7"),
    ],
)
def test_the_gpu_is_the_one_that_cuda_computes_on(monkeypatch, visible, cut, found):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(cut=cut))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    gpu = nvml.find()
    assert (gpu.uuid, gpu.name) == (found, found)
    # And workers compute on no other one, whatever order CUDA counts in.
    assert environment({"CUDA_VISIBLE_DEVICES": "0,1"}, 1, "gpu", LANES["noop"])["CUDA_VISIBLE_DEVICES"] == found
    assert "CUDA_VISIBLE_DEVICES" not in environment({}, 1, "cpu", LANES["noop"])


def test_a_gpu_that_is_not_there_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-2")
    assert nvml.find() == "NVML finds no NVIDIA GPU (Not Found)"


def test_a_driver_that_does_not_tell_a_processs_memory_loses_no_measurement(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert nvml.find().process_memory(1) is None


def test_hidden_gpus_are_not_found(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert nvml.find() == "CUDA_VISIBLE_DEVICES hides every GPU"
