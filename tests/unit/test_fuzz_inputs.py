"""What fwbench reads, as nobody writes it: journals line by line, duets, self-tests, stores, lists, events, weights.

Each is refused in a sentence, or what is whole in it is read. An hour of it (it ends at the first fault, and its seed
makes the same cases again):

    end=$((SECONDS + 3600)); seed=0
    while [ $SECONDS -lt $end ] && python -m pytest tests/unit/test_fuzz_inputs.py tests/unit/test_fuzz.py -m fuzz \
        -p no:randomly -q --hypothesis-seed=$((++seed)); do :; done; echo "seed $seed"
"""

import copy
import functools
import json
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fwbench.commands.audit import pairs
from fwbench.compare import evidence
from fwbench.compare.criteria import thresholds
from fwbench.compare.duet import Duet
from fwbench.compare.duet_outcome import outcome
from fwbench.compare.findings import Finding, Outcome, Verdict
from fwbench.errors import UserError
from fwbench.gates import kept
from fwbench.machine.facts import CEILINGS, Facts, content, metrics
from fwbench.machine.facts import asked as asked_of
from fwbench.models import Model, ModelError, checkpoint
from fwbench.models.inputs import normal
from fwbench.parity import store
from fwbench.plugin import resuming
from fwbench.record import journal as journals
from fwbench.record.measurement import Metric
from fwbench.record.reading import each, read
from fwbench.report import outcome_file, verdicts
from fwbench.suite.profiles import PROFILES
from tests.unit.recorded import MACHINE, journal, measured
from tests.unit.shared import extension
from tests.unit.test_fuzz import PLAIN, VALUES, consume, is_clean, paths, read_whole

GITHUB = extension("ci.github")

LONG = settings(PLAIN, max_examples=3_000, derandomize=False)


@st.composite
def spoilt(draw, whole):
    """A piece of JSON with some of its places replaced, removed, wrapped or doubled."""
    value = json.loads(json.dumps(whole))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.sampled_from(tuple(paths(value))[1:] or ((),)))
        if not at:
            break
        holder = functools.reduce(lambda inner, key: inner[key], at[:-1], value)
        what = draw(st.sampled_from(("replace", "replace", "remove", "wrap", "double")))
        if what == "remove":
            del holder[at[-1]]
        elif what == "wrap":
            holder[at[-1]] = [holder[at[-1]]]
        elif what == "double" and isinstance(holder, list):
            holder.append(holder[at[-1]])
        else:
            # Junk is shared by all cases.
            holder[at[-1]] = copy.deepcopy(draw(VALUES))
    return value


@st.composite
def bytes_of(draw, text):
    """A text as bytes, some of which may be other ones."""
    data = text.encode("utf-8", "surrogatepass")
    for _ in range(draw(st.sampled_from((0, 0, 1, 3)))):
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(st.binary(max_size=6)) + data[at + draw(st.sampled_from((0, 1, 40))) :]
    return data


@st.composite
def lines_of(draw, whole):
    """A journal's lines, some spoilt, doubled, removed, or in another order; the first is spoilt seldom."""
    first, *rest = whole
    lines = draw(st.lists(st.sampled_from(rest), max_size=2 * len(rest)))
    lines = [draw(spoilt(line)) if draw(st.integers(0, 3)) == 0 else line for line in lines]
    first = draw(spoilt(first)) if draw(st.integers(0, 9)) == 0 else first
    return draw(bytes_of("".join(json.dumps(line) + "\n" for line in (first, *lines))))


@functools.cache
def two_runs():
    """Lines of two journals, one of which went on with the other."""
    turns = tuple({"begun": float(number), "call": [0.5], "latency": [0.5]} for number in range(3))
    of = [measured(lane, batch_size=size, stages={"latency": size}) for lane in ("torch", "jax") for size in (1, 2)]
    more = [measured("torch", stages={"latency": 1}, turns=turns), of[2].beside(of[3])]
    return [*journal(*of), *journal(*more)[1:]]


def asked(read, *arguments, error=UserError):
    """What a function returns; or None, and the sentence with which it refuses."""
    try:
        return read(*arguments), ""
    except error as refusal:
        return None, str(refusal)


def check_lines(data):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        path = out / "journal" / "x.jsonl"
        path.parent.mkdir()
        path.write_bytes(data)
        journals.newest(path.parent)
        record, sentence = asked(read, path)
        assert is_clean(sentence)
        if record is None:
            return
        assert len(
            {(m.workload, *m.stages.items(), str(m.metrics), str(m.failure)) for m in record.measurements}
        ) == len(record.measurements)
        consume(record, read_whole(True), out, False)


THRESHOLDS = thresholds("duet")


