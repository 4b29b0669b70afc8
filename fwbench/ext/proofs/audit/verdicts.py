"""The verdict on a pair: `fwbench prove` in a process of its own, and its outcome."""

import dataclasses
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import fwbench
from fwbench.errors import UserError
from fwbench.ext.proofs.audit.fetching import NotRunnable, interpreter, lay_out
from fwbench.ext.proofs.audit.pairs import Pair
from fwbench.ext.proofs.client import prove
from fwbench.ext.proofs.command import tell
from fwbench.machine import versions
from fwbench.models import Model
from fwbench.models.project import Project
from fwbench.models.store import Proved, digest
from fwbench.record import files
from fwbench.record.decoding import Decoded
from fwbench.record.lanes import LANES

# Seconds for one proof.
_DEADLINE = 900.0

# The next step if the cache cannot be written.
_CACHE = "free space there, or choose another folder with --cache"

State = Literal["same", "different", "not runnable"]

# The folders before an installed package's own.
_INSTALLED = re.compile(r"[^\s(]*/(?:site|dist)-packages/")

# The sentence on the place where networks part: it begins so, and the list of quantities follows it.
_PLACE = re.compile(r"First apart .*?(?=\. (?:All that differ|tolerance=)|$)", re.DOTALL)


@dataclass(frozen=True)
class Verdict(Decoded):
    """The verdict on a pair.

    Attributes:
        sentence: the differences, or the reason why nothing can be proved; for a pair that is the same, the proof's
            notes.
        proved: the result of the proof; None: the pair is not runnable.
        fixed: `same` if the mended network is, else the reason why not; empty if the list names no mended network.
        minutes: time that the verdict took.
    """

    sentence: str
    proved: Proved | None = None
    fixed: str = ""
    minutes: float = 0.0

    @property
    def state(self) -> State:
        """The verdict in a word."""
        if self.proved is None:
            return "not runnable"
        return "same" if self.proved.state == "proved" else "different"

    @property
    def versions(self) -> Mapping[str, str]:
        """The versions of the distributions that the networks import."""
        of_both = self.proved.key.versions if self.proved else {}
        return {name: version for of in of_both.values() for name, version in of.items()}

    @property
    def place(self) -> str:
        """The part of the sentence that says where the networks part; the whole sentence if none does."""
        match = _PLACE.search(self.sentence)
        return match[0] if match else self.sentence


@dataclass(frozen=True)
class Workplace:
    """The folders for proofs of pairs, and the means to get the pairs' code and packages.

    Attributes:
        cache: the folder of checkouts, environments, and verdicts.
        clones: as `fetching.checkout` takes it.
        install: as `fetching.interpreter` takes it.
    """

    cache: Path
    clones: str
    install: bool

    def known(self, pair: Pair) -> Verdict | None:
        """The verdict of an earlier run on the same pair with the same versions."""
        try:
            stored = json.loads(files.read(self._file(pair)))
            if stored["key"] != _key(pair):
                return None
            return Verdict.from_json(stored["verdict"])
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def judge(self, pair: Pair) -> Verdict:
        """Prove a pair, and keep the verdict at once, as a later pair may end the run."""
        begun = time.monotonic()
        verdict = self._judged(pair)
        verdict = dataclasses.replace(verdict, minutes=(time.monotonic() - begun) / 60)
        with files.writing(_CACHE):
            files.write(
                self._file(pair), json.dumps({"key": _key(pair), "verdict": verdict.to_json()}, indent=1) + "\n"
            )
        return verdict

    def _judged(self, pair: Pair) -> Verdict:
        try:
            with files.writing(_CACHE):
                folder, path = lay_out(pair, self.cache, self.clones)
                python = interpreter(pair, self.cache, install=self.install)
            project = Project(folder.resolve(), tuple(one.absolute() for one in path))
            proved = self._prove(pair.model, project, python)
        except (NotRunnable, UserError) as error:
            return Verdict(_short(str(error), self.cache, pair))
        fixed = ""
        if proved.state != "proved" and pair.fixed:
            try:
                mended = self._prove(pair.fixed, project, python)
                fixed = "same" if mended.state == "proved" else _short(mended.sentence, self.cache, pair)
            except UserError as error:
                fixed = _short(str(error), self.cache, pair)
        return Verdict(_short(proved.sentence, self.cache, pair), proved, fixed)

    def _prove(self, model: Model, project: Project, python: str) -> Proved:
        (candidate,) = (name for name in model.networks if name != model.reference)
        return prove(model, candidate, project, tell, _DEADLINE, pythons={candidate: python})

    def _file(self, pair: Pair) -> Path:
        return self.cache / "pairs" / pair.name / "verdict.json"


def _key(pair: Pair) -> str:
    """Digest of all that a verdict depends on."""
    installed = versions(name for lane in LANES.values() for name in lane.distributions)
    subject: dict[str, Any] = {**pair.table, "note": "", "kind": "", "fwbench": fwbench.__version__}
    return digest([subject, installed])


def _short(sentence: str, cache: Path, pair: Pair) -> str:
    """A sentence with files named from the pair's or a package's folder, and without the pair's name in front."""
    folder = cache / "pairs" / pair.name
    for prefix in (folder.absolute().as_posix(), folder.as_posix()):
        sentence = sentence.replace(f"{prefix}/", "")
    sentence = _INSTALLED.sub("", sentence)
    return " ".join(sentence.removeprefix(f"{pair.name}: ").split())
