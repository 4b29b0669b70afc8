"""What fwbench reads, as nobody writes it: journals line by line, duets, self-tests, stores, lists, events, weights.

Each is refused in a sentence, or what is whole in it is read. An hour of it (it ends at the first fault, and its seed
makes the same cases again):

    end=$((SECONDS + 3600)); seed=0
    while [ $SECONDS -lt $end ] && python -m pytest tests/unit/test_fuzz_inputs.py tests/unit/test_fuzz.py -m fuzz \
        -p no:randomly -q --hypothesis-seed=$((++seed)); do :; done; echo "seed $seed"
"""

import dataclasses
import json
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fwbench.compare import evidence
from fwbench.compare.criteria import thresholds
from fwbench.compare.duet import Duet
from fwbench.compare.duet_outcome import outcome
from fwbench.compare.findings import Finding, Outcome, Verdict
from fwbench.errors import UserError
from fwbench.models import Model, ModelError, store
from fwbench.models.inputs import normal
from fwbench.record import journal as journals
from fwbench.record.reading import each, read
from fwbench.report import outcome_file, verdicts
from fwbench.suite.profiles import PROFILES
from tests.unit.recorded import MACHINE, journal, measured
from tests.unit.shared import extension
from tests.unit.test_duet_gate import compared
from tests.unit.test_evidence import HEADER, LEVELS, SUITES, runs
from tests.unit.test_facts import known, of, stored
from tests.unit.test_fuzz import PLAIN, as_lines, bytes_of, consume, file_of, is_clean, read_whole, spoilt

CHECKPOINT = extension("proofs.checkpoint")
GITHUB = extension("ci.github")
SUMMARY = extension("ci.summary")
PAIRS = extension("proofs.audit.pairs")
RATES = extension("trials.rates")
KEPT = extension("resume.kept")
RESUMING = extension("resume.resuming")

LONG = settings(PLAIN, max_examples=3_000, derandomize=False)


@st.composite
def lines_of(draw, whole):
    """A journal's lines, some spoilt, doubled, removed, or in another order; the first is spoilt seldom."""
    first, *rest = whole
    lines = draw(st.lists(st.sampled_from(rest), max_size=2 * len(rest)))
    lines = [draw(spoilt(line))[0] if draw(st.integers(0, 3)) == 0 else line for line in lines]
    first = draw(spoilt(first))[0] if draw(st.integers(0, 9)) == 0 else first
    return draw(bytes_of(as_lines(first, *lines)))


def spoilt_bytes(whole):
    """A file of one piece of JSON, spoilt as JSON and perhaps as bytes."""
    return spoilt(whole).flatmap(lambda case: bytes_of(as_lines(case[0])))


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
    with file_of(data, "journal/x.jsonl") as path:
        journals.newest(path.parent)
        record, sentence = asked(read, path)
        assert is_clean(sentence)
        if record is None:
            return
        assert len(
            {(m.workload, *m.stages.items(), str(m.metrics), str(m.failure)) for m in record.measurements}
        ) == len(record.measurements)
        consume(record, read_whole(True), path.parents[1], False)


THRESHOLDS = thresholds("duet")


def duet_lines():
    workload = measured().workload
    given, *_ = compared(workload, "unchanged", True, 1.0).screening
    values = {side: {"latency": 0.1, "cpu_time": 0.1, "program_memory": 1e6} for side in ("base", "head")}

    def line(number, stage="screening"):
        differences = {"latency": 0.001 * number, "cpu_time": 0.0, "program_memory": 0.0}
        pair = dataclasses.replace(given, differences=differences, values=values)
        return {"stage": stage, "workload": workload.to_json(), "pair": pair.to_json()}

    return [
        {"schema": 1, "started": "2026-11-21T09:05:35+00:00"},
        *(line(n) for n in range(4)),
        line(9, "confirmation"),
    ]


def check_duet(data):
    """What a duet that goes on makes of its journal."""
    whole, _ = journals.lines(journals.decoded(data))
    made, damaged = each(whole[1:], KEPT.pair)
    assert all(is_clean(one.fault) for one in damaged)
    duet = Duet({workload: THRESHOLDS for _, workload, _ in made})
    for pair in made:
        duet.take(*pair)
    comparisons = duet.comparisons()
    lines = verdicts.lines(outcome("base", "head", comparisons.values(), 1.0))
    assert all(is_clean(line) and "\n" not in line for line in lines)


# The conditions of a run, as a journal's first line has them.
(CONDITIONS,) = journal(
    run={"profile": "quick", "cpu": "x86", "fit_batch": False, "commit": None, "fwbench": "1"},
    changes="",
    modules={"a.py": "x"},
    lanes={"torch": {"OMP_NUM_THREADS": "2", "interpreter of torch": "python", "torch": "2.0"}},
)


