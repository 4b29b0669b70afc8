"""A GPU as NVML's own Python bindings tell of it, on a stand-in for NVIDIA's library."""

import pytest

from fwbench.compare.differences import in_words, mismatches
from fwbench.machine import Machine, versions
from tests.unit import nvml
from tests.unit.nvml import GPUS, SLICE

NOT_SUPPORTED, NO_PERMISSION, DRIVER_NOT_LOADED, FUNCTION_NOT_FOUND, GPU_IS_LOST = 3, 4, 9, 13, 15
RUNNING = "nvmlDeviceGetComputeRunningProcesses_v3"
DRAWING = "nvmlDeviceGetGraphicsRunningProcesses_v3"

_FIND = """
import dataclasses, json, os, sys, time
from pathlib import Path
from fwbench.machine import host, machine, nvml
from fwbench.meters.energy import counter
from fwbench.record.lanes import LANES
from fwbench.worker.client.starting import environment
from fwbench.worker.client.workers import Workers
gpu = nvml.find(Path("/nonexistent"))
"""


def told(variables, code, **more):
    """The value of the last line of code in which `gpu` is what NVML finds."""
    *lines, last = code.strip().splitlines()
    return nvml.told(variables | more, "\n".join([_FIND, *lines, f"print(json.dumps({last}))"]))


def state(variables):
    return told(variables, "gpu.state().to_json()")


@pytest.mark.parametrize(
    ("visible", "cut", "found"),
    [
        ("0", {}, GPUS[0]),
        ("1,0", {}, GPUS[1]),
        (GPUS[1], {}, GPUS[1]),
        ("GPU-1", {}, GPUS[1]),
        ("0", {"slices": 1}, SLICE),
        (GPUS[0], {"slices": 1}, SLICE),
        (SLICE, {"slices": 1}, SLICE),
        ("1", {"slices": 1}, GPUS[1]),
        # The slices before it were removed.
        ("0", {"slices": 1, "slice_index": 4}, SLICE),
    ],
)
def test_the_gpu_is_the_one_that_cuda_computes_on(nvml_stub, visible, cut, found):
    code = """
there, elsewhere = (environment(os.environ, 1, device, LANES["noop"]) for device in ("gpu", "cpu"))
[gpu.uuid, *(each["CUDA_VISIBLE_DEVICES"] for each in (there, elsewhere))]
"""
    # And workers compute on no other one, whatever order CUDA counts in.
    assert told(nvml_stub(**cut), code, CUDA_VISIBLE_DEVICES=visible) == [found, found, visible]


@pytest.mark.parametrize(
    ("visible", "found"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, [GPUS[0], GPUS[1]]),
        ({"CUDA_VISIBLE_DEVICES": "1,0"}, [GPUS[1], GPUS[0]]),
        ({"CUDA_VISIBLE_DEVICES": "1"}, [GPUS[1]]),
        # CUDA takes none that follows upon one that it does not know.
        ({"CUDA_VISIBLE_DEVICES": "1,-1,0"}, [GPUS[1]]),
    ],
)
def test_the_gpus_are_those_that_cuda_computes_on_in_its_order(nvml_stub, visible, found):
    code = """
uuids = [gpu.uuid for gpu in nvml.visible(8)]
[uuids, environment(os.environ, 1, "gpu", LANES["torch"], 2)["CUDA_VISIBLE_DEVICES"]]
"""
    assert told(nvml_stub(), code, **visible) == [found, ",".join(found)]


