from fwbench import nvml
from fwbench.machine import physical_cores


def test_one_cpu_a_physical_core(tmp_path):
    for cpu, siblings in enumerate(["0,2", "1,3", "0,2", "1,3"]):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{siblings}\n")
    assert physical_cores({0, 1, 2, 3}, tmp_path) == (0, 1)
    assert physical_cores({2, 3}, tmp_path) == (2, 3)


def test_every_cpu_counts_where_the_kernel_does_not_tell(tmp_path):
    assert physical_cores({4, 5}, tmp_path) == (4, 5)


def test_hidden_gpus_are_not_found(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert nvml.find() == "CUDA_VISIBLE_DEVICES hides every GPU"
