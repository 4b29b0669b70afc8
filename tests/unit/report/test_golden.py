"""Every number in every format is the record's: the files are parsed back and held against the record's own JSON."""

import json
import re

import pytest

from tests.unit.report import parsing
from tests.unit.report.conftest import GOLDEN


@pytest.fixture(scope="module")
def tables(golden):
    return parsing.csv_files(golden / "tables")


class Raw:
    """One benchmark of the record, by nothing but its JSON."""

    def __init__(self, benchmark):
        self.extra = benchmark["extra_info"]
        self.workload = self.extra["workload"]
        self.key = tuple(self.workload[name] for name in ("model", "mode", "batch_size", "lane"))

    def value(self, metric):
        return self.extra["metrics"].get(metric, {}).get("value")

    @property
    def compiling(self):
        return None if self.value("compile_time") is None else self.value("trace_time") + self.value("compile_time")


@pytest.fixture(scope="module")
def raw():
    return [Raw(benchmark) for benchmark in json.loads(GOLDEN.read_text())["benchmarks"]]


def number(text):
    return None if text == "" else float(text)


def by(raw, *keys):
    (found,) = [one for one in raw if one.key == keys]
    return found


CALLS = {f"p{percent} [s]": f"latency_p{percent}" for percent in (50, 95, 99)}
CALLS |= {"throughput/s [1/s]": "throughput", "memory [B]": "host_peak_memory", "J/sample [J]": "energy_per_sample"}


@pytest.mark.parametrize(("table", "rows"), [("inference", 9), ("training-steps", 4), ("harness", 2)])
def test_calls_are_the_records(tables, raw, table, rows):
    found = tables[table].dicts()
    assert len(found) == rows
    for row in found:
        if row["failure"]:
            assert (row["model"], row["lane"], row["failure"]) == ("vit_b_16", "jax", "crashed")
            assert {row[name] for name in (*CALLS, "compile [s]")} == {""}
            continue
        one = by(raw, row["model"], row["mode"], int(row["batch"]), row["lane"])
        for name, metric in CALLS.items():
            assert number(row[name]) == one.value(metric), (table, row["model"], name)
        assert number(row["compile [s]"]) == one.compiling
        if table == "harness":
            assert row["speed-up"] == ""
        else:
            eager = by(raw, *one.key[:3], "torch")
            assert float(row["speed-up"]) == one.value("throughput") / eager.value("throughput")


def fits(raw, lane):
    return sorted(
        (one for one in raw if one.workload["mode"] == "fit" and one.workload["lane"] == lane),
        key=lambda one: one.workload["seed"],
    )


def test_answers_are_ratios_of_the_records(tables, raw):
    rows = [row for row in tables["answers"].dicts() if row["mode"] != "fit"]
    assert len(rows) == 6
    for row in rows:
        key = (row["model"], row["mode"], int(row["batch"]))
        first, second = by(raw, *key, row["first"]), by(raw, *key, row["second"])
        ratio = first.value("throughput") / second.value("throughput")
        assert float(row["ratio"]) == ratio > 1
        # One process each: by chance half to twice the ratio.
        assert (float(row["low"]), float(row["high"]), row["level"]) == (ratio / 2, ratio * 2, "")
        assert row["answer"] == ("likely" if ratio > 2 else "undecided")
        quick, slow = sorted(one.value("latency_p50") for one in raw if one.key[:3] == key)
        if slow < 2 * quick:
            assert (row["least latency"], row["by, of latency"]) == ("", "")
        else:
            assert by(raw, *key, row["least latency"]).value("latency_p50") == quick
            assert float(row["by, of latency"]) == slow / quick
        small = by(raw, *key, row["least memory"])
        others = [one.value("host_peak_memory") for one in raw if one.key[:3] == key and one is not small]
        assert float(row["by, of memory"]) == others[0] / small.value("host_peak_memory") > 1


