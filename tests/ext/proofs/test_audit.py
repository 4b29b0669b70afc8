"""`fwbench audit` over repositories made here, and what it says of a list that makes no sense."""

import sys

import pytest

from fwbench.commands.cli import main
from fwbench.ext.proofs.audit import fetching, pairs, table
from fwbench.ext.proofs.audit.verdicts import Verdict
from tests.unit.shared import finish, git
from tests.unit.suites import commit

TORCH = "def net(x):\n    from torch.nn.functional import gelu\n\n    return gelu(x)\n"
JAX = "def net(x, approximate=True):\n    import jax\n\n    return jax.nn.gelu(x, approximate)\n"
SIDE = '{{ network = "{network}", repository = "{address}", commit = "{commit}", module = "{module}" }}'


@pytest.fixture
def repository(tmp_path):
    """A function that makes a repository of one file, and returns its address and commit."""

    def make(name, text):
        folder = tmp_path / "somebody" / name
        folder.mkdir(parents=True)
        (folder / "net.py").write_text(text)
        commit(folder)
        return str(folder), git(folder, "rev-parse", "HEAD")

    return make


def one_pair(name, torch, jax, network="port:net", rest="", code=""):
    original = SIDE.format(network="original.net:net", address=torch[0], commit=torch[1], module="original")
    port = SIDE.format(network=network, address=jax[0], commit=jax[1], module="ported")
    return (
        f'[[pair]]\nname = "{name}"\nkind = "function"\ninput = {{ normal = [8] }}\ntorch = {original}\njax = {port}\n'
        f"{rest}code = '''\n{code}'''\n"
    )


EXACT = "def net(x):\n    from ported.net import net\n\n    return net(x, approximate=False)\n"


@pytest.mark.slow
def test_each_pair_has_its_verdict_in_the_table(repository, tmp_path, capsys):
    torch, jax = repository("original", TORCH), repository("port", JAX)
    gone = (jax[0], "0" * 40)
    given = tmp_path / "list.toml"
    fix = 'fix = { what = "`approximate=False`", jax = "port:net" }\nnote = "One argument."\n'
    given.write_text(
        one_pair("exact", torch, jax, code=EXACT)
        + one_pair("tanh", torch, jax, "ported.net:net", fix, EXACT)
        + one_pair("gone", torch, gone)
        + one_pair("lacking", torch, jax, rest='needs = ["no-such-distribution-of-anybody"]\n', code=EXACT)
    )
    output = tmp_path / "audit.md"
    command = ["audit", str(given), "--cache", str(tmp_path / "cache"), "--output", str(output)]
    assert main(command) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "exact: same in inference"
    assert said[1].startswith("tanh: different in output; the same with `approximate=False`: ")
    assert f"gone: not runnable: {jax[0]} at 000000000000 cannot be fetched: " in said[2]
    assert said[3] == (
        "lacking: not runnable: needs no-such-distribution-of-anybody: --install makes an environment with it"
    )
    assert said[4] == "4 pairs: 1 same, 1 different, 2 not runnable"
    page = output.read_text()
    assert page.startswith("# Ports by others, proved\n")
    assert f"somebody/port@&#8203;{jax[1][:7]}" in page
    assert "the proof says: same. One argument" in page

    # What is known is not proved again, and the verdict stays; a pair alone leaves the others as they are.
    assert main([*command, "--only", "tanh"]) == 1
    assert capsys.readouterr().out == "4 pairs: 1 same, 1 different, 2 not runnable\n"


@pytest.mark.slow
def test_files_of_a_difference_are_named_from_the_pairs_folder(repository, tmp_path, capsys):
    broken = repository("port", "def net(x):\n    raise ValueError('no such shape')\n")
    given = tmp_path / "list.toml"
    given.write_text(one_pair("broken", repository("original", TORCH), broken, "ported.net:net"))
    assert main(["audit", str(given), "--cache", str(tmp_path / "cache")]) == 4
    said = capsys.readouterr().out.splitlines()[0]
    assert said.startswith("broken: not runnable: ")
    assert said.endswith("raised ValueError: no such shape (ported/net.py, line 2)")


def test_clones_stand_in_for_addresses(repository, tmp_path):
    _, commit = repository("port", JAX)
    source = pairs.Source("https://example.org/somebody/port", commit, module="port")
    pattern = str(tmp_path / "{owner}" / "{name}")
    files = fetching.checkout(source, tmp_path / "cache", pattern)
    assert (files / "net.py").read_text() == JAX
    (tmp_path / "somebody").rename(tmp_path / "away")
    assert fetching.checkout(source, tmp_path / "cache", pattern) == files


