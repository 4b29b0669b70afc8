"""The table of workloads over several devices, over records."""

import dataclasses

from fwbench.compare.cases import Case, Setting, cases
from fwbench.ext.cluster import scaling
from fwbench.report import contents
from tests.unit import recorded
from tests.unit.report.parsing import texts


def speeds(devices, batch_size, *rates, **fields):
    given = {"devices": devices, "settings": {"cpus": [0, 1]}, **fields}
    return [recorded.measured("torch", "mlp", "train_step", batch_size, throughput=rate, **given) for rate in rates]


def scaling_of(*runs):
    """The rows of the table of several devices, over runs of one measurement each."""
    found = {}
    for number, measurements in enumerate(runs):
        for case in cases(measurements, number):
            known = found.get(case.workload, Case(case.workload))
            found[case.workload] = dataclasses.replace(known, replicates=(*known.replicates, *case.replicates))
    return texts(scaling.table(list(found.values())))


def test_efficiency_is_throughput_over_as_many_times_that_of_one_device():
    (weak,) = scaling_of([*speeds(1, 8, 100.0), *speeds(2, 16, 150.0)])
    assert (weak["scaling"], weak["efficiency"], weak["per device/s"], weak["batch"]) == ("weak", "75%", "75.0", "16")
    (strong,) = scaling_of([*speeds(1, 8, 100.0), *speeds(2, 8, 120.0)])
    assert (strong["scaling"], strong["efficiency"]) == ("strong", "60%")
    both = scaling_of([*speeds(1, 8, 100.0), *speeds(1, 4, 80.0), *speeds(2, 8, 120.0)])
    assert [(row["scaling"], row["efficiency"]) for row in both] == [("weak", "75%"), ("strong", "60%")]


def test_efficiency_has_the_interval_of_pairs_of_processes():
    runs = [[*speeds(1, 8, 100.0), *speeds(2, 16, rate)] for rate in (150.0, 160.0, 170.0)]
    (row,) = scaling_of(*runs)
    assert (row["from"], row["to"], row["at"], row["efficiency"]) == ("75%", "85%", "75%", "80%")


def test_efficiency_is_absent_with_its_reason():
    (row,) = scaling_of([*speeds(2, 16, 150.0), *speeds(1, 4, 80.0)])
    assert row["efficiency"] == "no record of one device at batch 8 or 16"
    (row,) = scaling_of([*speeds(2, 16, 150.0, parity={"weights": "other"}), *speeds(1, 8, 80.0)])
    assert row["efficiency"] == "other weights"


def test_threads_that_ranks_share_do_not_keep_them_from_being_compared():
    alone = recorded.measured("torch", batch_size=8, settings={"OMP_NUM_THREADS": "2", "cpus": [0, 1]})
    ranks = recorded.measured("torch", batch_size=16, devices=2, settings={"OMP_NUM_THREADS": "1", "cpus": [0, 1]})
    (row,) = scaling_of([alone, ranks])
    assert row["efficiency"] == "50%"


def test_a_report_of_several_devices_is_whole(tmp_path):
    measurements = [*speeds(1, 8, 100.0), *speeds(2, 16, 150.0), *[recorded.fitted(devices=2), recorded.fitted()]]
    settings = Setting(recorded.MACHINE, "quick", {}, (), tuple(cases(measurements)))
    keys = [table.key for table in contents.tables(settings, "torch")]
    assert "scaling" in keys
    assert contents.remarks(settings)
