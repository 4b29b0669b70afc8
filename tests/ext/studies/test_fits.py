"""The tables of epochs: at a run's end, and in a report, where every number is the record's."""

import dataclasses
import re
import statistics

import pytest

from fwbench.record.measurement import Failure, Measurement, Metric
from fwbench.record.workload import Workload
from fwbench.report import summary
from tests.unit import recorded
from tests.unit.recorded import metric, saved
from tests.unit.report import parsing
from tests.unit.report.test_golden import fits, other_formats, raw, tables  # noqa: F401 (fixtures)


def epochs(measurements, study=None):
    """The lines of the only table that is added to a run's end."""
    lines, *others = (table for table in summary.of_extensions(measurements, study, numbers=True) if table)
    assert not others
    return lines


def fitted(framework, seed=0, top1=0.9, **fields):
    times = {"first_epoch_time": 9.0, "epoch_time": 4.0, "epoch_wait_time": 1.0, "epoch_evaluation_time": 0.5}
    values = {**times, "throughput": 100.0, "host_peak_memory": 2.0**30, "train_loss": 0.5, "validation_top1": top1}
    metrics = {name: Metric(value, "test") for name, value in values.items()}
    workload = Workload(framework, "mlp", "fit", 64, seed=seed, data="digits", epochs=3, **fields)
    return Measurement(workload, samples=(9.0, 4.0, 4.0), metrics=metrics)


def test_epochs_have_a_table_of_their_own():
    calls, fit = recorded.measured("torch"), fitted("torch")
    assert summary.table([calls, fit]) == summary.table([calls])
    header, line = epochs([calls, fit])
    columns = dict(zip(re.split(r"\s{2,}", header), re.split(r"\s{2,}", line), strict=True))
    assert columns["first epoch"] == "9.00 s"
    assert columns["epoch"] == "4.00 s"
    assert (columns["waiting"], columns["evaluating"]) == ("25%", "12%")
    assert (columns["val. top-1"], columns["test top-1"]) == ("0.900", "-")
    assert columns["memory"] == "1.00 GiB"


def test_seeds_share_a_row_with_mean_and_standard_deviation():
    _, line = epochs([fitted("torch", seed, top1) for seed, top1 in enumerate((0.8, 0.9, 1.0))])
    assert "0.900±0.100" in line
    assert "3x3" in line


def test_a_variant_is_labelled_in_its_row():
    _, line, variant = epochs([fitted("jax"), fitted("jax", optimizer="sgd", variant="as-published")])
    assert "jax sgd (as-published)" in variant
    assert "as-published" not in line


def test_a_failed_fit_keeps_its_row():
    failed = dataclasses.replace(fitted("jax"), failure=Failure("crashed", "gone"))
    assert "crashed" in epochs([failed])[1]


def test_the_three_framework_study_ends_with_its_own_table():
    """Seconds after the warm-up, accuracy, and memory before and at its peak, in a row for each lane."""
    memory = {"host_initial_memory": 2.0**29, "device_initial_memory": 2.0**20, "device_peak_memory": 2.0**21}
    values = {**memory, "test_top1": 0.1}
    given = []
    for number, lane in enumerate(("tensorflow-xla", "torch-compile", "jax")):
        fit = fitted(lane)
        own = {
            name: Metric(value, "test", at_most=name == "device_peak_memory" and lane == "jax")
            for name, value in values.items()
        }
        training = {"epochs": [{"seconds": seconds} for seconds in (9.0, 1.0 + number, 1.0)]}
        given.append(dataclasses.replace(fit, metrics={**fit.metrics, **own}, training=training))
    gone = dataclasses.replace(fitted("tensorflow"), failure=Failure("unavailable", "no TensorFlow"))
    header, *lines = epochs([*given, gone], "simple-cnn")
    names = re.split(r"\s{2,}", header)
    shown = [dict(zip(names, re.split(r"\s{2,}", line), strict=False)) for line in lines]
    assert [(row["lane"], row["training"]) for row in shown[:3]] == [
        ("tensorflow-xla", "2.00 s"),
        ("torch-compile", "3.00 s"),
        ("jax", "4.00 s"),
    ]
    for row in shown[:3]:
        assert (row["warm-up"], row["test top-1"]) == ("9.00 s", "0.100")
        assert (row["RAM before"], row["RAM peak"]) == ("512 MiB", "1.00 GiB")
        assert row["VRAM before"] == "1.00 MiB"
    assert [row["VRAM peak"] for row in shown[:3]] == ["2.00 MiB", "2.00 MiB", "<= 2.00 MiB"]
    assert "unavailable" in lines[3]
    # Of other studies the table is the usual one.
    assert epochs(given, "mnist-mlp") == epochs(given)


