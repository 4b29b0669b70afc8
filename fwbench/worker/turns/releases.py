"""Releases of a distribution, each in an environment of its own over the packages of an interpreter.

An environment holds the release and what has to change with it: what it requires, and what here depends on it. All
else are links to the interpreter's own packages. `uv` resolves and installs; its own settings say from where.
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
from fwbench.text import line

# A distribution's name.
NAME = r"[A-Za-z0-9][\w.-]*"
_STATED = re.compile(rf"({NAME})==([\w.!+]+)")

_PATHS = "import json, sys; print(json.dumps([each for each in sys.path if each.endswith('-packages')]))"
_BARE = ("--quiet", "--no-header", "--no-annotate")
_CHANGES = re.compile(r"change.?log|release.?notes|changes|history|what'?s new", re.IGNORECASE)


@dataclass(frozen=True)
class Environment:
    """An environment with a release.

    Attributes:
        python: its interpreter's path.
        versions: of the release, of what it requires, and of what depends on it, by name.
        folders: where its packages are, in the order of the import path.
    """

    python: str
    versions: Mapping[str, str]
    folders: Sequence[str]

    def changes(self, name: str) -> str:
        """The address of a distribution's changelog; empty where its metadata has none."""
        release = next(iter(distributions(name=name, path=list(self.folders))))
        for entry in release.metadata.get_all("Project-URL") or []:
            label, _, address = entry.partition(",")
            if _CHANGES.search(label):
                return line(address)
        return ""


def between(name: str, first: str, last: str, python: str) -> list[str]:
    """The versions that can be installed, the oldest first.

    Args:
        first, last: both are included.
        python: the interpreter that they must fit.

    Raises:
        UserError: uv is not installed, or finds none.
    """
    versions: list[str] = []
    below = f"<={last}"
    while True:
        done = _uv("pip", "compile", "--no-deps", *_BARE, "--python", python, "-", given=f"{name}>={first},{below}")
        if done.returncode and not versions:
            raise UserError(f"uv finds no release of {name} from {first} to {last} for {python}: {_reason(done)}")
        if done.returncode:
            return versions[::-1]
        versions.append(done.stdout.strip().rpartition("==")[2])
        # What follows a plus may not stand behind `<`.
        below = f"<{versions[-1].partition('+')[0]}"


def stated(text: str, python: str) -> Environment | None:
    """The environment of a release that is given as NAME==VERSION; None: the text is no release.

    Args:
        python: the interpreter whose packages are below it.

    Raises:
        UserError: uv is not installed, or cannot install the release.
    """
    match = _STATED.fullmatch(text)
    return environment(match[1], match[2], python) if match else None


@functools.cache
def environment(name: str, version: str, python: str) -> Environment:
    """Make the environment with a release, or take it from the cache.

    Args:
        name: of the distribution.
        python: the interpreter whose packages are below it.

    Raises:
        UserError: uv is not installed, or cannot install the release.
    """
    paths = _run([python, "-P", "-c", _PATHS])
    if paths.returncode:
        raise UserError(f"{python} does not run ({_last(paths)}): name a Python interpreter.")
    folders: list[str] = json.loads(paths.stdout)
    installed: dict[str, Distribution] = {}
    for each in distributions(path=folders):
        if each.metadata["Name"]:
            installed.setdefault(canonicalize_name(each.metadata["Name"]), each)
    versions = _resolved(name, version, python, installed)
    changed = [
        each
        for each, pinned in sorted(versions.items())
        if not (each in installed and installed[each].version == pinned)
    ]
    pins = [f"{each}=={versions[each]}" for each in changed]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fwbench"
    # An environment has links to what is in the folders now. Names are of one length, since a path's length moves what
    # lies behind it in memory.
    listed = {each: sorted(os.listdir(each)) for each in folders if os.path.isdir(each)}
    made = cache / hashlib.sha256(json.dumps([python, pins, listed]).encode()).hexdigest()[:16]
    if not made.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as temporary:
            folder = Path(temporary) / "environment"
            _install(folder, python, pins)
            _put_over(folder, folders, [installed[each] for each in changed if each in installed])
            with suppress(OSError):  # Another process was faster.
                folder.rename(made)
    below = [str(_below(made, number)) for number in range(len(folders))]
    return Environment(str(made / "bin" / "python"), versions, [str(_site_packages(made)), *below])


