"""Releases of a distribution, each in an environment of its own over the packages of an interpreter.

An environment holds the release and the packages that have to change with it: those that it requires, and those here
that depend on it. All other packages are links to those of an interpreter, which is said to be below. `uv` resolves and
installs; its own settings name the index.
"""

import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from fwbench.errors import UserError
from fwbench.machine import machine
from fwbench.record import files
from fwbench.text import line
from fwbench.worker.client.asking import DOWNLOAD_DEADLINE, ask, run

# A distribution's name.
NAME = r"[A-Za-z0-9][\w.-]*"
_STATED = re.compile(rf"({NAME})==([\w.!+]+)")

# Asks an interpreter for its folders of packages, and for its version as markers of requirements name it.
_LISTING = """
import platform, sys
folders = [each for each in sys.path if each.endswith("-packages")]
version = platform.python_version()
answer = [folders, {"python_version": ".".join(version.split(".")[:2]), "python_full_version": version}]
"""
# The exit code with which uv says that no release fits; any other is an error.
_UNSATISFIABLE = 1
_BARE = ("--quiet", "--no-header", "--no-annotate")
# Extras that require such packages are an accelerator's.
_ACCELERATORS = re.compile(r"cuda|nvidia|rocm|tpu")
# A folder with links to the packages of an interpreter below. Its name marks the modules in it as installed ones.
_BELOW = "below-{}/site-packages"
_CHANGES = re.compile(r"change.?log|release.?notes|changes|history|what'?s new", re.IGNORECASE)


@dataclass(frozen=True)
class Environment:
    """An environment with a release.

    Attributes:
        versions: of the release, of what it requires, and of what depends on it, by name.
        folders: the folders of its packages, in the order of the import path.
    """

    python: str
    versions: Mapping[str, str]
    folders: Sequence[str]

    def changelog(self, name: str) -> str:
        """The address of a distribution's changelog; empty where its metadata has none."""
        release = next(iter(distributions(name=name, path=list(self.folders))))
        for entry in release.metadata.get_all("Project-URL") or []:
            label, _, address = entry.partition(",")
            if _CHANGES.search(label):
                return line(address)
        return ""


def between(name: str, first: str, last: str, python: str) -> list[str]:
    """The versions from `first` to `last` that can be installed for an interpreter, the oldest first.

    If uv is not installed, or finds none, a UserError says so.
    """
    versions: list[str] = []
    below = f"<={last}"
    while True:
        done = _uv("pip", "compile", "--no-deps", *_BARE, "--python", python, "-", given=f"{name}>={first},{below}")
        if done.returncode == _UNSATISFIABLE and versions:
            return versions[::-1]
        if done.returncode:
            raise UserError(f"uv finds no release of {name} from {first} to {last} for {python}: {_reason(done)}")
        versions.append(done.stdout.strip().rpartition("==")[2])
        # A version behind `<` may have no local part, such as `+cpu`.
        below = f"<{versions[-1].partition('+')[0]}"


def stated(text: str, python: str) -> Environment | None:
    """The environment of a release that is given as NAME==VERSION (`environment`); None: the text is no release."""
    match = _STATED.fullmatch(text)
    return environment(match[1], match[2], python) if match else None


@dataclass(frozen=True)
class _Below:
    """The packages below an environment, by canonical name, and their interpreter's version, as markers name it."""

    distributions: Mapping[str, Distribution]
    markers: Mapping[str, str]

    def dependents(self, name: str) -> list[str]:
        """The distributions that depend on this one, directly or through others, and that an index may have.

        Packages installed from a folder or an address stay as they are, and so do lanes: their bounds say what they
        were tested with, and the search finds out whether one runs with a release.
        """
        needs: dict[str, set[str]] = {
            each: {canonicalize_name(need.name) for need in self._needs(each) if self._applies(need)}
            for each, distribution in self.distributions.items()
            if not distribution.read_text("direct_url.json")
            and not distribution.entry_points.select(group="fwbench.lanes")
        }
        dependents: set[str] = {canonicalize_name(name)}
        while more := {each for each, needed in needs.items() if needed & dependents} - dependents:
            dependents |= more
        return sorted(dependents - {canonicalize_name(name)})

    def extras(self, name: str) -> str:
        """The extras that are installed, such as `[cuda13]`, without an accelerator's where no GPU is in use."""
        distribution = self.distributions.get(canonicalize_name(name))
        known = distribution.metadata.get_all("Provides-Extra") or [] if distribution else []
        extras = [extra for extra in known if self._has_extra(name, extra) and self._is_used(name, extra)]
        return f"[{','.join(extras)}]" if extras else ""

    def _is_used(self, name: str, extra: str) -> bool:
        needs = [need.name for need in self._added(name, extra)]
        return machine().device == "gpu" or not any(map(_ACCELERATORS.search, needs))

    def _has_extra(self, name: str, extra: str) -> bool:
        """True if everything that an extra requires is installed, in a version that fits."""
        needs = self._added(name, extra)
        return bool(needs) and all(
            (known := self.distributions.get(canonicalize_name(need.name))) is not None
            and need.specifier.contains(known.version, prereleases=True)
            and all(self._has_extra(need.name, more) for more in need.extras)
            for need in needs
        )

    def _added(self, name: str, extra: str) -> list[Requirement]:
        return [need for need in self._needs(name) if self._applies(need, extra) and not self._applies(need)]

    def _needs(self, name: str) -> Iterator[Requirement]:
        distribution = self.distributions.get(canonicalize_name(name))
        for text in distribution.requires or () if distribution else ():
            with suppress(InvalidRequirement):
                yield Requirement(text)

    def _applies(self, need: Requirement, extra: str = "") -> bool:
        return need.marker is None or need.marker.evaluate({**self.markers, "extra": extra})