@pytest.mark.parametrize(
    ("slow", "variables", "found"),
    [
        ("cores", {}, [1, 0]),
        ("cores.1", {}, [0, 1]),
        ("cores", {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, [0, 1]),
        # A number is one of CUDA's, too.
        ("cores", {"CUDA_VISIBLE_DEVICES": "0"}, [1]),
        ("cores", {"CUDA_VISIBLE_DEVICES": "1"}, [0]),
        ("cores", {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, [1]),
        # Told by none, as by an older driver: NVML's order.
        ("nvmlDeviceGetNumGpuCores", {}, [0, 1]),
    ],
)
def test_beside_a_card_for_a_display_the_faster_one_is_measured_in_whichever_slot_it_is(
    nvml_stub, slow, variables, found
):
    """NVML counts in the order of the bus, CUDA the fastest first."""
    code = """
if "CUDA_VISIBLE_DEVICES" not in VARIABLES:
    del os.environ["CUDA_VISIBLE_DEVICES"]
[gpu.uuid for gpu in nvml.visible(8)]
"""
    cores = {"cores": 16896, "cores.1": 16896}
    slower = nvml_stub(**cores | {slow: 384 if slow in cores else FUNCTION_NOT_FOUND})
    assert told(slower, code.replace("VARIABLES", repr(variables)), **variables) == [GPUS[index] for index in found]


def test_each_rank_has_the_gpu_of_its_number_or_the_only_one_that_it_sees(nvml_stub):
    code = """
from types import SimpleNamespace
from fwbench.worker.process.job import own_gpu
ranks = [SimpleNamespace(local=0), SimpleNamespace(local=1)]
del os.environ["CUDA_VISIBLE_DEVICES"]
both = [nvml.find(number=own_gpu(rank)).uuid for rank in ranks]
os.environ["CUDA_VISIBLE_DEVICES"] = "1"
[both, nvml.find(number=own_gpu(ranks[1])).uuid]
"""
    assert told(nvml_stub(), code) == [list(GPUS), GPUS[1]]


def test_the_energy_of_several_gpus_is_their_sum(nvml_stub):
    code = """
both, one = counter("gpu", count=2), counter("gpu", number=1)
[both.name, both.read() > one.read() > 0, len(both.parts[-1]), counter("gpu", count=3)]
"""
    name, more, parts, lacking = told(nvml_stub(), code, CUDA_VISIBLE_DEVICES="0,1")
    assert name == "NVML total energy counter (whole GPU), sum over 2 devices"
    assert (more, parts) == (True, 2)
    assert lacking == "CUDA_VISIBLE_DEVICES names 2 of the machine's GPUs"


@pytest.mark.parametrize(
    ("visible", "state", "reason", "step"),
    [
        ("", {}, "CUDA_VISIBLE_DEVICES hides every GPU", "unset CUDA_VISIBLE_DEVICES"),
        ("-1", {}, "CUDA_VISIBLE_DEVICES hides every GPU", "unset CUDA_VISIBLE_DEVICES"),
        ("2", {}, "NVML finds no NVIDIA GPU 2 (Invalid Argument)", "nvidia-smi -L"),
        ("GPU-2", {}, "NVML finds no NVIDIA GPU GPU-2 (Not Found)", "nvidia-smi -L"),
        ("0", {"slices": 0}, "the GPU is cut into slices (MIG), and there is none", "nvidia-smi mig"),
        ("0", {"gpus": 0}, "NVML finds no NVIDIA GPU (Not Found)", "its driver"),
        ("0", {"nvmlInitWithFlags": DRIVER_NOT_LOADED}, "NVML finds no NVIDIA GPU (Driver Not Loaded)", "its driver"),
        ("0", {"nvmlDeviceGetName": GPU_IS_LOST}, "NVML finds no NVIDIA GPU (GPU is lost)", "its driver"),
    ],
)
def test_a_gpu_that_cannot_be_had_is_one_sentence_and_what_to_do(nvml_stub, visible, state, reason, step):
    variables = nvml_stub(**state)
    found = told(variables, "[gpu, gpu.next_step]", CUDA_VISIBLE_DEVICES=visible)
    assert found[0] == reason
    assert step in found[1]


@pytest.mark.parametrize(
    "files",
    [
        {"sys/bus/pci/devices/0000:00:01.0/vendor": "0x10de\n", "sys/bus/pci/devices/0000:00:01.0/class": "0x030200\n"},
        {"dev/nvidia0": ""},
        {"proc/driver/nvidia/gpus/0000:00:01.0/information": ""},
    ],
)
def test_a_gpu_that_linux_shows_and_whose_driver_is_silent_is_not_taken_for_none(nvml_stub, tmp_path, files):
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    variables = nvml_stub(nvmlInitWithFlags=DRIVER_NOT_LOADED)
    found = told(variables, f"gpu = nvml.find(Path({str(tmp_path)!r}))\n[gpu, gpu.next_step]")
    assert found[0] == "an NVIDIA GPU is here, but its driver does not answer (Driver Not Loaded)"
    assert "nvidia-smi" in found[1]


def test_other_devices_on_the_bus_are_no_gpus(nvml_stub, tmp_path):
    # NVIDIA's network card, and somebody else's display.
    for slot, (vendor, kind) in enumerate([("0x10de", "0x020000"), ("0x1234", "0x030000")]):
        device = tmp_path / f"sys/bus/pci/devices/{slot}"
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
        (device / "class").write_text(f"{kind}\n")
    variables = nvml_stub(nvmlInitWithFlags=DRIVER_NOT_LOADED)
    found = told(variables, f"nvml.find(Path({str(tmp_path)!r}))")
    assert found == "NVML finds no NVIDIA GPU (Driver Not Loaded)"


CALM = {
    **{"clock": 1980, "most_clock": 1980, "temperature": 34, "throttle_reasons": []},
    **{"power_limit": 700.0, "default_power_limit": 700.0},
    **{"utilisation": 0.0, "used_memory": 0, "processes": [], "graphics": []},
    **{"persistent": True, "compute_mode": "default", "ecc": True},
}


@pytest.mark.parametrize(
    ("machine", "changed"),
    [
        ({}, {}),
        ({"clock": 345, "temperature": 88}, {"clock": 345, "temperature": 88}),
        ({"power_limit": 500}, {"power_limit": 500.0}),
        ({"persistent": 0, "ecc": 0}, {"persistent": False, "ecc": False}),
        ({"compute_mode": 3}, {"compute_mode": "exclusive process"}),
        ({"utilisation": 97, "used_memory": 2**30}, {"utilisation": 0.97, "used_memory": 2**30}),
        # Idle, clocks set for applications, and clocks set for a display: settings, not throttling.
        ({"clock_event_reasons": "0x103"}, {}),
        ({"clock_event_reasons": "0x4"}, {"throttle_reasons": ["power cap"]}),
        ({"clock_event_reasons": "0x10"}, {"throttle_reasons": ["sync boost"]}),
        (
            {"clock_event_reasons": "0x68"},
            {"throttle_reasons": ["hardware slowdown", "thermal limit", "hardware thermal slowdown"]},
        ),
        (
            {"clock_event_reasons": "0x88"},
            {"throttle_reasons": ["hardware slowdown", "hardware power brake"]},
        ),
        (
            {"processes": "77:1024 78:na 79:0"},
            {"processes": [{"pid": 77, "memory": 1024}, {"pid": 78, "memory": None}, {"pid": 79, "memory": None}]},
        ),
        # A compositor is listed twice, and computes nothing that counts.
        (
            {"processes": "77:1024 80:512", "graphics": "80:512"},
            {"processes": [{"pid": 77, "memory": 1024}], "graphics": [{"pid": 80, "memory": 512}]},
        ),
    ],
)
def test_a_state_is_read_field_by_field(nvml_stub, machine, changed):
    assert state(nvml_stub(**machine)) == CALM | changed


def test_a_gpu_without_memory_of_its_own_has_the_hosts_and_is_no_dead_driver(nvml_stub):
    """As a GB10's, whose CPU and GPU share one memory."""
    code = "[gpu.uuid, gpu.memory, os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')]"
    found, memory, host = told(nvml_stub(nvmlDeviceGetMemoryInfo=NOT_SUPPORTED), code)
    assert (found, memory) == (GPUS[0], host)


@pytest.mark.parametrize(
    ("counted", "seconds"),
    [
        ({}, {}),
        ({"nvmlDeviceGetFieldValues": NO_PERMISSION, "held_74": 3}, {}),
        # An older driver counts heat as one.
        ({"held_74": 1.5, "held_75": 2}, {"power cap": 1.5, "thermal limit": 2.0}),
        (
            {"held_74": 1.5, "held_75": 0, "held_269": 4, "held_270": 2, "held_271": 1},
            {
                **{"power cap": 1.5, "thermal limit": 4.0, "hardware thermal slowdown": 2.0},
                **{"hardware power brake": 1.0, "hardware slowdown": 2.0},
            },
        ),
    ],
)
def test_the_seconds_for_which_clocks_were_held_down_are_those_that_the_driver_counts(nvml_stub, counted, seconds):
    assert told(nvml_stub(**counted), "gpu.held()") == seconds


@pytest.mark.parametrize("near", ["0x3", "0x1", None, hex(1 << 60)])
def test_workers_have_the_cpus_near_their_gpu_if_nvml_tells(nvml_stub, near):
    """A GPU of another socket than this process may use leaves it its own."""
    code = """
host.affinity, host.physical_cores = lambda: {0, 1, 2, 3}, lambda cpus: tuple(sorted(cpus))
here = host.machine()
[here.cpus, here.threads]
"""
    cpus, threads = told(nvml_stub(**({"near": near} if near else {})), code)
    assert cpus == {"0x3": [0, 1], "0x1": [0]}.get(near, [0, 1, 2, 3])
    assert threads == len(cpus)


def test_ranks_have_the_cpus_near_any_of_their_gpus(nvml_stub):
    code = """
from tests.unit.fakes import NO_PROJECT
host.affinity, host.physical_cores = lambda: set(range(8)), lambda cpus: tuple(sorted(cpus))
workers = Workers(host.machine(), "gpu", {}, NO_PROJECT)
[workers._cpus(count) for count in (1, 2)]
"""
    variables = nvml_stub(**{"near": "0x3", "near.1": "0x30"})
    assert told(variables, code, CUDA_VISIBLE_DEVICES="0,1") == [[0, 1], [0, 1, 4, 5]]


def test_a_slices_clocks_and_power_are_its_gpus(nvml_stub):
    sliced = nvml_stub(slices=1, power_limit=500, clock_event_reasons="0x4")
    assert state(sliced) == CALM | {"power_limit": 500.0, "throttle_reasons": ["power cap"], "utilisation": None}


def test_what_the_driver_does_not_tell_is_none(nvml_stub):
    queries = ("ClockInfo", "MaxClockInfo", "Temperature", "EnforcedPowerLimit", "PowerManagementDefaultLimit")
    more = ("CurrentClocksEventReasons", "UtilizationRates", "MemoryInfo_v2", "PersistenceMode", "ComputeMode")
    silent = {f"nvmlDeviceGet{name}": NOT_SUPPORTED for name in (*queries, *more, "EccMode")}
    assert state(nvml_stub(**silent, **dict.fromkeys((RUNNING, DRAWING), NO_PERMISSION))) == dict.fromkeys(CALM)


@pytest.mark.parametrize(
    ("machine", "memory"),
    [
        ({"processes": f"77:1024 own:{2**29}"}, 2**29),
        # In a container the driver counts processes otherwise, or gives the process's own number without its memory.
        ({"processes": f"4000000:{2**29}"}, None),
        ({"processes": "own:0"}, None),
        ({"processes": "own:na"}, None),
        ({"processes": ""}, None),
        ({RUNNING: NO_PERMISSION}, None),
        ({RUNNING: FUNCTION_NOT_FOUND}, None),
    ],
)
def test_a_processs_memory_is_told_or_unknown_and_never_zero(nvml_stub, machine, memory):
    assert told(nvml_stub(**machine), "gpu.process_memory(os.getpid())") == memory


def test_energy_is_in_joules_and_moves_in_the_counters_steps(nvml_stub):
    code = """
seen = []
while len({energy for _, energy, _ in seen}) < 3:
    before = time.monotonic()
    seen.append((before, gpu.energy(), time.monotonic()))
seen
"""
    seen = told(nvml_stub(power=250, energy_step=0.2), code)
    # The counter shows the last whole step, of 50 J.
    assert all(250 * before - 51 < energy <= 250 * after for before, energy, after in seen)
    assert {energy % 50 for _, energy, _ in seen} == {0.0}
    assert len(seen) > 3


def test_a_counter_that_starts_again_makes_no_negative_energy(nvml_stub):
    # Every 1.9 s: once while an idle and a loaded window of 1 s each are read.
    _, measured = run(nvml_stub(power=100, energy_step=0.001, energy_wrap=190), window=1.0)
    assert measured["failure"] is None
    assert measured["samples"]
    for name in ("energy_per_sample", "energy_per_sample_net", "power_idle", "power_load"):
        assert "the GPU's energy counter fell from" in measured["metrics"][name]["reason"]


def test_an_energy_counter_that_fails_while_it_is_read_loses_energy_alone(nvml_stub):
    failing = {"FAILING_STAGE": "energy", "FAILURE": f"nvmlDeviceGetTotalEnergyConsumption={GPU_IS_LOST}\n"}
    _, measured = run(nvml_stub(energy_step=0.001) | failing, window=1.0)
    assert measured["failure"] is None
    assert measured["samples"]
    for name in ("energy_per_sample", "power_load", "energy_period"):
        assert measured["metrics"][name]["reason"] == "the GPU's energy counter could not be read (GPU is lost)"


def test_a_slice_has_no_energy_counter(nvml_stub):
    assert told(nvml_stub(slices=1), "counter('gpu')").endswith("has no energy counter (Not Supported)")


RUN = """
from fwbench.record.workload import Workload
from fwbench.suite.profiles import PROFILES
from tests.unit.fakes import NO_PROJECT
here = machine()
protocol = dataclasses.replace(
    PROFILES["quick"], warmup_time=0.0, min_rounds=5, max_time=0.0, throughput_time=0.01, energy_time=WINDOW
)
workers = Workers(here, here.device, {}, NO_PROJECT)

def tell(stage):
    if stage == os.environ.get("FAILING_STAGE"):
        # The counter is found, and being polled by then.
        time.sleep(0.4)
        state = Path(os.environ["NVML_STUB"])
        # The first line of a key counts, and a process may be reading.
        changed = state.with_name("changed")
        changed.write_text(os.environ["FAILURE"] + state.read_text())
        changed.replace(state)

measured = workers.measure(Workload(LANE, MODEL, device=here.device), protocol, tell)
workers.close()
[here.to_json(), measured.to_json()]
"""


def run(variables, lane="noop", model="noop", window=0.0):
    """The machine's and the measurement's records of a run on the GPU."""
    code = RUN.replace("WINDOW", str(window)).replace("LANE", repr(lane)).replace("MODEL", repr(model))
    return told(variables, code)


@pytest.mark.slow
def test_a_run_measures_memory_and_energy_of_the_gpu(nvml_stub):
    machine, measured = run(nvml_stub(processes=f"own:{2**29}", energy_step=0.01, power=250), window=1.0)
    assert (machine["device"], machine["accelerator"]) == ("gpu", "NVIDIA H100 80GB HBM3")
    assert (machine["driver"], machine["accelerator_memory"]) == ("580.95.05", 80 * 2**30)
    assert measured["failure"] is None
    assert measured["metrics"]["process_device_memory"]["value"] == 2**29
    # Wide, for the clock is read beside the counter on a machine that may be busy.
    assert 125 < measured["metrics"]["power_idle"]["value"] < 500
    assert 125 < measured["metrics"]["power_load"]["value"] < 500


def test_a_power_limit_that_was_changed_makes_another_machine(nvml_stub):
    before, after = (Machine(**told(nvml_stub(power_limit=limit), "machine().to_json()")) for limit in (700, 500))
    assert mismatches(before, before) == ()
    assert in_words(mismatches(before, after)) == "power_limit differs: 700.0 W in the baseline, 500.0 W here"


@pytest.mark.slow
def test_in_a_container_that_hides_it_a_processs_memory_is_absent_and_says_why(nvml_stub):
    for hidden in ("own:0", f"4000000:{2**29}"):
        _, measured = run(nvml_stub(processes=hidden))
        memory = measured["metrics"]["process_device_memory"]
        assert (memory["value"], memory["reason"]) == (None, "the driver does not state it for this process")


def test_a_run_falls_back_to_the_cpu_where_the_driver_is_silent(nvml_stub):
    machine, measured = run(nvml_stub(nvmlInitWithFlags=DRIVER_NOT_LOADED))
    assert machine["device"] == "cpu"
    assert "(Driver Not Loaded)" in machine["accelerator"]
    assert measured["failure"] is None


@pytest.mark.slow
@pytest.mark.skipif(not versions(("torch",)), reason="torch is not installed")
def test_a_framework_that_cannot_use_the_gpu_fails_with_one_sentence_and_no_numbers(nvml_stub):
    _, measured = run(nvml_stub(), "torch", "mlp")
    assert measured["failure"]["kind"] == "unavailable"
    assert "GPU" in measured["failure"]["message"]
    assert measured["metrics"] == {}