@pytest.mark.parametrize("lane", ["torch", "jax"])
def test_epoch_times_are_medians_and_scores_means_over_seeds(tables, raw, lane):
    (row,) = [row for row in tables["epoch-time"].dicts() if row["lane"] == lane]
    seeds = fits(raw, lane)
    assert (row["epochs"], len(seeds)) == ("2x5", 2)
    times = {"first epoch [s]": "first_epoch_time", "epoch [s]": "epoch_time"}
    times |= {"throughput/s [1/s]": "throughput", "memory [B]": "host_peak_memory"}
    for column, name in times.items():
        assert float(row[column]) == statistics.median(one.value(name) for one in seeds)
    whole = statistics.median(one.value("epoch_time") for one in seeds)
    for column, name in {"waiting": "epoch_wait_time", "evaluating": "epoch_evaluation_time"}.items():
        assert float(row[column]) == statistics.median(one.value(name) for one in seeds) / whole
    scores = {"train loss": "train_loss", "val. loss": "validation_loss", "val. top-1": "validation_top1"}
    for column, name in {**scores, "test top-1": "test_top1"}.items():
        values = [one.value(name) for one in seeds]
        assert float(row[f"{column}"]) == statistics.mean(values)
        assert float(row[f"{column} SD"]) == statistics.stdev(values)


@pytest.mark.parametrize("lane", ["torch", "jax"])
def test_the_final_epoch_is_the_last_one(tables, raw, lane):
    (row,) = [row for row in tables["final-epoch"].dicts() if row["lane"] == lane]
    last = [one.extra["training"]["epochs"][-1] for one in fits(raw, lane)]
    assert float(row["last epoch [s]"]) == statistics.median(epoch["seconds"] for epoch in last)
    assert float(row["energy [J]"]) == 14.5
    assert float(row["val. top-5"]) == statistics.mean(one.value("validation_top5") for one in fits(raw, lane))


def test_every_epoch_has_its_row(tables, raw):
    rows = iter(tables["epochs"].dicts())
    for one in (one for one in raw if one.workload["mode"] == "fit"):
        for place, epoch in enumerate(one.extra["training"]["epochs"], 1):
            row = next(rows)
            assert (row["lane"], row["seed"]) == (one.workload["lane"], str(one.workload["seed"]))
            assert (row["run"], row["epoch"]) == ("1", str(place))
            assert float(row["epoch time [s]"]) == epoch["seconds"]
            for column in ("waiting", "computing", "evaluating"):
                assert float(row[f"{column} [s]"]) == epoch[column]
            assert float(row["energy [J]"]) == epoch["energy"]
            assert float(row["train loss"]) == epoch["train_loss"]
            assert float(row["train top-1"]) == epoch["train_top1"]
            for column, score in (("val. loss", "loss"), ("val. top-1", "top1"), ("val. top-5", "top5")):
                assert float(row[f"{column}"]) == epoch["validation"][score]
    assert next(rows, None) is None


@pytest.mark.parametrize("lane", ["torch", "jax"])
def test_training_time_leaves_out_the_warm_up_epoch(tables, raw, lane):
    (row,) = [row for row in tables["training-time"].dicts() if row["lane"] == lane]
    sums = [sum(epoch["seconds"] for epoch in one.extra["training"]["epochs"][1:]) for one in fits(raw, lane)]
    assert float(row["training [s]"]) == statistics.median(sums)
    assert float(row["RAM before [B]"]) == fits(raw, lane)[0].value("host_initial_memory")
    assert float(row["RAM peak [B]"]) == fits(raw, lane)[0].value("host_peak_memory")
    assert (row["VRAM before [B]"], row["VRAM peak [B]"]) == ("", "")


def test_seeds_show_their_standard_deviation(tables, other_formats):
    (row,) = [row for row in tables["epoch-time"].dicts() if row["lane"] == "jax"]
    for format_, found in other_formats.items():
        (texts,) = [texts for texts in found["epoch-time"].dicts() if texts["lane"] == "jax"]
        mean, sd = map(float, texts["train loss"].split("±"))
        assert abs(mean - float(row["train loss"])) < 0.00051, format_
        assert abs(sd - float(row["train loss SD"])) < 0.00051, format_


def test_epochs_alone(report):
    out = report(saved(recorded.fitted("torch"), recorded.fitted("jax", epochs=(20.0, 3.0, 2.0))))
    assert "No inference measured" in (out / "report.html").read_text()
    found = parsing.csv_files(out / "tables")
    assert {"epochs", "final-epoch", "training-time", "answers"} <= found.keys()
    assert not {"inference", "summary", "break-even"} & found.keys()


def test_a_single_epoch_has_no_steady_one(report):
    one = recorded.fitted("torch", epochs=(9.0, 4.0))
    training = {"epochs": one.training["epochs"][:1]}
    short = dataclasses.replace(one, training=training, metrics={"first_epoch_time": metric(9.0)}, samples=(9.0,))
    (row,) = parsing.csv_files(report(saved(short), formats="csv") / "tables")["epoch-time"].dicts()
    assert (row["first epoch [s]"], row["epoch [s]"]) == ("9.0", "")