@functools.cache
def environment(name: str, version: str, python: str) -> Environment:
    """Make the environment with a release over the packages of an interpreter, or take it from the cache.

    If uv is not installed, or cannot install the release, a UserError says so.
    """
    folders, markers = ask(python, _LISTING)
    installed: dict[str, Distribution] = {}
    for each in distributions(path=folders):
        if each.metadata["Name"]:
            installed.setdefault(canonicalize_name(each.metadata["Name"]), each)
    versions = _resolved(name, version, python, _Below(installed, markers))
    changed = [
        each for each, pinned in sorted(versions.items()) if each not in installed or installed[each].version != pinned
    ]
    pins = [f"{each}=={versions[each]}" for each in changed]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fwbench"
    # The key lists what is in the folders, as an environment has links to it. Keys are of one length, since a path's
    # length moves what lies behind it in memory.
    listed = {each: sorted(os.listdir(each)) for each in folders if os.path.isdir(each)}
    made = cache / hashlib.sha256(json.dumps([python, pins, listed, _BELOW]).encode()).hexdigest()[:16]
    if not made.exists():
        with files.writing("free space there, or name another folder by XDG_CACHE_HOME"):
            cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as temporary:
            folder = Path(temporary) / "environment"
            _install(folder, python, pins)
            _put_over(folder, folders, [installed[each] for each in changed if each in installed])
            with suppress(OSError):  # Another process was faster.
                folder.rename(made)
    below = [str(made / _BELOW.format(number)) for number in range(len(folders))]
    return Environment(str(made / "bin" / "python"), versions, [str(_site_packages(made)), *below])


def _resolved(name: str, version: str, python: str, below: _Below) -> dict[str, str]:
    """The versions of a release, of what it requires and of what depends on it, by name; as installed if they fit."""
    asked = [f"{name}{below.extras(name)}=={version}", *below.dependents(name)]
    with files.temporary(), tempfile.NamedTemporaryFile("w+", suffix=".txt", encoding="utf-8") as pins:
        # uv first reads the file that it is to write, and keeps the versions in it where they fit.
        pins.write("".join(f"{each}=={known.version}\n" for each, known in below.distributions.items()))
        pins.flush()
        arguments = ("pip", "compile", *_BARE, "--python", python, "--output-file", pins.name, "-")
        done = _uv(*arguments, given="\n".join(asked))
        if done.returncode:
            raise UserError(f"{name} {version} cannot be installed here: {_reason(done)}")
        resolved = [each.partition("==") for each in Path(pins.name).read_text(encoding="utf-8").split("\n")]
    return {each: pinned for each, equals, pinned in resolved if equals}


def _install(folder: Path, python: str, pins: list[str]) -> None:
    """Make an environment in a folder."""
    done = _uv("venv", "--quiet", "--python", python, str(folder))
    if not done.returncode and pins:
        own = str(folder / "bin" / "python")
        done = _uv("pip", "install", "--quiet", "--no-deps", "--compile-bytecode", "--python", own, *pins)
    if done.returncode:
        raise UserError(f"{', '.join(pins)} cannot be installed: {_reason(done)}")


def _put_over(environment: Path, folders: Sequence[str], replaced: Sequence[Distribution]) -> None:
    """Let an environment import what is in other folders, except the distributions that are replaced."""
    files = {Path(str(each.locate_file(file))) for each in replaced for file in each.files or ()}
    parts = {parent for file in files for parent in file.parents}
    for number, folder in enumerate(folders):
        if os.path.isdir(folder):
            _link(Path(folder), environment / _BELOW.format(number), files, parts)
    # Unlike a plain path, `addsitedir` also reads that folder's own .pth files. A comprehension would not see `site`:
    # Python 3.11 runs it as a function of its own.
    places = map(_BELOW.format, range(len(folders)))
    added = "; ".join(f"site.addsitedir(f'{{sys.prefix}}/{place}')" for place in places)
    text = f"import site, sys; {added}\n"
    (_site_packages(environment) / "below.pth").write_text(text, encoding="utf-8")


def _link(folder: Path, to: Path, without: Set[Path], parts: Set[Path]) -> None:
    """Link what is in a folder, without the files of replaced distributions, which lie somewhere in these `parts`.

    Otherwise Python would import a replaced package that has `__init__.py` in place of the release's that has none.
    """
    to.mkdir(parents=True)
    for each in folder.iterdir():
        if each in parts and each.is_dir():
            _link(each, to / each.name, without, parts)
        elif each not in without and each.name != "__pycache__":
            (to / each.name).symlink_to(each)
    if not any(to.iterdir()):
        to.rmdir()


def _site_packages(environment: Path) -> Path:
    return next(environment.glob("lib/python*/site-packages"))


def _uv(*arguments: str, given: str = "") -> "subprocess.CompletedProcess[str]":
    """Run uv with this standard input; raise a UserError if it is not installed, or does not end."""
    folders = (os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath))
    uv = shutil.which("uv", path=os.pathsep.join(folders))
    if uv is None:
        raise UserError("uv, which installs releases, is not installed: pip install uv.")
    try:
        return run([uv, *arguments], DOWNLOAD_DEADLINE, given=given)
    except OSError as error:
        raise UserError(f"{uv} cannot be started ({error.strerror})") from None


def _reason(done: "subprocess.CompletedProcess[str]") -> str:
    """The error text of uv, without the characters that draw lines."""
    return line(re.sub(r"[^\x00-\x7f]+|^error:", " ", done.stderr), 400)
