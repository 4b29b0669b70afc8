"""Records as nobody writes them: refused in a sentence or read right, and nothing unsafe on any way out.

A real run is damaged in some places, as JSON or as bytes, and goes through whatever reads records. The cases are the
same in every run. Many more, and others for each seed:

    python -m pytest tests/unit/test_fuzz.py -m fuzz --hypothesis-seed=1
"""

import contextlib
import copy
import csv as csv_module
import functools
import io
import json
import operator
import tempfile
import unicodedata
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fwbench.commands import report
from fwbench.compare.criteria import CRITERIA
from fwbench.compare.saved import compare
from fwbench.errors import UserError
from fwbench.plugin.plan import Plan, estimates
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.machine import AcceleratorProcess, AcceleratorState
from fwbench.record.measurement import BEFORE, Measurement, Moment
from fwbench.record.reading import read
from fwbench.report import page, verdicts
from fwbench.report.formats import csv, markdown
from fwbench.suite.profiles import PROFILES
from tests.unit.recorded import MACHINE, failed, fitted, journal, measured, metric, plain, saved
from tests.unit.shared import extension

LATEX, TRENDS, HISTORY = map(extension, ("studies.latex", "history.trends", "history.page"))

THRESHOLDS = {name: criterion.saved for name, criterion in CRITERIA.items() if criterion.saved}

# A number of too many digits, which JSON's writer cannot write.
DIGITS = "@@digits@@"

# Each has been in a record that somebody sent, or could be.
JUNK = (
    *(None, True, False, -1, 0, 1, 2**53, 2**63, 10**400, DIGITS, -0.0, 0.5, 1e-320, 5e-324, 1e30, 1e308, -1e308),
    *(float("nan"), float("inf"), float("-inf"), "", "x", "\ud800", "a\udc00", "x" * 5000, "1", "NaN", "\0", "\n\n"),
    *("\x1b[2J\x1b]0;x\x07", "\u202egnp.exe", "\u2066x", "=1+cmd|' /C calc'!A0", "@org/team #1", "<script>", "| a |"),
    *(r"\input{x}", "--help", "; rm -rf ~", "$(id)", "-", "1.", "\ufeff", "\u2028"),
    *([], {}, [1], [None], [[]], {"a": 1}, {"": {}}, {"a": {"b": {"c": [1, {"d": None}]}}}, [0.0] * 50, ["x"] * 3),
)


def rich(lane, **fields):
    """A measurement that has something of everything."""
    state = AcceleratorState(
        1200.0, temperature=40.0, throttle_reasons=("power cap",), used_memory=5, processes=(AcceleratorProcess(7, 9),)
    )
    program = Fingerprint(
        form="HLO",
        digest="abc",
        operators={"add": 1},
        dtypes={"float32": {"add": 1}},
        flops=8.0,
        memory=10.0,
        bytes_accessed=1e6,
    )
    return measured(
        lane,
        processes=({"latency": 0.25, "throughput": 100.0}, {"latency": 0.26, "throughput": 98.0}),
        settings={"cpus": [0, 1], "OMP_NUM_THREADS": "2", "caution": "slow path", "also_imported": ["jax"]},
        parity={
            "weights": "abc",
            "probe": {"matmul": {"error": 1e-7, "arithmetic": "fp32"}},
            "proof": {"framework": lane, "state": "proved", "errors": {"output": 1e-14}, "versions": {lane: "1.0"}},
        },
        metrics={
            "latency_p50": metric(0.25),
            "host_peak_memory": metric(1e9),
            "compile_time": metric(1.5),
            "trace_time": metric(0.5),
            "other_load": metric(0.01),
            "matrix_product_rate": metric(1e11, "MKL; float32"),
            "compute_ceiling": metric(1e11, "MKL; float32"),
            "memory_bandwidth": metric(1e10),
            "model_flops": metric(1e8),
        },
        accelerator=(Moment(BEFORE, state), Moment("after latency", state)),
        program=program,
        stages={"build": 0.5, "latency": 1.0},
        overhead_s=0.1,
        start_s=0.01,
        versions={lane: "1.0"},
        duet={"screening": [{"seconds": 1.0}]},
        after_crash=None,
        **fields,
    )