def _resolved(name: str, version: str, python: str, installed: Mapping[str, Distribution]) -> dict[str, str]:
    """The versions of a release, of what it requires and of what depends on it, by name; as installed if they fit."""
    asked = [f"{name}{_extras(name, installed)}=={version}", *_dependents(name, installed)]
    with tempfile.NamedTemporaryFile("w+", suffix=".txt", encoding="utf-8") as pins:
        # uv keeps the versions that a file to be written has already, wherever it can.
        pins.write("".join(f"{each}=={known.version}\n" for each, known in installed.items()))
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


def _below(environment: Path, number: int) -> Path:
    return environment / f"below-{number}"


def _put_over(environment: Path, folders: Sequence[str], replaced: Sequence[Distribution]) -> None:
    """Let an environment import what is in other folders, but for distributions that are replaced."""
    files = {Path(str(each.locate_file(file))) for each in replaced for file in each.files or ()}
    for number, folder in enumerate(folders):
        if os.path.isdir(folder):
            _link(Path(folder), _below(environment, number), files)
    # Unlike a plain path, `addsitedir` also reads that folder's own .pth files.
    text = f"import site, sys; [site.addsitedir(f'{{sys.prefix}}/below-{{each}}') for each in range({len(folders)})]\n"
    (_site_packages(environment) / "below.pth").write_text(text, encoding="utf-8")


def _link(folder: Path, to: Path, without: Set[Path]) -> None:
    """Link what is in a folder, without the files of replaced distributions.

    A release's package without `__init__.py` would otherwise give way to the replaced one that has it.
    """
    to.mkdir()
    parts = {parent for file in without for parent in file.parents}
    for each in folder.iterdir():
        if each in parts and each.is_dir():
            _link(each, to / each.name, without)
        elif each not in without and each.name != "__pycache__":
            (to / each.name).symlink_to(each)
    if not any(to.iterdir()):
        to.rmdir()


def _site_packages(environment: Path) -> Path:
    return next(environment.glob("lib/python*/site-packages"))


def _requirements(distribution: Distribution) -> Iterator[Requirement]:
    for text in distribution.requires or ():
        with suppress(InvalidRequirement):
            yield Requirement(text)


def _dependents(name: str, installed: Mapping[str, Distribution]) -> list[str]:
    """The distributions that depend on this one, directly or through others."""
    needs: dict[str, set[str]] = {
        each: {
            canonicalize_name(need.name)
            for need in _requirements(distribution)
            if need.marker is None or need.marker.evaluate({"extra": ""})
        }
        for each, distribution in installed.items()
    }
    dependents: set[str] = {canonicalize_name(name)}
    while more := {each for each, needed in needs.items() if needed & dependents} - dependents:
        dependents |= more
    return sorted(dependents - {canonicalize_name(name)})


def _extras(name: str, installed: Mapping[str, Distribution]) -> str:
    """The extras that are installed, such as `[cuda13]`; empty where there are none."""
    distribution = installed.get(canonicalize_name(name))
    known = distribution.metadata.get_all("Provides-Extra") or [] if distribution else []
    extras = [extra for extra in known if _has_extra(name, extra, installed)]
    return f"[{','.join(extras)}]" if extras else ""


def _has_extra(name: str, extra: str, installed: Mapping[str, Distribution]) -> bool:
    """Whether everything that an extra requires is installed, in a version that fits."""
    distribution = installed.get(canonicalize_name(name))
    needs = [
        need
        for need in (_requirements(distribution) if distribution else ())
        if need.marker and need.marker.evaluate({"extra": extra}) and not need.marker.evaluate({"extra": ""})
    ]
    return bool(needs) and all(
        (known := installed.get(canonicalize_name(need.name))) is not None
        and need.specifier.contains(known.version, prereleases=True)
        and all(_has_extra(need.name, more, installed) for more in need.extras)
        for need in needs
    )


def _uv(*arguments: str, given: str = "") -> "subprocess.CompletedProcess[str]":
    """Run uv.

    Args:
        given: its standard input.

    Raises:
        UserError: it is not installed.
    """
    folders = (os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath))
    uv = shutil.which("uv", path=os.pathsep.join(folders))
    if uv is None:
        raise UserError("uv, which installs releases, is not installed: pip install uv.")
    return _run([uv, *arguments], given)


def _run(command: list[str], given: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, input=given, capture_output=True, text=True, check=False)


def _last(done: "subprocess.CompletedProcess[str]") -> str:
    return line(done.stderr.strip().rpartition("\n")[2])


def _reason(done: "subprocess.CompletedProcess[str]") -> str:
    """What uv says, without the characters that draw lines."""
    return line(re.sub(r"[^\x00-\x7f]+|^error:", " ", done.stderr), 400)
