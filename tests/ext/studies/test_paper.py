"""What an author takes from a report: captions, units, intervals, forms for a column, and text that can be copied."""

import dataclasses
import re
import shutil
import sys
from pathlib import Path

import pytest

from fwbench import units
from fwbench.compare.cases import settings
from fwbench.ext.studies import latex, paper
from fwbench.ext.studies.latex_text import escape
from fwbench.record import reading
from fwbench.report.columns import axis_columns
from fwbench.report.origin import origin
from fwbench.report.tables import Column, Spread, tabulate
from tests.ext.studies.tex import compiled, complaints, copied, needs_tex
from tests.unit.recorded import MACHINE, failed, fitted, measured, metric, saved, write
from tests.unit.report.conftest import GOLDEN
from tests.unit.shared import finish
from tests.unit.test_text import BAD

DOCS = Path(__file__).parents[3] / "docs" / "reports.md"
NAMES = (
    "naïve_é_ñ_ü_ß_Łódź_ő_ç_å_Ž_đ_ø",
    'a--b,,c ``d`` <<e>> |f| ~g ^h "i" \\j {k} $l &m %n #o',
    "± \N{MULTIPLICATION SIGN} ≤ ≥ \N{EN DASH} — · ° µ € “q”",
    "e\N{COMBINING ACUTE ACCENT} [0] *x* -- --- ?`",
)


def caption(text):
    short, long = re.search(r"\\caption\[\{(.*)\}\]\{(.*)\}\\label", text).groups()
    return short, long


def origin_of(record, mode="inference", tmp_path=None):
    (setting,) = settings([reading.read(write(tmp_path / "record.json", record))])
    return origin(setting, mode)


def versioned(lane, version, **fields):
    return measured(lane, versions={lane: version, "numpy": "2"}, **fields)


def test_a_caption_says_where_its_numbers_are_from(tmp_path):
    record = saved(versioned("torch", "2.15.0"), versioned("jax", "0.12.0"), fitted("torch", 0), fitted("torch", 1))
    assert origin_of(record, "inference", tmp_path) == (
        "Some CPU, 2 threads; torch 2.15.0, jax 0.12.0; commit f00d; n = 1 process a row"
    )
    fit = origin_of(record, paper.MODES["final-epoch"], tmp_path)
    assert fit.endswith("; torch 2.15.0; commit f00d; n = 2 processes a row")
    assert origin_of(record, "", tmp_path).endswith("n = 1 to 2 processes a row")


@pytest.mark.parametrize("mode", ["prefill", "decode"])
def test_a_table_of_one_mode_states_the_versions_of_that_mode(tmp_path, mode):
    record = saved(versioned("torch", "2.15.0"), versioned("jax", "0.12.0", mode=mode))
    assert "; jax 0.12.0; " in origin_of(record, paper.MODES[mode], tmp_path)


def test_a_caption_counts_the_processes_of_one_measurement(tmp_path):
    several = measured(processes=({"latency": 1.0}, {"latency": 2.0}, {"latency": 3.0}))
    assert origin_of(saved(several), tmp_path=tmp_path).endswith("n = 3 processes a row")


def test_a_caption_says_what_the_commit_does_not(tmp_path):
    dirty = saved(measured(), commit_info={"id": "0123456789abcdef", "branch": "main", "dirty": True})
    assert "commit 0123456789 with uncommitted changes;" in origin_of(dirty, tmp_path=tmp_path)
    assert "commit not recorded" in origin_of(saved(measured(), commit_info=None), tmp_path=tmp_path)


def test_a_gpu_is_named_with_its_driver(tmp_path):
    gpu = dataclasses.replace(MACHINE, device="gpu", accelerator="NVIDIA H200", driver="570.1")
    assert origin_of(saved(measured(), machine=gpu), tmp_path=tmp_path).startswith("NVIDIA H200, driver 570.1; ")


@pytest.fixture(scope="module")
def tex(golden):
    """The golden report's files."""
    return {path.relative_to(golden).as_posix(): path.read_text() for path in golden.rglob("*.tex")}


def test_captions_are_short_and_leave_numbering_to_latex(tex):
    for name, text in tex.items():
        if name.startswith("tables/"):
            short, long = caption(text)
            assert "Table" not in short.partition("(")[0]
            assert long.startswith(short)
            # With the machine's name, versions and commit.
            assert len(long.split()) <= 40, long
            assert "commit" in long
            assert r"\fwbenchnote{" in text


