import json

from fwbench.machine import physical_cores
from fwbench.record.machine import AcceleratorProcess, AcceleratorState


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