def test_an_environment_sees_what_is_installed_here_too(tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "_is_met", lambda need: need != "missing")
    calls = []
    call = fetching._call
    monkeypatch.setattr(
        fetching,
        "_call",
        lambda *command: calls.append(command) or ("pip" in command or call(*command, "--without-pip")),
    )
    pair = pairs.read(_list(tmp_path, 'needs = ["pytest", "missing"]'))[0]
    python = fetching.interpreter(pair, tmp_path, install=True)
    assert calls[1][1:4] == ("-m", "pip", "install")
    assert calls[1][-1] == "missing"
    done = finish(python, "-c", "import pytest; print(pytest.__version__)")
    assert done.stdout.strip() == pytest.__version__
    assert fetching.interpreter(pair, tmp_path, install=True) == python
    assert len(calls) == 2
    monkeypatch.setattr(fetching, "_is_met", lambda need: True)
    assert fetching.interpreter(pair, tmp_path, install=False) == sys.executable


PAIR = """[[pair]]
name = "one"
input = { normal = [8] }
torch = { network = "port:torch", package = "torch" }
jax = { network = "port:jax", package = "jax" }
"""


def _list(tmp_path, more="", pair=PAIR):
    given = tmp_path / "list.toml"
    given.write_text(f"{pair}{more}\n")
    return given


@pytest.mark.parametrize(
    ("pair", "more", "sentence"),
    [
        ("", "", "has no pairs: each is a table [[pair]]"),
        ("[[pair]", "", "is no TOML: "),
        (PAIR, 'nme = "two"', "pair 'one': unknown key 'nme': the nearest is 'name'"),
        (
            PAIR,
            'tensorflow = { network = "port:keras", package = "keras" }',
            "a pair has two frameworks, and this one has 3",
        ),
        (PAIR, "inputs.x = { normal = [8] }", "give either input, the only one, or inputs by name"),
        (PAIR.replace("{ normal = [8] }", "[8]"), "", "an input is a table with one of image, tokens"),
        (PAIR.replace('"port:jax"', '"port"'), "", "'port' is no import path: write it as package.module:name"),
        (PAIR.replace('package = "jax"', 'repository = "a/b"'), "", "jax lacks 'commit'"),
        (
            PAIR.replace('package = "jax"', 'repository = "a/b", commit = "1ab"'),
            "",
            "is not written in full, as 40 digits",
        ),
        (PAIR.replace(', package = "jax"', ""), "", "jax names either a package or a repository"),
        (PAIR, 'needs = ["a>=1"]', "'a>=1' in needs is neither name nor name==version"),
        (PAIR, PAIR, "two pairs are called 'one': rename one of them"),
        (PAIR, "tolerance = { outputs = 1e-8 }", "unknown quantity 'outputs' in tolerance"),
    ],
)
def test_a_list_that_makes_no_sense_is_one_sentence(pair, more, sentence, tmp_path, capsys):
    assert main(["audit", str(_list(tmp_path, more, pair))]) == 4
    said = capsys.readouterr().err
    assert said.startswith("fwbench: ")
    assert sentence in said
    assert said.count("\n") == 1


def test_other_mistakes_are_one_sentence_too(tmp_path, capsys):
    given = _list(tmp_path)
    for arguments, sentence in (
        ([str(tmp_path / "none.toml")], "cannot be read: No such file or directory"),
        ([str(given), "--only", "tow"], "has no pair 'tow': "),
        ([str(given), "--sources", "{commit}"], "--sources takes a path with {owner} and {name} in it"),
    ):
        assert main(["audit", *arguments]) == 4
        said = capsys.readouterr().err
        assert sentence in said
        assert said.count("\n") == 1


def test_the_suites_own_list_is_read_and_its_code_compiles():
    given = pairs.read(pairs.Path(__file__).parents[3] / "audits" / "ports.toml")
    assert len(given) >= 30
    for pair in given:
        compile(pair.code, pair.name, "exec")


def test_what_a_sentence_says_stays_text_in_the_table(tmp_path):
    pair = pairs.read(_list(tmp_path))[0]
    page = table.page([(pair, Verdict("needs one | other"))], "list.toml")
    assert "| needs one &#124; other | 0.0 |" in page