def test_files_hold_ascii_alone(tex):
    assert all(text.isascii() for text in tex.values())


def test_labels_are_unique_within_a_setting_and_across_settings(report):
    other = dataclasses.replace(MACHINE, cpu="Another CPU")
    both = [measured("torch", batch_size=n) for n in (1, 8)] + [measured("jax", batch_size=n) for n in (1, 8)]
    out = report(saved(*both), saved(*both, machine=other), formats="latex")
    found = re.findall(r"\\label\{(.*?)\}", "".join(path.read_text() for path in out.rglob("*.tex")))
    assert len(found) == len(set(found)) > 20
    assert {"tab:setting-1-inference", "tab:setting-2-inference-column", "fig:setting-2-throughput-bars"} <= set(found)
    # Where a figure's snippet looks for it.
    snippet = (out / "setting-2" / "figures" / "throughput-bars-column.tex").read_text()
    file = re.search(r"\\includegraphics\[width=\\columnwidth\]\{(.*)\}", snippet)[1]
    assert (out / f"{file}.pdf").exists()


def made(*columns, rows, narrow=None, missing=()):
    table = tabulate("made", "Table II: made", "How.", columns, rows, missing)
    return latex.write(table, "x", "here") if narrow is None else latex.write_narrow(table, "x", "here", narrow)


def body(text):
    lines = text.partition("\\midrule\n")[2].partition("\n\\bottomrule")[0].splitlines()
    return [line.removesuffix(r" \\") for line in lines]


def number(name, place, unit, show, absent="-"):
    return Column(name, lambda row: row[place], unit, show, absent)


def test_in_a_column_of_a_paper_two_columns_may_have_one_name():
    """An axis of a model may be called as a metric is."""
    columns = [Column("model", lambda row: row[0]), Column("ratio", lambda row: row[1], "1")]
    columns += [number(name, place, "1", units.ratio) for place, name in enumerate(("ratio", "from", "to"), 2)]
    text = made(*columns, rows=[("a", 16, 2.0, 1.5, 3.0), ("b", 32, 1.25, 1.0, 1.5)], narrow=set())
    assert body(text) == [r"{a} & 16 & 2.00 & \numrange{1.50}{3.00}", r"{b} & 32 & 1.25 & \numrange{1.00}{1.50}"]


def test_an_axis_with_the_name_of_a_minor_column_is_kept():
    rows = [measured(lane, axes=(("n", size),)) for lane, size in (("torch", 16), ("jax", 32))]
    columns = [Column("lane", lambda m: m.workload.lane), *axis_columns(rows), Column("n", lambda m: 5, "1")]
    assert body(made(*columns, rows=rows, narrow={"n"})) == ["{torch} & 16", "{jax} & 32"]


def test_a_column_has_the_unit_that_most_of_it_is_shown_in():
    columns = [number("p50", 0, "s", units.seconds), number("p99", 1, "s", units.seconds, "n/a")]
    text = made(*columns, rows=[(0.0123, 0.5), (0.1, None), (0.0000286, 1.5), (1.25, 0.0104)])
    assert r"p50 \\ (\unit{\milli\second})" in text
    # Columns of one unit can be compared.
    assert r"p99 \\ (\unit{\milli\second})" in text
    assert body(text) == ["12.3 & 500", "100 & {n/a}", "0.0286 & 1500", "1250 & 10.4"]
    assert "S[table-format=4.4]S[table-format=4.1]" in text


def scattered(value):
    return f"{value:.3f}±{value.sd:.3f}"


