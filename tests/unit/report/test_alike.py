"""Terminal, page, Markdown and answers.csv of one run name the same lanes; every remedy that a text names exists."""

import ast
import csv
import html
import re
from pathlib import Path

import pytest

import fwbench
from fwbench.commands.cli import commands
from fwbench.extensions import extensions
from fwbench.plugin.options import EARLIER
from fwbench.report import summary
from fwbench.suite.selection import SETTINGS
from tests.unit.recorded import CHECK, measured, metric, proof, saved


def turns(call):
    """Six rounds of so many seconds a call."""
    return tuple({"begun": float(n), "call": [call * (1 + 0.001 * (-1) ** n)] * 4} for n in range(6))


def lanes(model, load=0.0, state="", **speeds):
    """A measurement of each lane, of which JAX's was disturbed and has a proof in this state."""
    for lane, speed in speeds.items():
        name, of_jax = lane.replace("_", "-"), lane == "jax"
        parity = {"weights": "abc", "proof": proof(name, state if of_jax else ""), "check": CHECK}
        metrics = {"other_load": metric(load if of_jax else 0.0)}
        yield measured(name, model, throughput=speed, metrics=metrics, parity=parity)


RUN = [
    *lanes("sure", torch=100.0, jax=201.0),
    *lanes("open", torch=100.0, jax=110.0),
    *lanes("other", torch=100.0, jax=300.0, state="failed"),
    *lanes("busy", torch=100.0, torch_compile=250.0, jax=40.0, load=0.6),
    *(measured(lane, "same", turns=turns(0.1)) for lane in ("torch", "jax")),
    *(measured(lane, "apart", turns=turns(call)) for lane, call in (("torch", 0.2), ("jax", 0.1))),
]
# The lanes that may be the fastest, and the confidence.
NAMED = {
    "sure": ({"JAX"}, "likely"),
    "open": ({"JAX", "PyTorch"}, "undecided"),
    "busy": ({"PyTorch (torch.compile)", "JAX"}, "undecided"),
    "same": ({"JAX", "PyTorch"}, "equal"),
    "apart": ({"JAX"}, "clear"),
}


def named(words):
    return {name.removesuffix(" (eager)").removesuffix(" (jit)") for name in re.split(", | and | or ", words)}


def claimed(sentence):
    """The lanes that a sentence puts first, and how surely."""
    words = sentence.partition(": ")[2]
    if "nothing is decided" in words:
        first = re.match(r"between (.+?) nothing|(.+?) are (?:likely )?ahead", words)
        return named(first[1] or first[2]), "undecided"
    first = re.match(r"(.+?) (is likely|are equal|is) ", words)
    return named(first[1]), {"is likely": "likely", "are equal": "equal", "is": "clear"}[first[2]]


def by_workload(sentences):
    """What sentences about throughput claim, by the models that stand behind them."""
    claims = {}
    for sentence in sentences:
        if found := re.search(r", in \d+ of \d+ workloads \((.*)\)\.$", sentence):
            claims |= {part.partition(" ")[0]: claimed(sentence) for part in found[1].split(", ")}
    return claims


@pytest.fixture
def out(report):
    return report(saved(*RUN), formats="html,markdown,csv")


def test_terminal_page_markdown_and_csv_name_the_same_lanes(out):
    cells = [re.split(r"  +", line) for line in summary.answered(RUN)[1:]]
    at_the_end = {model: answer for model, _, _, answer, *_ in cells}
    assert at_the_end.pop("other") == "different"
    words = {"likely": "jax likely ", "undecided": "open", "equal": "equal", "clear": "jax 2.00 ("}
    assert at_the_end.keys() == NAMED.keys()
    assert all(at_the_end[model].startswith(words[confidence]) for model, (_, confidence) in NAMED.items())
    assert by_workload((out / "tables.md").read_text().replace("\\", "").splitlines()) == NAMED
    page = html.unescape((out / "report.html").read_text())
    assert by_workload(re.findall(r'<p class="lead">(.*?)</p>', page)) == NAMED
    verdicts = re.findall(r'<p class="verdict">(.*?)</p>', page)
    of_cards = {re.search(r"of (\w+)", text)[1]: text for text in verdicts}
    assert "JAX and PyTorch cannot be compared: different" in of_cards.pop("other")
    assert {model: claimed(text) for model, text in of_cards.items()} == NAMED
    rows = list(csv.DictReader((out / "tables" / "answers.csv").read_text().splitlines()))
    (apart,) = [row for row in rows if row["model"] == "other"]
    assert (apart["ratio"], apart["low"], apart["answer"], apart["evidence"]) == ("", "", "", "different")
    names = {"jax": "JAX", "torch": "PyTorch", "torch-compile": "PyTorch (torch.compile)"}
    shared = ("undecided", "equal")
    assert {
        row["model"]: (
            {names[row[place]] for place in (("first", "second") if row["answer"] in shared else ("first",))},
            row["answer"],
        )
        for row in rows
        if row is not apart
    } == NAMED


def texts():
    """All text in the package but that of docstrings, by file."""
    for path in Path(fwbench.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text())
        said = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        yield path.name, "\n".join(said)


def test_every_remedy_that_a_text_names_exists(pytestconfig):
    """Options of pytest and their fields, and fwbench's own commands."""
    seen = {"options": 0, "settings": 0, "commands": 0}
    for file, text in texts():
        for name in re.findall(r"--((?:fwbench|benchmark)-[a-z-]*[a-z])", text):
            known = name.replace("-", "_") in vars(pytestconfig.option) or f"--{name}" in EARLIER.values()
            assert known, (file, name)
            seen["options"] += 1
        for name in re.findall(r"--fwbench-set[= ]([a-z_]+)=", text):
            assert name in SETTINGS, (file, name)
            seen["settings"] += 1
        for name in re.findall(r"`fwbench ([a-z]+)", text):
            # A sentence of the core may name what an extension brings.
            assert name in commands() or not extensions(), (file, name)
            seen["commands"] += 1
    assert min(seen.values()) > 2
