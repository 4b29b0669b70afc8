"""Text on its way out: what somebody wrote in a record is text there, and nothing else."""

import csv as csv_module
import io

import pytest

from fwbench import text
from fwbench.commands.cli import commands, main
from fwbench.report.formats import csv, markdown
from fwbench.report.look import printable
from fwbench.report.tables import Column, tabulate
from tests.unit.recorded import measured, plain, saved, write

# An escape sequence, a line break, what turns the direction of text, half a character.
BAD = "a\x1b[2J\x9bb\r\nc\u202ed\u2066e\ud800f\u2028g\x00"
SEEN = "a\ufffd[2J\ufffdb c\ufffdd\ufffde\ufffdf g\ufffd"


@pytest.mark.parametrize("way", [text.line, text.cell, text.markdown])
def test_what_is_not_seen_is_a_mark_and_all_is_on_one_line(way):
    assert way(BAD).replace("\\", "") == SEEN
    assert way("größe 漢字 🙂") == "größe 漢字 🙂"


def test_html_keeps_line_breaks_alone():
    assert text.visible(BAD.replace("\u2028", "")) == SEEN.replace("b c", "b\ufffd\nc").replace("f g", "fg")


def test_figures_have_no_such_characters():
    assert printable(BAD) == SEEN.replace("b c", "b  c")


@pytest.mark.parametrize(
    "name", ["=cmd|'/C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\uff1d1", "\uff0b1", "\uff0d1", "\uff201"]
)
def test_no_cell_and_no_header_of_a_spreadsheet_is_a_formula(name):
    columns = (Column(name, lambda item: name), Column("n", lambda item: 1.5, "s"))
    table = tabulate("x", "x", "x", columns, [1], failure=lambda item: name)
    rows = list(csv_module.reader(io.StringIO(csv.write(table))))
    assert [rows[0][0], rows[1][0], rows[1][-1]] == [f"'{name.strip()}"] * 3
    assert rows[1][1] == "1.5"


def test_a_negative_number_is_no_formula():
    table = tabulate("x", "x", "x", (Column("n", lambda item: -1.5, "s"),), [1])
    assert csv.write(table).splitlines()[1] == "-1.5,"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("@org/team", "@&#8203;org/team"),
        ("#1", "\\#&#8203;1"),
        ("GH-1", "GH&#8203;-1"),
        ("https://x.y", "https:&#8203;//x.y"),
        ("www.x.y", "www&#8203;.x.y"),
        ("<b>&lt;", "&lt;b&gt;&amp;lt;"),
        ("a|b", "a&#124;b"),
        ("$x$ {y} ![z](w)", "\\$x\\$ \\{y\\} \\!\\[z\\](w)"),
        ("- item", "\\- item"),
        ("+ item", "\\+ item"),
        ("---", "\\---"),
        ("1. item", "1\\. item"),
        ("1) item", "1\\) item"),
        ("1.5 ms", "1.5 ms"),
        ("-1.5 %", "-1.5 %"),
        ("# x", "\\# x"),
    ],
)
def test_a_name_means_nothing_to_markdown(name, shown):
    assert text.markdown(name) == shown
    table = tabulate("x", name, name, (Column(name, lambda item: name),), [1], missing=[name])
    document = markdown.document(name, [(name, [name], [table])])
    assert document.count(shown) == 8


def test_what_is_too_long_is_cut():
    assert text.line("x" * 20, 10) == "xxxxxxx..."
    assert text.line("x" * 10, 10) == "x" * 10


def test_the_commands_send_nothing_but_text_to_the_terminal(tmp_path, capsys, monkeypatch):
    """Names of lanes, models, tests, files and settings, in results and in refusals."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "a\x1b[2J\nb"
    folder.mkdir()
    bad = BAD.replace("\ud800", "").replace("\x00", "")
    for number in range(2):
        own = {"settings": {"x": f"{bad}{number}"}, "stages": {bad: float(number)}}
        record = saved(measured("torch", bad), measured(bad, "mlp", **own), measured("jax", **own))
        record["benchmarks"].append(plain(bad))
        record["commit_info"]["id"] = bad
        record["datetime"] = f"2026-11-2{number}T09:10:10+00:00"
        write(folder / f"{number}.json", record)
    files = [str(folder / f"{number}.json") for number in range(2)]
    codes = [
        main(["report", *files, "--format", "csv"]),
        main(["compare", *files]),
        *([main(["history", str(folder)])] if "history" in commands() else []),
        main(["report", str(folder / "none.json")]),
        main(["compare", str(folder / bad), files[0]]),
    ]
    said = capsys.readouterr()
    assert codes == [0, 4, *([0] if "history" in commands() else []), 4, 4]
    assert said.err.count("\n") == 2
    for line in (said.out + said.err).replace("\n", ""):
        assert line.isprintable()


def test_a_terminal_that_cannot_show_a_name_shows_its_code(tmp_path, monkeypatch):
    stream = io.TextIOWrapper(shown := io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stderr", stream)
    assert main(["report", str(tmp_path / "größe.json")]) == 4
    stream.flush()
    assert b"gr\\xf6\\xdfe.json does not exist" in shown.getvalue()


def test_columns_are_as_wide_as_their_widest_cell_and_numbers_stand_flush_right():
    assert text.columns([("lane", "", "ms"), ("torch-compile", "", "9")], left=2) == [
        "lane             ms",
        "torch-compile     9",
    ]
    assert text.columns([("lane", "ms"), ("jax", "10")]) == ["lane  ms", "jax   10"]
    assert text.columns([]) == []


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (1.123, "+12.3%"),
        (0.5, "-50.0%"),
        (9.9, "+890.0%"),
        (12.3, "12.3 times"),
        (1459.178, "1,459 times"),
        (1 / 12.3, "1/12.3"),
        (1 / 1459.178, "1/1,459"),
        (float("inf"), "unknown"),
    ],
)
def test_a_change_beyond_tenfold_is_told_in_times(ratio, said):
    assert text.change(ratio) == said


def test_a_small_change_is_shown_as_it_is_asked_for():
    assert [text.change(ratio, "{:+.0%}".format) for ratio in (1.123, 20.0)] == ["+12%", "20.0 times"]