@pytest.mark.parametrize(
    ("unit", "show", "values", "cells", "head"),
    [
        ("B", units.size, [2.0**30, 1.5 * 2.0**30, 2.0**20], ["1.00", "1.50", "0.000977"], r"(\unit{\gibi\byte})"),
        ("B", units.size, [units.AtMost(3 * 2.0**20)], [r"\num{\le 3.00}"], r"(\unit{\mebi\byte})"),
        ("J", units.joules, [0.0021, 1.5], ["2.10", "1500"], r"(\unit{\milli\joule})"),
        ("1/s", units.rate, [2.5e6, 12.3], ["2500000", "12.3"], r"(\unit{\per\second})"),
        ("1", units.ratio, [1.234, 0.5], ["1.23", "0.50"], "{x}"),
        ("1", "{:.0%}".format, [0.25], ["25"], r"(\unit{\percent})"),
        ("1", "{:.1e}".format, [1e-14], [r"\num{1.0e-14}"], "{x}"),
        ("1", "{:,.0f}".format, [12345.0], ["12345"], "{x}"),
        ("1", scattered, [Spread(0.5, 0.01)], [r"\num[separate-uncertainty]{0.500 \pm 0.010}"], "{x}"),
        ("s", "{:.1f} lightyears".format, [2.0], ["{2.0 lightyears}"], "{x}"),
    ],
)
def test_numbers_are_siunitxs(unit, show, values, cells, head):
    text = made(number("x", 0, unit, show), rows=[(value,) for value in values])
    assert body(text) == cells
    assert head in text.partition(r"\midrule")[0]


def test_words_among_numbers_are_no_numbers():
    text = made(number("speed-up", 0, "1", units.ratio), rows=[("unproved",), ("[b",), (1.5,)])
    assert body(text) == ["{unproved}", "{[b}", "1.50"]


ROWS = [
    ("a", "jax", 8, 1.5, 1.2, 1.9, None, 6),
    ("a", "jax", 8, 1.4, None, None, None, 5),
    ("b", "jax", 8, 2.0, 1.0, 4.0, None, 5),
]


def test_a_table_for_a_column_has_what_differs_and_intervals_in_one():
    given = [("model", "", str), ("lane", "", str), ("batch", "1", str)]
    given += [(name, "1", units.ratio) for name in ("ratio", "from", "to")]
    given += [("energy", "J", units.joules), ("pairs", "1", str)]
    columns = (number(name, place, unit, show) for place, (name, unit, show) in enumerate(given))
    text = made(*columns, rows=ROWS, narrow={"pairs"})
    assert caption(text) == ("Made", "Made: lane jax; batch 8; here.")
    assert body(text) == [
        r"\multicolumn{2}{@{}l}{\itshape a}",
        r"1.50 & \numrange{1.20}{1.90}",
        "1.40 & {-}",
        r"\addlinespace",
        r"\multicolumn{2}{@{}l}{\itshape b}",
        r"2.00 & \numrange{1.00}{4.00}",
    ]
    assert r"{ratio} & {interval}" in text


def test_a_table_of_one_row_for_each_name_needs_no_lines_between():
    text = made(number("model", 0, "", str), number("x", 1, "1", str), rows=[("a", 1.5), ("b", 2.5)], narrow=())
    assert body(text) == ["{a} & 1.5", "{b} & 2.5"]


def test_names_of_columns_begin_no_option():
    text = made(number("long [name] *of* torch.compile", 0, "s", units.seconds), rows=[(1.0,)])
    head = text.partition("\\toprule\n")[2].partition("\n")[0]
    assert head == r"{\shortstack[r]{long \\ {}[name] \\ {}*of* \\ torch. \\ compile \\ (\unit{\second})}} \\"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("é", r"\'{e}"),
        ("e\N{COMBINING ACUTE ACCENT}", r"\'{e}"),
        ("Ő", r"\H{O}"),
        ("ł", r"\l{}"),
        ("a---b", "a-{}-{}-b"),
        ("_", r"\_"),
        ("漢", "[cjk unified ideograph-6f22]"),
        ("\x07", "[U+0007]"),
        ("ế", "[latin small letter e with circumflex and acute]"),
    ],
)
def test_text_is_set_as_it_is(text, shown):
    assert escape(text) == shown