def check_resumed(data):
    with file_of(data, "journal/x.jsonl") as path:
        folder, tests = path.parents[1], {"test": (measured().workload, PROFILES["quick"])}
        for named in (True, str(path)):
            arguments = named, folder, CONDITIONS, tests, folder
            found, sentence = asked(RESUMING.resume, *arguments)
            assert not [line for line in (sentence, *(found.lines if found else ())) if "\n" in line]


def check_suites(data):
    with file_of(data, "x.jsonl") as path:
        assert evidence.state(MACHINE, path) >= 0
        found, _ = asked(evidence.read, path)
        assert all(is_clean(line) for line in (RATES.report(found) if found and RATES else ()))


VERDICT = Verdict("regressed", 1.1, (1.05, 1.2), 0.95, 10, 0.01)
OUTCOME = Outcome("base", "head", [Finding("x", "regressed", "latency", 1.0, 1.1, "10 pairs", VERDICT)], 1.0, ["note"])


def written(write):
    """The JSON that `write(path)` writes."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "x.json")
        (path,) = Path(folder).iterdir()
        return json.loads(path.read_text())


SPOILT_SUMMARY = spoilt_bytes(written(lambda path: outcome_file.write(path, OUTCOME, 1)))


def check_summary(data):
    with file_of(data) as path:
        found, sentence = asked(SUMMARY.read, path)
        assert is_clean(verdicts.markdown(found) if found else sentence)


def check_fact(data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        stored(path)
        (file,) = path.iterdir()
        file.write_bytes(data)
        found = known(of(path))
        assert found is None or all(isinstance(metric.value, int | float) for metric in found.values())


NETWORK = Model("mine", torch="torch:nn.ReLU", jax="jax.nn:relu", inputs=normal(3), checkpoint="x.safetensors")
# A file that fwbench ships.
PROOFS = json.loads((Path(store.__file__).parent / "proofs" / "mlp.json").read_text())


def check_proofs(data):
    with file_of(data, "mine.json") as path:
        store.stamp(NETWORK, "jax", path.parent)


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
    with file_of(data, "x.toml") as path:
        asked(PAIRS.read, path)


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
    return name, draw(spoilt_bytes(data))


def check_event(event):
    name, data = event
    with file_of(data) as path, pytest.MonkeyPatch.context() as patch:
        patch.setenv("GITHUB_EVENT_NAME", name)
        patch.setenv("GITHUB_EVENT_PATH", str(path))
        patch.setattr(GITHUB, "_all", lambda path: [{"number": 1, "head": {"sha": "c"}}])
        _, sentence = asked(lambda: GITHUB.pull_requests(*GITHUB.event()))
        assert len(sentence.splitlines()) <= 1


@st.composite
def checkpoints(draw):
    tensors = {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
    text = as_lines(draw(spoilt(tensors))[0] if draw(st.booleans()) else tensors).encode()
    size = draw(st.one_of(st.just(len(text)), st.integers(0, 2**64 - 1)))
    return struct.pack("<Q", size) + text + draw(st.binary(max_size=12))


def check_checkpoint(data):
    with file_of(data, "x.safetensors") as path, pytest.MonkeyPatch.context() as patch:
        patch.setattr(CHECKPOINT, "checkpoint_file", lambda model: path)
        asked(CHECKPOINT.load, NETWORK, {"w": (2,)}, error=ModelError)


TARGETS = {
    "lines": (lines_of(two_runs()), check_lines),
    **({"duet": (lines_of(duet_lines()), check_duet)} if KEPT else {}),
    **({"resumed": (lines_of([CONDITIONS, *two_runs()[1:]]), check_resumed)} if RESUMING else {}),
    "suites": (lines_of([HEADER, *runs(LEVELS), *SUITES]), check_suites),
    "facts": (spoilt_bytes(written(lambda path: stored(path.parent))), check_fact),
    "proofs": (spoilt_bytes(PROOFS), check_proofs),
    # What somebody else writes: lists, events, weights.
    **({"list": (lists(), check_list)} if PAIRS else {}),
    **({"summary": (SPOILT_SUMMARY, check_summary)} if SUMMARY else {}),
    **({"event": (events(), check_event)} if GITHUB else {}),
    **({"checkpoint": (checkpoints(), check_checkpoint)} if CHECKPOINT else {}),
}


@pytest.mark.parametrize("amount", [PLAIN, pytest.param(LONG, marks=pytest.mark.fuzz)], ids=["60", "3000"])
@pytest.mark.parametrize("name", TARGETS)
def test_what_is_spoilt_is_refused_in_a_sentence_or_read_as_far_as_it_is_whole(name, amount):
    cases, check = TARGETS[name]
    amount(given(cases)(check))()
