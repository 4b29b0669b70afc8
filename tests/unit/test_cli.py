"""The shell's words before any command runs."""

import importlib

import pytest

import fwbench
from fwbench.commands.cli import commands, main
from tests.unit.shared import needs


@pytest.fixture
def given(monkeypatch):
    """Runs a command that does nothing, and returns its options."""

    def parse(command, *words):
        seen = []
        module = importlib.import_module(commands()[command][1])
        monkeypatch.setattr(module, "_run", lambda options: seen.append(options) or 0)
        assert main([command, *words]) == 0
        return seen[0]

    return parse


def test_fields_may_stand_behind_options(given):
    assert given("measure", "lane=jax", "--profile=quick", "model=m").fields == ["lane=jax", "model=m"]


@pytest.mark.parametrize("words", [["list", "models"], ["measure", "lane=jax", "--nosuch"], ["report", "--nosuch=1"]])
def test_what_no_command_knows_is_refused(words, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert f"unrecognized arguments: {words[-1]}" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--output", "--out"])
@pytest.mark.parametrize(
    "words", [["report"], pytest.param(["audit", "a.toml"], marks=needs("proofs")), ["measure", "lane=jax"]]
)
def test_what_is_written_goes_where_output_says(given, words, option):
    assert str(given(*words, option, "there").output) == "there"


def test_the_version_is_told(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"fwbench {fwbench.__version__}\n"


@pytest.mark.parametrize("command", commands())
def test_every_commands_help_describes_it(command, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    described = capsys.readouterr().out.partition("\n\n")[2].partition("\n\n")[0]
    assert len(described.split()) > 8
    assert not described.startswith(("options", "positional"))