@functools.cache
def duet_lines():
    def line(number, stage="screening"):
        sides = ("base", "head")
        pair = {
            "differences": {"latency": 0.001 * number, "cpu_time": 0.0, "program_memory": 0.0},
            "rounds": {side: [0.1, 0.2] for side in sides},
            "values": {side: {"latency": 0.1, "cpu_time": 0.1, "program_memory": 1e6} for side in sides},
            "described": {
                side: {
                    "settings": {},
                    "versions": {"torch": "2.0"},
                    "sources": {"a.py": "x"},
                    "program": {"form": "operators", "digest": side, "operators": {"add": 1}},
                }
                for side in sides
            },
            "drift": 0.0,
            "seconds": 2.0,
            "flags": "",
            "unfit": [],
        }
        return {"stage": stage, "workload": measured().workload.to_json(), "pair": pair}

    return [
        {"schema": 1, "started": "2026-11-21T09:05:35+00:00"},
        *(line(n) for n in range(4)),
        line(9, "confirmation"),
    ]


def check_duet(data):
    """What a duet that goes on makes of its journal."""
    whole, _ = journals.lines(journals.decoded(data))
    made, damaged = each(whole[1:], kept.pair)
    assert all(is_clean(one.fault) for one in damaged)
    duet = Duet({workload: THRESHOLDS for _, workload, _ in made})
    for pair in made:
        duet.take(*pair)
    comparisons = duet.comparisons()
    lines = verdicts.lines(outcome("base", "head", comparisons.values(), 1.0))
    assert all(is_clean(line) and "\n" not in line for line in lines)


def header():
    """The conditions of a run, as a journal's first line has them."""
    return {
        "schema": 1,
        "started": "2026-11-21T09:05:35+00:00",
        "profile": "quick",
        "machine": MACHINE.to_json(),
        "run": {"profile": "quick", "cpu": "x86", "fit_batch": False, "commit": None, "fwbench": "1"},
        "changes": "",
        "modules": {"a.py": "x"},
        "lanes": {"torch": {"OMP_NUM_THREADS": "2", "interpreter of torch": "python", "torch": "2.0"}},
    }


