"""What a proof says of mistakes that are planted in six public ports: the place, and the cause.

python -m docs.evidence.ported_causes FOLDER [SOURCES] # writes the tables in ported_causes.md

The mistakes are those of ported_causes.toml. FOLDER keeps checkouts, environments and verdicts, and SOURCES is as in
`fwbench audit --sources`.
"""

import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from docs.evidence.causes import row, summary, write
from fwbench.ext.proofs.audit.pairs import Pair, read
from fwbench.ext.proofs.audit.verdicts import Verdict, Workplace

HERE = Path(__file__).resolve()
LIST = HERE.parents[2] / "audits" / "ports.toml"
PACKAGES = ("torch", "jax", "flax", "equinox", "dm-haiku", "transformers")

# Appended to a pair's own code, so that it changes a module's text before the module is first imported.
PLANTING = """

from importlib.machinery import SourceFileLoader

_get_code = SourceFileLoader.get_code


def _changed(self, name):
    if name != {module!r}:
        return _get_code(self, name)
    source = self.get_source(name)
    if {right!r} not in source:
        raise ImportError("there is nothing to replace")
    return compile(source.replace({right!r}, {wrong!r}), self.path, "exec")


SourceFileLoader.get_code = _changed
"""


@dataclass(frozen=True)
class Planted:
    """A mistake in a port, as ported_causes.toml explains it."""

    network: str
    name: str
    module: str
    right: str
    wrong: str
    place: str
    cause: str

    def into(self, pair: Pair) -> Pair:
        """The pair with the mistake in its port."""
        code = pair.code + PLANTING.format(**vars(self))
        name = re.sub(r"\W+", "-", f"{self.network} {self.name}")
        return replace(pair, name=name, code=code, table={**pair.table, "code": code})


def same(pair: Pair) -> Pair:
    """The pair with its difference mended, if it has one."""
    model = pair.fixed or pair.model
    return replace(pair, name=f"{pair.name}-right", model=model, fixed=None, table={**pair.table, "proved": model.name})


def said(workplace: Workplace, pair: Pair) -> tuple[str, Verdict]:
    """What a proof says of where the networks of a pair part, which is nothing if they are the same."""
    verdict = workplace.known(pair)
    if verdict is None or verdict.state == "not runnable":
        verdict = workplace.judge(pair)
    if verdict.state == "not runnable":
        raise SystemExit(f"{pair.name}: {verdict.sentence}")
    return verdict.place if "First apart" in verdict.sentence else "", verdict


def table(workplace: Workplace) -> list[str]:
    """The page's lines between its marks."""
    planted = [Planted(**each) for each in tomllib.loads(HERE.with_suffix(".toml").read_text("utf-8"))["planted"]]
    networks = list(dict.fromkeys(each.network for each in planted))
    pairs = {pair.name: same(pair) for pair in read(LIST) if pair.name in networks}
    twins = {name: said(workplace, pairs[name]) for name in networks}
    versions: Mapping[str, str] = {k: v for _, verdict in twins.values() for k, v in verdict.versions.items()}
    rows = []
    for each in planted:
        sentence, _ = said(workplace, each.into(pairs[each.network]))
        rows.append((each, *row(each, sentence)))
        print(rows[-1][-1], flush=True)
    apart = sum(bool(sentence) for sentence, _ in twins.values())
    return [
        f"With {', '.join(f'{name} {versions[name]}' for name in PACKAGES if name in versions)}.",
        "",
        *summary(rows),
        f"- {apart} of {len(twins)} right twins, each proved in inference and in training, had a place named.",
        "",
        "| network | planted | named place | | named cause |",
        "| --- | --- | --- | --- | --- |",
        *(line for *_, line in rows),
        "",
    ]


if __name__ == "__main__":
    folder, *sources = sys.argv[1:]
    write(HERE.with_suffix(".md"), table(Workplace(Path(folder).resolve(), *(sources or [""]), install=True)))
