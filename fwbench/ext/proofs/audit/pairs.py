"""The list of an audit: pairs of public networks, read from TOML."""

import keyword
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from fwbench.errors import UserError, hint
from fwbench.models import Model, inputs
from fwbench.models.inputs import Input
from fwbench.record import files
from fwbench.record.lanes import LANES

# The functions of fwbench that describe an input; a table in the list names one of them and gives its arguments.
_INPUTS = ("image", "tokens", "integers", "normal", "uniform", "ones")
# Arguments of fwbench.Model that a pair may give. Networks and inputs are written in another way here.
_ARGUMENTS = ("axes", "output", "loss", "weights", "tolerance", "conv", "linear", "proof_axes", "proof_batch")
_KEYS = ("name", "kind", "input", "inputs", "targets", "needs", "code", "fix", "note", *_ARGUMENTS)
_SIDE_KEYS = ("network", "repository", "commit", "folder", "module", "package")
_NEED = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)(?:==(?P<version>[\w.+!-]+))?")
# The module that a pair's `code` becomes.
PORT = "port"
_ADDRESS = re.compile(r"(?P<owner>[\w.-]+)/(?P<name>[\w.-]+?)(?:\.git)?/?$")


@dataclass(frozen=True)
class Source:
    """The origin of a network's code.

    Attributes:
        repository: an address for git; empty if the code is an installed package.
        commit: its hash in full.
        folder: the folder of the repository that is put on the module path; empty for none.
        module: the name under which the whole repository can be imported, as `module.file`.
        package: the installed distribution, in place of a repository.
    """

    repository: str = ""
    commit: str = ""
    folder: str = ""
    module: str = ""
    package: str = ""

    @property
    def title(self) -> str:
        """For readers: owner and name, or the distribution."""
        address = _ADDRESS.search(self.repository)
        return f"{address['owner']}/{address['name']}" if address else self.package or self.repository


@dataclass(frozen=True)
class Pair:
    """Two public networks that are said to be the same.

    Attributes:
        kind: the kind of network, for the table.
        model: both networks; the module `port` in their import paths is `code`.
        sources: by framework.
        needs: distributions, as `name` or `name==version`.
        code: text of a module with factories and a mapping of weights.
        fixed: the model with a network in which the difference is mended; None where there is none.
        fix: what the mended network changes.
        note: for readers of the table.
        table: the pair as it stands in the list.
    """

    name: str
    kind: str
    model: Model
    sources: Mapping[str, Source]
    needs: tuple[str, ...]
    code: str
    fixed: Model | None
    fix: str
    note: str
    table: Mapping[str, Any]


def read(path: Path) -> list[Pair]:
    """The pairs of a list.

    Raises:
        UserError: it cannot be read, or a pair makes no sense; the sentence says which and why.
    """
    try:
        tables = tomllib.loads(files.read(path).decode()).get("pair")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is no TOML: {error}.") from None
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise UserError(f"{path} has no pairs: each is a table [[pair]] (docs/your-model.md shows one).")
    pairs = []
    for number, table in enumerate(tables, 1):
        try:
            pairs.append(_pair(table))
        except (ValueError, TypeError, AttributeError) as error:
            raise UserError(f"{path}: pair {table.get('name', number)!r}: {error}.") from None
    names = [pair.name for pair in pairs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"{path}: two pairs are called {twice[0]!r}: rename one of them.")
    return pairs


def requirement(need: str) -> tuple[str, str]:
    """Name and version of a distribution; the version is empty where any will do."""
    match = _NEED.fullmatch(need)
    if not match:
        raise ValueError(f"{need!r} in needs is neither name nor name==version")
    return match["name"], match["version"] or ""


