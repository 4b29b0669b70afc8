"""What `fwbench doctor --json FILE` says of a GPU."""

import re
from pathlib import Path

from fwbench.machine import nvml
from tests.unit.test_nvml import DRIVER_NOT_LOADED, NOT_SUPPORTED, told

ANSWERS = "from fwbench.ext.trials.sending import answers\nanswers()"


def test_all_that_nvml_answers_is_told_errors_included(nvml_stub):
    variables = nvml_stub(graphics=f"70:{2**28}", nvmlDeviceGetEccMode=NOT_SUPPORTED)
    found = told(variables, ANSWERS)
    assert found["GetDriverVersion"] == "580.95.05"
    assert found.keys() >= {"GPU 0", "GPU 1"}
    first = found["GPU 0"]
    assert (first["Name"], first["ClockInfo"]) == ("NVIDIA H100 80GB HBM3", "1980")
    assert "Not Supported" in first["EccMode"]
    assert "70" in first["GraphicsRunningProcesses_v3"]
    # Of what the library lacks, that it does.
    assert "Function Not Found" in first["DisplayActive"]
    # Each query that is read elsewhere is among them.
    read = set(re.findall(r"(?:nvmlDeviceGet|(?:ask|_told|_processes)\(\")(\w+)", Path(nvml.__file__).read_text()))
    handles = {name for name in read if "Handle" in name or name in ("Count", "UUID")}
    assert read - handles - first.keys() == set()
    silent = told(nvml_stub(nvmlInitWithFlags=DRIVER_NOT_LOADED), ANSWERS)
    assert silent == {"error": "Driver Not Loaded"}