@functools.cache
def whole():
    """A real run, small, as JSON: a saved file, and a journal as a list of lines."""
    made = [
        *(rich(lane) for lane in ("torch", "jax")),
        *(fitted(lane, seed=seed) for lane, seed in (("torch", 0), ("torch", 1), ("jax", 0))),
        measured("torch", "vit_b_16", "train_step"),
        failed(),
    ]
    record = saved(*made)
    record["benchmarks"].append(plain())
    record["machine_info"]["cpu"] = {"brand_raw": "Some CPU"}
    return record, journal(*made)


def paths(value, at=()):
    """The places of everything in a piece of JSON."""
    yield at
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield from paths(each, (*at, key))


VALUES = st.one_of(st.sampled_from(JUNK), st.text(max_size=20), st.floats(), st.integers())


@st.composite
def spoilt(draw, whole):
    """A copy of a piece of JSON with some damage, and the places of it."""
    value, places, damage = json.loads(json.dumps(whole)), tuple(paths(whole))[1:], []
    for place in draw(st.lists(st.sampled_from(places), min_size=1, max_size=3)) if places else ():
        *parents, last = place
        try:
            holder = functools.reduce(operator.getitem, parents, value)
            inner = holder[last]
        except (KeyError, IndexError, TypeError):
            continue  # Gone by what was done before.
        if not isinstance(holder, dict | list):
            continue
        damage.append(place)
        what = draw(st.sampled_from(("replace", "replace", "replace", "delete", "add", "wrap", "copy")))
        if what == "replace":
            # Junk is shared by all cases.
            holder[last] = copy.deepcopy(draw(VALUES))
        elif what == "delete":
            del holder[last]
        elif what == "wrap":
            holder[last] = functools.reduce(lambda inner, _: [inner], range(draw(st.sampled_from((1, 30)))), inner)
        elif what == "copy":
            holder[last] = copy.deepcopy(functools.reduce(operator.getitem, draw(st.sampled_from(places)), whole))
        elif isinstance(holder, list):
            holder.insert(last, inner)
        else:
            holder[draw(st.one_of(st.sampled_from(("workload", "__class__", "\ud800", "")), st.text(max_size=5)))] = 1
    return value, damage


def as_lines(*values):
    """Pieces of JSON, one a line."""
    return "".join(f"{json.dumps(value)}\n" for value in values).replace(f'"{DIGITS}"', "9" * 5000)


@st.composite
def bytes_of(draw, text):
    """A text as bytes, some of which may be other ones."""
    data = text.encode("utf-8", "surrogatepass")
    for _ in range(draw(st.sampled_from((0, 0, 0, 1, 3)))):
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(st.binary(max_size=8)) + data[at + draw(st.sampled_from((0, 1, 50, len(data)))) :]
    return data


@st.composite
def damaged(draw):
    """Whether a record is a journal, the places of its damage (None: it is of the bytes), and its file's content."""
    is_journal = draw(st.booleans())
    record, places = draw(spoilt(whole()[is_journal]))
    text = as_lines(*(record if is_journal else [record]))
    data = draw(bytes_of(text))
    return is_journal, places if data == text.encode() else None, data


def is_clean(text):
    """Whether no character is one that a terminal would obey, or that turns the direction of what follows."""
    shown = text.replace("\n", "")
    return shown.isprintable() or not any(unicodedata.category(character).startswith("C") for character in shown)