def _pair(table: Mapping[str, Any]) -> Pair:
    frameworks = {lane.framework for lane in LANES.values() if lane.parity}
    _check(table, (*_KEYS, *frameworks))
    sides = {name: table[name] for name in table if name in frameworks}
    if len(sides) != 2:
        raise ValueError(f"a pair has two frameworks, and this one has {len(sides)}: {', '.join(sides) or 'none'}")
    networks: dict[str, Any] = {framework: _text(side, "network", framework) for framework, side in sides.items()}
    if ("input" in table) == ("inputs" in table):
        raise ValueError("give either input, the only one, or inputs by name")
    given = {name: table[name] for name in _ARGUMENTS if name in table}
    if "targets" in table:
        given["targets"] = _input(table["targets"])
    one = _input(table["input"]) if "input" in table else {n: _input(each) for n, each in table["inputs"].items()}
    name = _text(table, "name", "the pair")
    fix = table.get("fix", {})
    _check(fix, ("what", *networks))
    paths: dict[str, Any] = {framework: path for framework, path in fix.items() if framework in networks}
    needs = (*table.get("needs", ()), *(side["package"] for side in sides.values() if "package" in side))
    for need in needs:
        requirement(need)
    sources = {framework: _source(side, framework) for framework, side in sides.items()}
    modules = [source.module for source in dict.fromkeys(sources.values()) if source.module]
    if len(set(modules)) < len(modules):
        raise ValueError(f"two repositories are called {modules[0]!r}: give one of them another name by module")
    return Pair(
        name,
        _text(table, "kind"),
        Model(name, inputs=one, **given, **networks),
        sources,
        tuple(dict.fromkeys(needs)),
        _text(table, "code"),
        Model(f"{name}-fixed", inputs=one, **given, **networks | paths) if paths else None,
        fix.get("what", ""),
        _text(table, "note"),
        table,
    )


def _source(side: Mapping[str, Any], framework: str) -> Source:
    _check(side, _SIDE_KEYS)
    if ("package" in side) == ("repository" in side):
        raise ValueError(f"{framework} names either a package or a repository")
    if "package" in side:
        return Source(package=requirement(side["package"])[0])
    repository = _text(side, "repository")
    commit = _text(side, "commit", framework)
    if not re.fullmatch("[0-9a-f]{40}", commit):
        raise ValueError(f"the commit {commit!r} of {framework} is not written in full, as 40 digits")
    address = _ADDRESS.search(repository)
    module = _text(side, "module") or re.sub(r"\W", "_", address["name"] if address else Path(repository).stem)
    # A folder of this name, with a repository in it, lies beside the pair's own code.
    if not module.isidentifier() or keyword.iskeyword(module) or module == PORT:
        raise ValueError(
            f"{module!r} of {framework} can be imported as no module of its own: give it a name by module, such as "
            "'theirs'"
        )
    folder = PurePosixPath(_text(side, "folder"))
    if folder.is_absolute() or ".." in folder.parts:
        raise ValueError(f"the folder {str(folder)!r} of {framework} lies outside of its repository")
    return Source(repository, commit, str(folder) if side.get("folder") else "", module)


def _input(table: Mapping[str, Any]) -> Input:
    kinds = [kind for kind in _INPUTS if isinstance(table, Mapping) and kind in table]
    if len(kinds) != 1:
        example = "{ tokens = [16], vocabulary = 64 }"
        raise ValueError(f"an input is a table with one of {', '.join(_INPUTS)}, as in {example}")
    arguments = {name: value for name, value in table.items() if name != kinds[0]}
    described: Input = getattr(inputs, kinds[0])(*table[kinds[0]], **arguments)
    return described


def _text(table: Mapping[str, Any], key: str, where: str = "") -> str:
    """A text of a table; empty where the table has none, unless `where` names who must have it."""
    value = table.get(key, None if where else "") if isinstance(table, Mapping) else None
    if where and not isinstance(value, str):
        raise ValueError(f"{where} lacks {key!r}")
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"{key} = {value!r} is no text")
    return value


def _check(table: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in table:
        if key not in known:
            raise ValueError(f"unknown key {key!r}: {hint(key, known)}")
