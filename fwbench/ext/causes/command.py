"""`fwbench explain`: finds which differences between two sides make a workload or a plain test slower or faster."""

import argparse
import time
from pathlib import Path

from fwbench import git
from fwbench.errors import UserError
from fwbench.ext.causes import searching
from fwbench.ext.causes import sentences as causes
from fwbench.ext.causes import spent as operators
from fwbench.ext.causes.explaining import explain
from fwbench.ext.causes.suspects import resolve


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Finds the parts that make HEAD slower or faster than BASE: changed lines, other files, environment variables, "
        "installed distributions, the interpreter. It puts parts of HEAD back to what they are in BASE and measures "
        "both by pairs of fresh processes that take turns; at most 5 % of searches name a wrong part. Exit code: 0 if "
        "the search came to its end, 1 if it ended early and says what it knows, 4 if you must correct something."
    )
    side = (
        "a revision of git or `.` for the working tree, an interpreter's path or a release such as jax==0.10.0, "
        "NAME=VALUE for variables; put several in quotes, as in 'main XLA_FLAGS=--xla_cpu_enable_fast_math=true'"
    )
    parser.add_argument("base", metavar="BASE", help=side)
    parser.add_argument(
        "head",
        nargs="?",
        metavar="HEAD",
        help="as BASE; what neither side names, both have as it is here. BASE..HEAD is the same in one word",
    )
    searching.declare(parser, "HEAD")
    parser.add_argument("--traces", type=Path, metavar="FOLDER", help="write both sides' traces here, for Perfetto")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    words = [*filter(None, [options.head]), *options.fields]
    options.base, options.head, options.fields = searching.ends(options.base, words)
    asked = searching.asked(options)
    subject, project = asked.subject, asked.project
    repository = git.top(project.root)
    stated = resolve(options.base, options.head, repository, asked.python)
    top = repository if isinstance(repository, Path) else project.root.resolve()
    if stated[0].revision != stated[1].revision:
        searching.refuse_own(subject, top)

    if options.traces:
        # Before minutes go by.
        try:
            options.traces.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = f"this folder cannot be made ({error.strerror}): name another."
            raise UserError(f"--traces {options.traces}: {why}") from None
    begun = time.monotonic()
    explanation = explain(
        asked,
        stated,
        top,
        on_parts=lambda *found: print("\n".join(causes.parts(subject.id, *found)), flush=True),
        on_comparison=lambda compared: print(causes.progress(compared), flush=True),
        # Operators take time, so they account for no other metric.
        profiled=asked.metric == "latency" or options.traces is not None,
    )
    search, seconds = explanation.search, time.monotonic() - begun
    print("\n".join(causes.sentences(explanation, subject.device)))
    if not search.compared:
        raise UserError(f"{options.base} and {options.head} could not be compared: the reasons are above.")
    traces = operators.write(explanation, options.traces) if options.traces else []
    table = operators.table(explanation) if asked.metric == "latency" else []
    print("\n".join([*table, *traces, searching.effort(search, seconds, "part")]))
    return searching.ENDED_EARLY if search.ended else 0