def check_resumed(data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal" / "x.jsonl"
        path.parent.mkdir()
        path.write_bytes(data)
        tests = {"test": (measured().workload, PROFILES["quick"])}
        for named in (True, str(path)):
            arguments = named, Path(folder), header(), tests, Path(folder)
            found, sentence = asked(resuming.resume, *arguments, error=pytest.UsageError)
            assert not [line for line in (sentence, *(found.lines() if found else ())) if "\n" in line]


def suites():
    one = {
        "id": "x",
        "planted": 0.0,
        "kind": "unchanged",
        "seconds": [1.0, 0.0],
        "rounds": [{"base": [0.1, 0.2], "head": [0.1, 0.3]}],
    }
    of = [
        {
            "slowdown": slow,
            "loaded": False,
            "number": n,
            "other_load": 0.0,
            "benchmarks": [one, {**one, "planted": slow}],
        }
        for n in range(12)
        for slow in (0.0, 0.05)
    ]
    return [{"definition": "x", "machine": {"device": "cpu", "cpu": "Some CPU", "threads": 2}}, *of]


def check_suites(data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.jsonl"
        path.write_bytes(data)
        assert evidence.state(MACHINE, path) >= 0
        found, _ = asked(evidence.read, path)
        assert all(is_clean(line) for line in (evidence.report(found) if found else ()))


def finding():
    verdict = Verdict("regressed", 1.1, (1.05, 1.2), 0.95, 10, 0.01)
    return Outcome("base", "head", [Finding("x", "regressed", "latency", 1.0, 1.1, "10 pairs", verdict)], 1.0, ["note"])


@functools.cache
def written(write, name="x.json"):
    """The JSON that `write(path)` writes."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / name)
        (path,) = (each for each in Path(folder).rglob("*") if each.is_file())
        return json.loads(path.read_text())


def summary():
    return written(_write_summary)


def _write_summary(path):
    outcome_file.write(path, finding(), 1)


def check_summary(data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.json"
        path.write_bytes(data)
        found, sentence = asked(outcome_file.read, path)
        assert is_clean(verdicts.markdown(found) if found else sentence)


RATES = {name: Metric(1e11, "x") for name in ("matrix_product_rate", "compute_ceiling", "memory_bandwidth")}


def facts(folder):
    return Facts(asked_of(folder, "a run", MACHINE), "torch-mlp")


def _write_fact(path):
    found = facts(path.parent)
    found.note(CEILINGS, {}, content(RATES))
    found.store(quiet=True)


def check_fact(data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        _write_fact(path / "x")
        (file,) = path.iterdir()
        file.write_bytes(data)
        known = facts(path).known(CEILINGS, {}, metrics)
        assert known is None or all(isinstance(metric.value, int | float) for metric in known.values())


NETWORK = Model("mine", torch="torch:nn.ReLU", jax="jax.nn:relu", inputs=normal(3), checkpoint="x.safetensors")


def proofs():
    """A file that fwbench ships."""
    return json.loads((Path(store.__file__).parent / "proofs" / "mlp.json").read_text())


def check_proofs(data):
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "mine.json").write_bytes(data)
        store.stamp(NETWORK, "jax", Path(folder))


LIST = """
[[pair]]
name = "mine"
kind = "vision"
input = { image = [3, 8, 8] }
note = "a note"
[pair.torch]
network = "net:Net"
package = "timm==1.0"
[pair.jax]
network = "net:Net"
repository = "https://github.com/a/b"
commit = "0123456789012345678901234567890123456789"
"""


@st.composite
def lists(draw):
    """A list of ports: lines removed, doubled or with another value."""
    lines = []
    for line in LIST.splitlines():
        what = draw(st.sampled_from(("keep",) * 6 + ("remove", "double", "value")))
        value = draw(st.sampled_from(("1", "true", "[]", "{}", "'x'", "1979-05-27", "[1, 'a']", "{ a = 1 }", "nan")))
        name, equals, _ = line.partition("=")
        changed = f"{name}= {value}" if what == "value" and equals else line
        lines += {"remove": [], "double": [changed, changed]}.get(what, [changed])
    return draw(bytes_of("\n".join(lines)))


def check_list(data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.toml"
        path.write_bytes(data)
        asked(pairs.read, path)


EVENTS = (
    ("pull_request", {"pull_request": {"number": 7, "base": {"sha": "a" * 40}, "head": {"sha": "b" * 40}}}),
    ("push", {"before": "a" * 40, "after": "b" * 40}),
    (
        "workflow_run",
        {"workflow_run": {"head_repository": {"owner": {"login": "me"}}, "head_branch": "x", "head_sha": "c"}},
    ),
)


@st.composite
def events(draw):
    name, data = draw(st.sampled_from(EVENTS))
    return name, draw(bytes_of(json.dumps(draw(spoilt(data)))))


def check_event(event):
    name, data = event
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "event.json"
        path.write_bytes(data)
        patch.setenv("GITHUB_EVENT_NAME", name)
        patch.setenv("GITHUB_EVENT_PATH", str(path))
        patch.setattr(GITHUB, "_all", lambda path: [{"number": 1, "head": {"sha": "c"}}])
        _, sentence = asked(lambda: GITHUB.pull_requests(*GITHUB.event()))
        assert len(sentence.splitlines()) <= 1


@st.composite
def checkpoints(draw):
    tensors = {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
    text = json.dumps(draw(spoilt(tensors)) if draw(st.booleans()) else tensors).encode()
    size = draw(st.one_of(st.just(len(text)), st.integers(0, 2**64 - 1)))
    return struct.pack("<Q", size) + text + draw(st.binary(max_size=12))


def check_checkpoint(data):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "x.safetensors"
        path.write_bytes(data)
        patch.setattr(checkpoint, "find", lambda model: path)
        asked(checkpoint.load, NETWORK, {"w": (2,)}, error=ModelError)


TARGETS = {
    "lines": (lines_of(two_runs()), check_lines),
    "duet": (lines_of(duet_lines()), check_duet),
    "resumed": (lines_of([header(), *two_runs()[1:]]), check_resumed),
    "suites": (lines_of(suites()), check_suites),
    "summary": (spoilt(summary()).flatmap(lambda value: bytes_of(json.dumps(value))), check_summary),
    "facts": (spoilt(written(_write_fact)).flatmap(lambda value: bytes_of(json.dumps(value))), check_fact),
    "proofs": (spoilt(proofs()).flatmap(lambda value: bytes_of(json.dumps(value))), check_proofs),
}
# Of what somebody else writes: lists, events, weights.
OTHERS = {
    "list": (lists(), check_list),
    **({"event": (events(), check_event)} if GITHUB else {}),
    "checkpoint": (checkpoints(), check_checkpoint),
}


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_spoilt_is_refused_in_a_sentence_or_read_as_far_as_it_is_whole(name):
    cases, check = TARGETS[name]

    @settings(PLAIN, max_examples=60)
    @given(cases)
    def run(case):
        check(case)

    run()


@pytest.mark.fuzz
@pytest.mark.parametrize("name", [*TARGETS, *OTHERS])
def test_thousands_of_spoilt_inputs(name):
    cases, check = {**TARGETS, **OTHERS}[name]

    @LONG
    @given(cases)
    def run(case):
        check(case)

    run()
