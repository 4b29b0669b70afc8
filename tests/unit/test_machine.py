import dataclasses
import json

import pytest

from fwbench.machine import physical_cores
from fwbench.record.machine import AcceleratorProcess, AcceleratorState, Machine
from tests.unit.recorded import MACHINE

GPU = dataclasses.replace(MACHINE, device="gpu", accelerator="NVIDIA A100", driver="580", power_limit=400.0)


def test_one_cpu_a_physical_core(tmp_path):
    for cpu, siblings in enumerate(["0,2", "1,3", "0,2", "1,3"]):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{siblings}\n")
    assert physical_cores({0, 1, 2, 3}, tmp_path) == (0, 1)
    assert physical_cores({2, 3}, tmp_path) == (2, 3)
    # Every CPU counts where the kernel does not tell.
    assert physical_cores({4, 5}, tmp_path) == (4, 5)


def test_an_accelerators_state_travels_as_json():
    state = AcceleratorState(
        clock=1980.0, throttle_reasons=("power cap",), used_memory=2**20, processes=(AcceleratorProcess(7, None),)
    )
    assert AcceleratorState.from_json(json.loads(json.dumps(state.to_json()))) == state
    assert AcceleratorState.from_json({}) == AcceleratorState()


@pytest.mark.parametrize(
    ("one", "changed", "differs"),
    [
        (MACHINE, {"kernel": "Linux 6.2"}, False),
        (MACHINE, {"memory": MACHINE.memory - 4096}, False),
        (MACHINE, {"cpus": (2, 3)}, False),
        (MACHINE, {"accelerator": "CUDA_VISIBLE_DEVICES hides all"}, False),
        (GPU, {"driver": "590"}, False),
        (GPU, {"power_limit": None}, False),
        (MACHINE, {"cpu": "Other CPU"}, True),
        (MACHINE, {"threads": 1}, True),
        (GPU, {"accelerator": "NVIDIA H100"}, True),
        (GPU, {"power_limit": 300.0}, True),
        (GPU, {"device": "cpu"}, True),
    ],
)
def test_what_makes_another_machine_is_named(one: Machine, changed, differs):
    other = dataclasses.replace(one, **changed)
    named = tuple(changed) if differs else ()
    assert (one.differences(other), other.differences(one)) == (named, named)
