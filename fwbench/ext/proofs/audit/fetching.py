"""Brings a pair's code and packages onto this machine: checkouts of commits, and environments of their own."""

import hashlib
import os
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path

from fwbench import git
from fwbench.errors import UserError
from fwbench.ext.proofs.audit.pairs import PORT, Pair, Source, requirement
from fwbench.machine import versions
from fwbench.record import files
from fwbench.worker.client.asking import DOWNLOAD_DEADLINE, run


class NotRunnable(Exception):  # noqa: N818 - a verdict, not a fault
    """A pair cannot be proved here; the text gives the reason in one sentence."""


def checkout(source: Source, cache: Path, clones: str) -> Path:
    """A folder with a repository's Python files at the commit.

    Args:
        cache: where checkouts are kept.
        clones: the path of clones used in place of the address, with `{owner}` and `{name}` in it; may be empty.

    Raises:
        NotRunnable: git cannot bring it.
    """
    owner, _, name = source.title.rpartition("/")
    # An address may hold anything, and the folder lies in the cache.
    title = re.sub(r"[^\w.+-]", "_", f"{owner or 'local'}+{name}")[-100:]
    target = cache / "sources" / f"{title}-{source.commit[:12]}"
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        clone = Path(clones.format(owner=owner, name=name)) if clones else None
        if clone is None or not clone.is_dir():
            clone = Path(folder) / "clone"
            clone.mkdir()
            _git(source, clone, "init", "--quiet", "--bare")
            _git(source, clone, "fetch", "--quiet", "--depth", "1", "--", source.repository, source.commit)
        unpacked = Path(folder).resolve() / "files"
        unpacked.mkdir()
        # A stored clone may lack large files, so only Python files are read.
        taking = (f"--work-tree={unpacked}", "checkout", "--quiet", source.commit, "--", ":(glob)**/*.py")
        _git(source, clone, *taking, variables={"GIT_INDEX_FILE": str(unpacked.with_name("index"))})
        _refuse_links_outside(source, unpacked)
        unpacked.rename(target)
    return target


def _refuse_links_outside(source: Source, folder: Path) -> None:
    """Refuse links out of the repository, which would import files of this machine's as the repository's."""
    for path in folder.rglob("*"):
        # Up to Python 3.12 `Path.resolve` fails where links lead in a circle.
        if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(folder):
            raise NotRunnable(
                f"{source.repository} at {source.commit[:12]} cannot be unpacked: its {path.relative_to(folder)} is a "
                f"link to {os.readlink(path)}, outside of the repository"
            )


def interpreter(pair: Pair, cache: Path, *, install: bool) -> str:
    """An interpreter that has what a pair needs: this one, or one of an environment made for these needs.

    Args:
        cache: where environments are kept.
        install: whether packages that are missing may be installed there.

    Raises:
        NotRunnable: packages are missing.
    """
    missing = [need for need in pair.needs if not _is_met(need)]
    if not missing:
        return sys.executable
    if not install:
        raise NotRunnable(f"needs {', '.join(missing)}: --install makes an environment with it")
    digest = hashlib.sha256(" ".join(sorted(missing)).encode()).hexdigest()[:12]
    folder = cache / "environments" / digest
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        _call(sys.executable, "-m", "venv", str(folder))
        # Packages that are installed here can be imported there, too, behind the environment's own.
        here = [sysconfig.get_path(name) for name in ("purelib", "platlib")]
        (site,) = folder.glob("lib/python*/site-packages")
        added = "".join(f"import site; site.addsitedir({path!r})\n" for path in dict.fromkeys(here))
        (site / "fwbench-audit.pth").write_text(added, encoding="utf-8")
        _call(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *missing)
        (folder / "complete").touch()
    return str(python)


def lay_out(pair: Pair, cache: Path, clones: str) -> tuple[Path, tuple[Path, ...]]:
    """The folder of a pair, with its code and its repositories as modules, and the folders of its module path.

    Raises:
        NotRunnable: a repository cannot be had.
    """
    folder = cache / "pairs" / pair.name
    folder.mkdir(parents=True, exist_ok=True)
    for link in folder.iterdir():
        if link.is_symlink():
            link.unlink()
    files.write(folder / f"{PORT}.py", pair.code)
    path = [folder]
    for source in dict.fromkeys(each for each in pair.sources.values() if each.repository):
        link = folder / source.module
        link.symlink_to(checkout(source, cache, clones).resolve(), target_is_directory=True)
        if source.folder:
            path.append(link / source.folder)
    return folder, tuple(path)


def _is_met(need: str) -> bool:
    name, version = requirement(need)
    return any(version in ("", installed) for installed in versions((name,)).values())


def _git(source: Source, folder: Path, *arguments: str, variables: Mapping[str, str] | None = None) -> None:
    try:
        git.answer(folder, *arguments, variables=variables)
    except UserError as error:
        raise NotRunnable(f"{source.repository} at {source.commit[:12]} cannot be fetched: {error}") from None


def _call(*command: str) -> None:
    done = run(command, DOWNLOAD_DEADLINE)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().rpartition("\n")[2]
        raise NotRunnable(f"`{' '.join(command[1:])}` failed: {said}")