def check(is_journal, places, data, figures=False):
    """One case: read, and whatever is made of what was read."""
    with file_of(data, "journal/x.jsonl" if is_journal else "x.json") as path:
        good = read_whole(is_journal)
        try:
            record = read(path)
        except UserError as error:
            sentence = str(error)
            assert is_clean(sentence)
            assert len(sentence.splitlines()) == 1
            assert len(sentence) < 700
            # A file is refused for what is wrong with the file.
            assert not within_benchmarks(is_journal, places)
            return
        if within_benchmarks(is_journal, places):
            untouched = [m for m in good.measurements if m.workload.id not in touched(is_journal, places)]
            assert [m for m in untouched if m not in record.measurements] == []
        consume(record, good, path.parents[is_journal], figures)


def within_benchmarks(is_journal, places):
    """Whether each place lies in a single benchmark: what comes or goes as a whole moves those after it."""
    if is_journal:
        return places is not None and all(len(place) > 1 and place[0] != 0 for place in places)
    return places is not None and all(len(place) > 2 and place[0] == "benchmarks" for place in places)


def touched(is_journal, places):
    """The workloads of the benchmarks that were damaged."""
    record = whole()[is_journal]
    numbers = {place[0] if is_journal else place[1] for place in places}
    entries = record if is_journal else record["benchmarks"]
    found = set()
    for number in numbers:
        workload = entries[number].get("workload") or entries[number]["extra_info"].get("workload")
        if workload:
            found.add(Measurement.from_json({"workload": workload}).workload.id)
    return found


@contextlib.contextmanager
def file_of(data, name="x.json"):
    """A file of this content, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        yield path


@functools.cache
def read_whole(is_journal):
    record = whole()[is_journal]
    with file_of(as_lines(*(record if is_journal else [record])).encode(), f"x.json{'l' * is_journal}") as path:
        return read(path)


def consume(record, good, out, figures):
    """Report, comparison, history and plan of a record."""
    try:
        sections = report.sections([record], out)
    except UserError:
        sections = []
    for section in sections:
        told = [section.heading, *section.headline, *section.remarks]
        text = markdown.document("x", [(section.heading, told, section.tables)])
        assert is_clean(text)
        for table in section.tables:
            rows = list(csv_module.reader(io.StringIO(csv.write(table))))
            formulas = ("=", "@", "+", "\t", "\r")
            assert not [cell for row in rows for cell in row if cell.startswith(formulas) or not is_clean(cell)]
            if LATEX:
                assert LATEX.write(table, table.key, "x").isascii()
                LATEX.write_narrow(table, table.key, "x", set())
        if figures:
            from fwbench.report import figures as drawn

            for drawing in section.drawings:
                drawn.save(drawing, section.svg(drawing))
        else:
            vars(section)["drawings"] = []
    if parts := [section for section in sections if section.setting]:
        assert is_clean(page.write("x", parts, None).replace("\t", " "))
    for base, head in ((record, good), (good, record), (record, record)):
        outcome = compare(base, head, THRESHOLDS, earlier=[good, record])
        assert all(is_clean(line) and "\n" not in line for line in verdicts.lines(outcome))
        assert is_clean(verdicts.markdown(outcome))
        # What is damaged never makes a gate pass.
        assert outcome.exit_code or not record.damaged
    for one in TRENDS.histories([good, record]) if TRENDS else ():
        assert all(is_clean(line) and "\n" not in line for line in HISTORY.lines(one))
        if figures:
            assert is_clean(HISTORY.page([one], record.told).replace("\t", " "))
    workloads = [m.workload for m in good.measurements]
    for duet in (False, True):
        benchmarks = {workload.id: (workload, PROFILES["quick"]) for workload in workloads}
        assert is_clean(Plan(*estimates(benchmarks, out, MACHINE, duet=duet), duet).told())


PLAIN = settings(
    max_examples=60, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)


@PLAIN
@given(damaged())
def test_a_damaged_record_is_refused_in_a_sentence_or_read_right(case):
    check(*case)


@pytest.mark.fuzz
@settings(PLAIN, max_examples=10_000, derandomize=False)
@given(damaged(), st.integers(0, 49))
def test_ten_thousand_damaged_records(case, figures):
    check(*case, figures=figures == 0)
