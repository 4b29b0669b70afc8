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


def test_every_cpu_counts_where_the_kernel_does_not_tell(tmp_path):
    assert physical_cores({4, 5}, tmp_path) == (4, 5)


def test_an_accelerators_state_travels_as_json():
    state = AcceleratorState(
        clock=1980.0, throttle_reasons=("power cap",), used_memory=2**20, processes=(AcceleratorProcess(7, None),)
    )
    assert AcceleratorState.from_json(json.loads(json.dumps(state.to_json()))) == state
    assert AcceleratorState.from_json({}) == AcceleratorState()


@pytest.mark.parametrize(
    ("one", "changed"),
    [
        (MACHINE, {"kernel": "Linux 6.2"}),
        (MACHINE, {"memory": MACHINE.memory - 4096}),
        (MACHINE, {"cpus": (2, 3)}),
        (MACHINE, {"accelerator": "CUDA_VISIBLE_DEVICES hides all"}),
        (GPU, {"driver": "590"}),
        (GPU, {"power_limit": None}),
    ],
)
def test_what_makes_no_other_machine(one: Machine, changed):
    other = dataclasses.replace(one, **changed)
    assert (one.differences(other), other.differences(one)) == ((), ())


@pytest.mark.parametrize(
    ("one", "changed"),
    [
        (MACHINE, {"cpu": "Other CPU"}),
        (MACHINE, {"threads": 1}),
        (GPU, {"accelerator": "NVIDIA H100"}),
        (GPU, {"power_limit": 300.0}),
        (GPU, {"device": "cpu"}),
    ],
)
def test_what_makes_another_machine_is_named(one: Machine, changed):
    assert one.differences(dataclasses.replace(one, **changed)) == tuple(changed)
