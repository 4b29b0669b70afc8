"""Environments of releases, made by the real uv from wheels in a folder, without a network."""

import os
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import distributions
from pathlib import Path
from types import SimpleNamespace

import pytest

from fwbench.errors import UserError
from fwbench.ext.bisect import releases
from fwbench.ext.bisect.releases import between, environment
from fwbench.models.importing import INSTALLED
from fwbench.worker.turns import sides
from tests.unit.shared import finish


def wheel(folder, name, version, needs=(), extras=(), urls=(), lane=False):
    """Make a wheel whose module states its version; or that of a lane of fwbench's."""
    info = f"{name}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    metadata += [f"Requires-Dist: {need}" for need in needs] + [f"Project-URL: {url}" for url in urls]
    metadata += [f"Provides-Extra: {extra}" for extra in extras]
    files = {
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": "\n".join(metadata) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if lane:
        files[f"{info}/entry_points.txt"] = f"[fwbench.lanes]\n{name} = {name}:LANE\n"
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Framework 1.0 to 3.0 with a compiler for each, two networks' libraries, one of which depends on it."""
    folder = tmp_path_factory.mktemp("wheels")
    for version in ("1.0", "1.1", "2.0", "3.0"):
        urls = (f"Changelog, https://example.org/{version}",) if version == "2.0" else ()
        extras = {"gpu": "plugin", "cuda": "framework-cuda-plugin"}
        needs = [
            f"compiler=={version}",
            *(f"{needed}=={version}; extra == '{extra}'" for extra, needed in extras.items()),
        ]
        wheel(folder, "framework", version, ("absent",) if version == "3.0" else needs, extras, urls)
        wheel(folder, "compiler", version)
        wheel(folder, "plugin", version)
    wheel(folder, "framework_cuda_plugin", "1.1")
    wheel(folder, "framework", "3.1rc1")
    wheel(folder, "layers", "1.0", ("framework<2",))
    wheel(folder, "layers", "1.5", ("framework>=1.1",))
    wheel(folder, "layers", "2.0", ("framework>=2",))
    wheel(folder, "alone", "1.0")
    wheel(folder, "alone", "2.0")
    return folder


@pytest.fixture(scope="module")
def made(wheels, tmp_path_factory):
    """An environment with framework 1.1, which each test has a copy of."""
    if not shutil.which("uv", path=os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"]))):
        pytest.skip("uv, which makes environments of releases, is not installed: pip install uv")
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UV_FIND_LINKS", str(wheels))
        patch.setenv("UV_NO_INDEX", "1")
        patch.setenv("UV_OFFLINE", "1")
        patch.setenv("UV_CACHE_DIR", str(folder / "uv"))
        assert not releases._uv("venv", "--python", sys.executable, str(folder / "below")).returncode
        install(folder / "below" / "bin" / "python", "framework==1.1", "layers==1.0", "alone==1.0")
        yield folder / "below"


@pytest.fixture
def below(made, tmp_path, monkeypatch):
    """The interpreter of an environment with framework 1.1."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    environment.cache_clear()
    shutil.copytree(made, tmp_path / "below", symlinks=True)
    return str(tmp_path / "below" / "bin" / "python")


def install(python, *requirements):
    done = releases._uv("pip", "install", "--python", str(python), *requirements)
    assert not done.returncode, done.stderr


def has(python, name, variables=None):
    """The version that an interpreter imports."""
    code, environment = f"import {name}; print({name}.VERSION)", {**os.environ, **(variables or {})}
    return finish(python, "-c", code, check=True, env=environment).stdout.strip()


def test_releases_are_those_that_can_be_had(below):
    assert between("framework", "1.0", "2.0", below) == ["1.0", "1.1", "2.0"]
    assert between("framework", "1.1", "1.9", below) == ["1.1"]
    # A release candidate is no release.
    assert between("framework", "1.1", "9", below) == ["1.1", "2.0", "3.0"]
    with pytest.raises(UserError, match=r"uv finds no release of nothing from 1 to 2 for .*: .*nothing"):
        between("nothing", "1", "2", below)


def test_an_error_ends_no_list_of_releases(below, monkeypatch):
    """Else the range would be shorter than what was asked for."""
    answers = iter([subprocess.CompletedProcess([], 0, "framework==2.0\n", "")])
    failed = subprocess.CompletedProcess([], 2, "", "error: Failed to fetch")
    monkeypatch.setattr(releases, "_uv", lambda *_, **__: next(answers, failed))
    with pytest.raises(UserError, match=r"from 1\.0 to 2\.0 for .*Failed to fetch"):
        between("framework", "1.0", "2.0", below)


def test_requirements_are_those_of_the_interpreter_below(tmp_path):
    (tmp_path / "old-1.0.dist-info").mkdir()
    metadata = "Metadata-Version: 2.1\nName: old\nVersion: 1.0\nRequires-Dist: framework; python_version < '3.2'\n"
    (tmp_path / "old-1.0.dist-info" / "METADATA").write_text(metadata)
    installed = {"old": next(iter(distributions(path=[str(tmp_path)])))}
    for version, dependents in (("3.1", ["old"]), ("3.13", [])):
        markers = {"python_version": version, "python_full_version": f"{version}.0"}
        assert releases._Below(installed, markers).dependents("framework") == dependents


def test_a_release_brings_what_it_requires_and_what_depends_on_it(below):
    made = environment("framework", "2.0", below)
    assert {name: has(made.python, name) for name in ("framework", "compiler", "layers")} == {
        "framework": "2.0",
        "compiler": "2.0",
        "layers": "2.0",
    }
    assert made.versions == {"framework": "2.0", "compiler": "2.0", "layers": "2.0"}
    assert (made.changelog("framework"), made.changelog("layers")) == ("https://example.org/2.0", "")


def test_all_else_stays_as_it_is(below):
    made = environment("framework", "1.0", below)
    assert (has(made.python, "framework"), has(made.python, "compiler")) == ("1.0", "1.0")
    # It still fits, so it is no newer one, and comes from below.
    assert (has(made.python, "layers"), made.versions["layers"]) == ("1.0", "1.0")
    assert has(made.python, "alone") == "1.0"
    assert {each.name for each in Path(made.folders[0]).glob("*.py")} >= {"framework.py", "compiler.py"}
    assert not (Path(made.folders[0]) / "layers.py").exists()
    assert has(below, "framework") == "1.1"


def test_what_is_below_counts_as_installed_and_not_as_the_users_own(below):
    """Proofs, records and choices tell both by their folders; a user's own sources are all read and parsed."""
    code = "import alone, framework; print(alone.__file__); print(framework.__file__)"
    made = environment("framework", "2.0", below)
    printed = finish(made.python, "-c", code, check=True).stdout
    assert [bool(INSTALLED & {*Path(place).parts}) for place in printed.split()] == [True, True]


def test_an_extra_that_is_installed_goes_along(below):
    assert "plugin" not in environment("framework", "2.0", below).versions
    install(below, "framework[gpu]==1.1")
    environment.cache_clear()
    assert environment("framework", "2.0", below).versions["plugin"] == "2.0"


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_a_release_without_its_plugin_for_cuda_is_skipped_only_where_a_gpu_is_in_use(below, monkeypatch, device):
    install(below, "framework[cuda]==1.1")
    monkeypatch.setattr(releases, "machine", lambda: SimpleNamespace(device=device))
    if device == "cpu":
        assert "framework-cuda-plugin" not in environment("framework", "2.0", below).versions
        return
    with pytest.raises(UserError, match=r"framework 2\.0 cannot be installed here"):
        environment("framework", "2.0", below)


@pytest.mark.parametrize("local", [True, False])
def test_a_lanes_package_is_neither_looked_for_nor_in_the_way(below, wheels, tmp_path, local):
    """It stays as it is, with a release that its bounds leave out; one from a folder is in no index."""
    folder = tmp_path if local else wheels
    wheel(folder, "somelane", "1.0", ("framework>=1.1",), lane=not local)
    install(below, str(tmp_path / "somelane-1.0-py3-none-any.whl") if local else "somelane")
    made = environment("framework", "1.0", below)
    assert made.versions == {"framework": "1.0", "compiler": "1.0", "layers": "1.0"}
    assert has(made.python, "somelane") == "1.0"


def test_an_extra_in_another_version_is_not_installed(below):
    install(below, "plugin==2.0")
    assert "plugin" not in environment("framework", "1.0", below).versions


def test_paths_below_work_as_in_site_packages(below, tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "mine.py").write_text("VERSION = 'mine'\n")
    site = next((tmp_path / "below").glob("lib/python*/site-packages"))
    (site / "editable.pth").write_text(f"{tmp_path / 'more'}\n")
    assert has(environment("framework", "2.0", below).python, "mine") == "mine"


def test_what_is_replaced_cannot_be_imported_from_below(below, tmp_path):
    """A folder with `__init__.py` wins over one without, even if it comes later in the path."""
    site = next((tmp_path / "below").glob("lib/python*/site-packages"))
    for folder, file in (("framework_plugin", "__init__.py"), ("shared", "of_framework.py"), ("shared", "other.py")):
        (site / folder).mkdir(exist_ok=True)
        (site / folder / file).write_text("")
    with next(site.glob("framework-*/RECORD")).open("a") as record:
        record.write("framework_plugin/__init__.py,,\nshared/of_framework.py,,\n")
    python = environment("framework", "2.0", below).python
    done = finish(python, "-c", "import shared.other; import framework_plugin")
    assert "No module named 'framework_plugin'" in done.stderr
    assert finish(python, "-c", "import shared.of_framework").returncode == 1
    assert {each.name for each in (site / "shared").iterdir()} >= {"of_framework.py", "other.py"}
    code = "import importlib.metadata as m; print([d.version for d in m.distributions() if d.name=='framework'])"
    assert finish(python, "-c", code, check=True).stdout == "['2.0']\n"


def test_an_environment_is_made_once(below, monkeypatch):
    made = environment("framework", "2.0", below)
    environment.cache_clear()
    monkeypatch.setattr(releases, "_install", lambda *arguments: pytest.fail("installed again"))
    assert environment("framework", "2.0", below) == made
    assert len(list(Path(made.python).parents[2].iterdir())) == 1


def test_what_is_installed_below_later_is_there_too(below):
    first = environment("framework", "2.0", below).python
    environment.cache_clear()
    install(below, "plugin==1.0", "alone==2.0")
    second = environment("framework", "2.0", below).python
    assert first != second
    assert (has(second, "plugin"), has(second, "alone")) == ("1.0", "2.0")


def test_environments_differ_with_what_is_asked_for(below):
    """A path's length moves memory, so all environments' paths have one length."""
    first = environment("framework", "1.0", below).python
    second = environment("framework", "2.0", below).python
    assert first != second
    assert len(first) == len(second)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("framework", "3.0"), "framework 3.0 cannot be installed here: "),
        (("framework", "4.0"), "framework 4.0 cannot be installed here: "),
        (("nothing", "1.0"), "nothing 1.0 cannot be installed here: "),
    ],
)
def test_what_cannot_be_installed_is_one_sentence(below, asked, words):
    with pytest.raises(UserError, match=words) as raised:
        environment(*asked, below)
    assert "\n" not in str(raised.value)
    assert str(raised.value).isascii()


def test_no_interpreter_is_one_sentence(below, tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    python.chmod(0o755)
    with pytest.raises(UserError, match=r"python does not say .* exit code 3 .* \(broken\)$"):
        environment("framework", "2.0", str(python))


def test_without_uv_it_is_one_sentence(below, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(UserError, match="uv, which installs releases, is not installed: pip install uv"):
        between("framework", "1.0", "2.0", below)


def test_a_duet_takes_a_release_as_its_base(below, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)
    monkeypatch.setattr(sys, "executable", below)
    base, _ = sides.find("framework==2.0", tmp_path)
    assert has(base.python, "framework") == "2.0"
    assert base.revision is None