def test_without_matplotlib_there_are_tables_and_a_word_on_figures(tmp_path):
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from fwbench.commands.cli import main\n"
        f"sys.exit(main(['report', {str(GOLDEN)!r}, '--out', {str(tmp_path)!r}, '--format', 'latex']))"
    )
    done = finish(sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
    assert "no figures for LaTeX" in done.stdout
    assert (tmp_path / "tables" / "inference.tex").exists()
    assert not (tmp_path / "figures").exists()


def two_columns(folder, names):
    """Of 3.4 inches each, which is what is documented."""
    size = r"\usepackage[textwidth=7in,columnsep=0.2in]{geometry}"
    lines = [
        r"\documentclass[twocolumn]{article}",
        size,
        r"\usepackage{lmodern}",
        r"\input{preamble}",
        r"\begin{document}",
    ]
    (folder / "paper.tex").write_text("\n".join([*lines, *(rf"\input{{{name}}}" for name in names), r"\end{document}"]))
    return compiled(folder, "paper")


@needs_tex
def test_the_documented_snippet_compiles(golden, tmp_path):
    (tmp_path / "report").symlink_to(golden)
    (block,) = re.findall(r"```latex\n(.*?)```", DOCS.read_text(), re.DOTALL)
    (tmp_path / "paper.tex").write_text(block)
    assert complaints(compiled(tmp_path, "paper")) == []
    text = copied(tmp_path / "paper.pdf")
    assert "Table 1 and Figure 1 fit a column" in " ".join(text.split())
    assert "Table 1: Inference at the largest batch: " in text
    fonts = finish("pdffonts", tmp_path / "paper.pdf", check=True).stdout
    # Bitmaps and Type 3 fonts are what journals send back.
    assert "Type 3" not in fonts
    assert "no  yes" not in fonts


@needs_tex
def test_tables_for_a_column_fit_into_one(golden, report, tmp_path):
    """Of three lanes with long names and all metrics, too."""
    metrics = {name: metric(1.5) for name in ("latency_p50", "latency_p95", "latency_p99", "energy_per_sample")}
    metrics |= {"host_peak_memory": dataclasses.replace(metric(3e9), at_most=True)}
    calls = [
        measured(lane, model, mode, batch, throughput=1234.0 * batch, metrics=metrics)
        for mode in ("inference", "train_step")
        for model in ("mobilenet_v3_small", "efficientnet_b0")
        for batch in (8, 128)
        for lane in ("torch", "torch-compile", "jax")
    ]
    fits = [fitted(lane, seed, scale=1 + seed / 7) for lane in ("torch", "torch-compile", "jax") for seed in range(3)]
    for number, folder in enumerate((golden, report(saved(*calls, *fits), formats="latex"))):
        names = sorted(
            path.relative_to(folder).with_suffix("").as_posix() for path in folder.glob("tables/*-column.tex")
        )
        assert len(names) == 7
        paper_of = tmp_path / f"paper-{number}"
        paper_of.mkdir()
        for part in ("tables", "preamble.tex"):
            (paper_of / part).symlink_to(folder / part)
        assert complaints(two_columns(paper_of, names)) == []


@needs_tex
def test_what_is_copied_is_what_was_named(report, tmp_path):
    out = report(saved(*(measured("torch", name) for name in NAMES)), formats="latex")
    log = compiled(out)
    assert "Missing character" not in log
    text = copied(out / "tables.pdf")
    for name in (*NAMES[:3], "é [0] *x* -- --- ?`"):
        assert name in text


@needs_tex
def test_a_note_can_be_left_out(golden, tmp_path):
    for part in ("tables", "preamble.tex"):
        (tmp_path / part).symlink_to(golden / part)
    (tmp_path / "paper.tex").write_text(
        "\\documentclass{article}\\newcommand{\\fwbenchnote}[1]{}\\input{preamble}\\begin{document}"
        "\\input{tables/summary}\\end{document}"
    )
    compiled(tmp_path, "paper")
    assert "Samples per second by lane" not in copied(tmp_path / "paper.pdf")


@needs_tex
def test_the_golden_report_compiles_without_a_warning_or_a_table_that_is_too_wide(golden, tmp_path):
    shutil.copytree(golden, tmp_path / "out")
    assert complaints(compiled(tmp_path / "out")) == []


@needs_tex
def test_hostile_names_compile(hostile, tmp_path):
    shutil.copytree(hostile, tmp_path / "out")
    assert "Missing character" not in compiled(tmp_path / "out")


@needs_tex
def test_tables_longer_than_a_page_compile(report):
    out = report(saved(*(measured("torch", batch_size=n) for n in range(1, 120)), fitted(), failed()), formats="latex")
    assert r"\begin{longtable}" in (out / "tables" / "inference.tex").read_text()
    compiled(out)


def test_latex_shows_every_command_as_text():
    table = tabulate("x", r"\input{x}", "x", (Column(r"\input{x}", lambda item: r"\input{x}"),), [1])
    assert not re.search(r"\\input", latex.write(table, "x", r"\input{x}"))


def test_latex_has_no_characters_that_nobody_sees():
    assert escape(BAD).isascii()
    assert "\n" not in escape(BAD)