def test_every_lanes_ratio_is_of_the_baselines_throughput(tables, raw):
    rows = [row for row in tables["ratios"].dicts() if row["mode"] != "fit"]
    assert {row["lane"] for row in rows} == {"jax"}
    assert len(rows) == 6
    for row in rows:
        jax, torch = (by(raw, row["model"], row["mode"], int(row["batch"]), lane) for lane in ("jax", "torch"))
        assert float(row["ratio"]) == jax.value("throughput") / torch.value("throughput")
        assert (row["pairs"], row["from"], row["to"]) == ("1", "", "")
    (fit,) = [row for row in tables["ratios"].dicts() if row["mode"] == "fit"]
    jax, torch = ([one.value("throughput") for one in fits(raw, lane)] for lane in ("jax", "torch"))
    pairs = sorted(one / other for one, other in zip(jax, torch, strict=True))
    assert fit["pairs"] == "2"
    assert [float(fit["from"]), float(fit["to"])] == pytest.approx(pairs)
    assert float(fit["at"]) == 0.5


def test_what_failed_and_what_stands_behind_is_the_records(tables, raw):
    (failure,) = tables["failures"].dicts()
    told = [failure[name] for name in ("workload", "kind", "stage")]
    assert told == ["jax-vit_b_16-inference-b8", "crashed", "latency"]
    assert "SIGKILL" in failure["message"]
    stamps = {row["model"]: row for row in tables["parity"].dicts()}
    for model in ("resnet50", "mlp", "cnn"):
        of_model = [one for one in raw if one.workload["model"] == model]
        proof = next(one.extra["parity"]["proof"] for one in of_model if one.workload["lane"] == "jax")
        assert float(stamps[model]["output"]) == proof["errors"]["output"]
        assert stamps[model]["proof"] == "torch reference, jax proved"
        assert stamps[model]["weights"].startswith("the same")
        assert stamps[model]["arithmetic"] == "jax fp32, torch fp32"
    machine = {row["what"]: row["is"] for row in tables["fingerprint"].dicts()}
    assert machine["machine: cpu"] == "Intel(R) Xeon(R) Processor"
    assert machine["jax: version of jax"] == "0.10.2"


def columns(table):
    """A CSV file's columns and rows without what other formats show inside another cell."""
    names = [name.rpartition(" [")[0] or name for name in table.columns]
    kept = [place for place, name in enumerate(names) if not name.endswith(" SD") and name != "failure"]
    return [names[place] for place in kept], [[row[place] for place in kept] for row in table.rows]


def agree(exact, text):
    if exact == "":
        return text in ("-", "n/a", "never", "", "crashed")
    found = parsing.shown(text)
    if found is None:
        return exact == text
    value, half = found
    return abs(value - float(exact)) <= half


@pytest.fixture(scope="module")
def other_formats(golden):
    html, titles = parsing.page(golden / "report.html")
    markdown = parsing.markdown(golden / "tables.md")
    return {
        "html": html,
        **({"latex": parsing.latex(golden / "tables")} if parsing.LATEX else {}),
        "markdown": {key: markdown[title] for key, title in titles.items()},
    }


@pytest.mark.parametrize("name", ["html", pytest.param("latex", marks=parsing.needs_latex), "markdown"])
def test_every_cell_of_the_other_formats_is_the_csv_files(tables, other_formats, name):
    found = other_formats[name]
    assert found.keys() == tables.keys()
    for key, table in tables.items():
        names, rows = columns(table)
        told = [re.sub(r" ?/s\b", "", column) for column in names] if name == "latex" else names
        assert found[key].columns == told, key
        assert len(found[key].rows) == len(rows), key
        for exact, texts in zip(rows, found[key].rows, strict=True):
            for column, value, text in zip(names, exact, texts, strict=True):
                assert agree(value, text), (key, column, value, text)


def test_the_page_sorts_by_the_exact_numbers(tables, other_formats):
    for key, table in tables.items():
        numeric = other_formats["markdown"][key].numeric
        for exact, row in zip(other_formats["html"][key].exact, columns(table)[1], strict=True):
            for of_page, of_csv, is_number in zip(exact, row, numeric, strict=True):
                if is_number and of_csv:
                    assert float(of_page) == float(of_csv)
                else:
                    assert of_page == ""


def test_the_golden_record_covers_every_table_of_the_core(tables):
    assert tables.keys() >= {
        *("answers", "ratios", "inference", "training-steps", "harness", "failures"),
        *("parity", "sources", "fingerprint", "records"),
    }
