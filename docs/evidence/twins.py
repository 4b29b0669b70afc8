"""What `fwbench prove` and a run's own check say of small pairs of networks, wrong ones and right ones.

python docs/evidence/twins.py WORK      # runs those that twins.jsonl has not; WORK is a folder for the project
python docs/evidence/twins.py --page    # writes twins.md
"""

import argparse
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from lines import stored

HERE = Path(__file__).resolve().parent
TWINS, ANSWERS, PAGE = HERE / "twins", HERE / "twins.jsonl", HERE / "twins.md"
TOGETHER = 4  # twins in one process of each command
PACKAGES = ("torch", "jax", "flax", "equinox")
HEAD = """# Twins: what a proof and a run's own check say of small pairs of networks

`python docs/evidence/twins.py WORK` fills `twins.jsonl`, and `--page` writes this page from it. A twin is a pair of
networks in [twins/](twins), described in [twins/test_twins.py](twins/test_twins.py) as a stranger would. A wrong one
has one mistake that a user would call a bug; a right one is the same function in other words. Their author had read
fwbench's documentation and none of its code. `fwbench prove` and an ordinary run's check judge each without the other.
A proof refuses what it does not prove, choices that it has not tried among it, and a run what it does not call
`checked`, be it `different` or an error.
"""
CONFIGURATION = '[tool.pytest.ini_options]\ntestpaths = ["."]\npythonpath = ["."]\n'
# The check needs no more than a few calls of each program; no lanes take turns, and nothing waits for a quiet machine.
RUN = [
    *("--benchmark-only", "--fwbench-profile=ci", "--fwbench-minutes=0", "--fwbench-set=patience=0"),
    *("--benchmark-max-time=0.02", "--benchmark-min-rounds=1", "--benchmark-warmup-iterations=1"),
    *("--benchmark-columns=min", "-p", "no:cacheprovider"),
]


def described() -> dict[str, tuple[str, bool, str]]:
    """Kind, whether it is right, and what differs, by the twin's name."""
    spec = importlib.util.spec_from_file_location("test_twins", TWINS / "test_twins.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.TWINS


def said(command: Sequence[str], work: Path) -> str:
    line = [sys.executable, "-m", *command]
    return subprocess.run(line, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout


def run(names: Sequence[str], work: Path) -> dict[str, tuple[str, str]]:
    """The run's verdict on each twin in all modes and sizes, and its sentences."""
    # A stored proof would stand in the place of the run's own check.
    shutil.rmtree(work / ".benchmarks", ignore_errors=True)
    text = said(["pytest", *RUN, f"--fwbench-models={','.join(names)}"], work)
    answers = {}
    for name in names:
        rows = set(re.findall(rf"^{name} .* (\S+)$", text, re.M))
        notes = re.findall(rf"^note: error: .* (?:of|in) {name}[:,].*$|^jax-{name}-\S+: .*$", text, re.M)
        failed = any(not note.startswith("note") for note in notes)
        verdict = next((word for word in ("different", "unchecked", "checked") if word in rows), "error")
        answers[name] = (
            "error" if failed else verdict,
            "\n".join(dict.fromkeys(notes)) or ("" if rows else text[-2000:]),
        )
    (work / "run.txt").write_text(text)
    return answers


def prove(names: Sequence[str], work: Path) -> dict[str, tuple[str, str]]:
    """The proof's verdict on each twin, and its sentence."""
    text = said(["fwbench", "prove", *names], work)
    answers = {}
    for part in re.split(rf"^(?=(?:fwbench: )?(?:{'|'.join(names)}): )", text, flags=re.M):
        same, different = "computes the same as" in part, "does not compute the same as" in part
        partly = re.search(r", but for \d+ choices? not tried,", part)
        sentence = part.strip().removeprefix("fwbench: ")
        verdict = ("partly" if partly else "proved") if same else "different" if different else "error"
        answers[sentence.partition(":")[0]] = verdict, sentence
    return {name: answers.get(name, ("error", text[-2000:])) for name in names}


def measure(work: Path, names: Sequence[str], seconds: float) -> None:
    began = time.monotonic()
    shutil.copytree(TWINS, work, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    (work / "pyproject.toml").write_text(CONFIGURATION)
    twins, have = described(), {answer["name"] for answer in stored(ANSWERS)}
    left = [name for name in names or twins if name not in have]
    for first in range(0, len(left), TOGETHER):
        if time.monotonic() - began > seconds:
            return
        some, start = left[first : first + TOGETHER], time.monotonic()
        checked, proved = run(some, work), prove(some, work)
        each = round((time.monotonic() - start) / len(some), 1)
        for name in some:
            kind, right, differs = twins[name]
            answer = {"name": name, "kind": kind, "right": right, "differs": differs, "seconds": each}
            answer |= {"prove": proved[name][0], "prove_said": proved[name][1]}
            answer |= {"run": checked[name][0], "run_said": checked[name][1]}
            with ANSWERS.open("a") as file:
                file.write(json.dumps(answer).replace(str(work), "WORK") + "\n")
            print(f"{name}: {'right' if right else 'wrong'}, {answer['prove']}, {answer['run']}", flush=True)


def refused(answer: dict) -> str:
    by = [verb for verb, passed in (("prove", "proved"), ("run", "checked")) if answer[verb] != passed]
    return " and ".join(by) or "neither"


def page() -> str:
    found = stored(ANSWERS)
    columns = ("prove and run", "prove", "run", "neither")
    versions = ", ".join(f"{package} {version(package)}" for package in PACKAGES)
    lines = [HEAD, f"{len(found)} of {len(described())} twins have been run, with {versions}.", ""]
    lines += ["| kind | wrong | refused by both | by `prove` alone | by the run alone | by neither | right | refused |"]
    lines += ["| --- |" + " ---: |" * 7]
    for kind in [*dict.fromkeys(answer["kind"] for answer in found), "all"]:
        of = [answer for answer in found if kind in (answer["kind"], "all")]
        wrong = [refused(answer) for answer in of if not answer["right"]]
        right = [refused(answer) for answer in of if answer["right"]]
        cells = [len(wrong), *map(wrong.count, columns), len(right), len(right) - right.count("neither")]
        lines.append(f"| {kind} | {' | '.join(map(str, cells))} |")
    for title, right, kept in (
        ("Wrong twins that neither refused", False, lambda by: by == "neither"),
        ("Right twins that one refused", True, lambda by: by != "neither"),
    ):
        lines += ["", f"## {title}"]
        for answer in found:
            if answer["right"] is right and kept(refused(answer)):
                lines += ["", f"**{answer['name']}** ({answer['kind']}; {answer['differs']})", ""]
                lines += [
                    f"- {line}"
                    for verb in ("prove", "run")
                    for line in answer[f"{verb}_said"].splitlines() or ["checked"]
                ]
        if lines[-1] == f"## {title}":
            lines += ["", "None."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, nargs="?")
    parser.add_argument("names", nargs="*", help="these twins, in this order; default: all")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no twin later than this")
    options = parser.parse_args()
    if options.page:
        PAGE.write_text(page())
    if options.work is not None:
        measure(options.work.resolve(), options.names, options.seconds)
