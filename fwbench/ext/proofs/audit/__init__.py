"""`fwbench audit`: proves whether public ports of networks compute the same as their originals."""

import argparse
from pathlib import Path

from fwbench.errors import UserError, hint
from fwbench.ext.proofs.audit import table
from fwbench.ext.proofs.audit.pairs import read
from fwbench.ext.proofs.audit.verdicts import Workplace
from fwbench.record import files
from fwbench.record.storage import STORAGE

_NOT_THE_SAME = 1


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Fetches pairs of public networks, proves each as `fwbench prove` does, and writes a table: same, different "
        "(where, and why), or not runnable. The list and the repositories are code, which is run: audit what you "
        "trust. Ends with 0 where all pairs are the same, 1 where some differ, and 4 where some could not run."
    )
    parser.add_argument("list", metavar="FILE", type=Path, help="TOML with a table [[pair]] for each pair")
    parser.add_argument(
        "--only", metavar="NAME", nargs="+", default=[], help="pairs to prove; of others, earlier verdicts are shown"
    )
    parser.add_argument(
        "--sources",
        metavar="PATTERN",
        default="",
        help="folder of clones with {owner} and {name} in its path, such as '../clones/{name}': used where it exists, "
        "in place of a repository's address",
    )
    parser.add_argument(
        "--install", action="store_true", help="install packages that pairs need, in environments of their own"
    )
    parser.add_argument("--cache", metavar="FOLDER", type=Path, default=STORAGE / "audit", help="default: %(default)s")
    parser.add_argument("--output", metavar="FILE", type=Path, help="where the table is written, as Markdown")
    parser.add_argument("--again", action="store_true", help="prove also what an earlier run has proved")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    pairs = read(options.list)
    names = [pair.name for pair in pairs]
    for name in options.only:
        if name not in names:
            raise UserError(f"{options.list} has no pair {name!r}: {hint(name, names)}.")
    try:
        options.sources.format(owner="", name="")
    except (KeyError, IndexError, ValueError):
        raise UserError("--sources takes a path with {owner} and {name} in it, and nothing else in braces.") from None
    workplace = Workplace(options.cache, options.sources, options.install)
    rows = []
    for pair in pairs:
        verdict = workplace.known(pair)
        wanted = verdict is None or verdict.state == "not runnable" or options.again
        if wanted and (not options.only or pair.name in options.only):
            verdict = workplace.judge(pair)
            print(table.shown(pair, verdict), flush=True)
        if verdict is not None:
            rows.append((pair, verdict))
    print(table.summary(rows))
    if options.output:
        with files.writing("choose another file with --output."):
            files.write(options.output, table.page(rows, options.list.as_posix()))
    states = {verdict.state for _, verdict in rows}
    return _NOT_THE_SAME if "different" in states else UserError.EXIT_CODE if "not runnable" in states else 0
