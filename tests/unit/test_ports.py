"""The table of fwbench's networks beside public ports, made of given rounds."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "evidence" / "ports.py"


@pytest.fixture(scope="module")
def ports():
    spec = importlib.util.spec_from_file_location("ports", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def played(model, mode, batch, ours, theirs):
    checks = {"parameters": [1000, 1100], "flops": [2e9, 2.2e9], "difference": 3e-6}
    told = {"versions": {"jax": "1.0"}, "cpu": "A CPU"}
    return {"model": model, "mode": mode, "batch": batch, "ours": ours, "theirs": theirs, **checks, **told}


@pytest.fixture
def rows(ports):
    """Three processes, in which ours takes 0.5, 0.4 and 0.99 times as long; of ViT's training steps 1.2 times."""
    return [
        played(model, mode, batch, [3 * share, share, share], [3.0, 1.0, 1.0])
        for by in (0.5, 0.4, 0.99)
        for model in ports.PORTS
        for mode in ports.MODES
        for batch in ports.BATCHES
        for share in [1.2 if (model, mode) == ("vit_b_16", "train_step") else by]
    ]


def test_a_process_is_the_median_of_its_rounds_ratios(ports):
    assert ports.ratio({"ours": [1.0, 9.0, 4.0], "theirs": [2.0, 9.0, 5.0]}) == pytest.approx(0.8)


def test_a_row_has_the_median_the_least_and_the_greatest_of_the_processes(ports, rows):
    lines = ports.tables(rows)
    assert "| resnet50 | torchax | forward | 8 | 500 ms | 1 s | 0.50 | 0.40 to 0.99 | 3 |" in lines
    assert "| vit_b_16 | torchax | train step | 1 | 1.2 s | 1 s | **1.20** | 1.20 to 1.20 | 3 |" in lines
    assert sum("**" in line for line in lines) == len(ports.BATCHES)


def test_a_pair_that_was_not_played_has_no_row(ports, rows):
    lines = ports.tables([row for row in rows if row["mode"] == "inference"])
    assert any("forward" in line for line in lines)
    assert not any("train step" in line for line in lines)


def test_a_network_that_was_not_played_has_no_row(ports, rows):
    assert not any("vit" in line for line in ports.tables([row for row in rows if row["model"] != "vit_b_16"]))


def test_the_work_of_both_is_told_and_logits_of_equal_weights_alone(ports, rows):
    lines = ports.tables(rows)
    assert "| resnet50 | torchax | 1,000 | 1,100 | 2.000e+09 | 2.200e+09 | 3e-06 |" in lines
    assert "| efficientnet_b0 | keras | 1,000 | 1,100 | 2.000e+09 | 2.200e+09 | (other weights) |" in lines


def test_the_section_alone_is_written(ports, rows, tmp_path, monkeypatch):
    page = tmp_path / "method.md"
    page.write_text(f"before\n{ports.BEGIN}\nold\n{ports.END}\nafter\n")
    monkeypatch.setattr(ports, "PAGE", page)
    ports.write(rows)
    text = page.read_text()
    assert text.startswith(f"before\n{ports.BEGIN}\nA CPU, one core; jax 1.0.\n\n| network")
    assert text.endswith(f"|\n{ports.END}\nafter\n")
    assert "old" not in text


def test_rounds_of_two_machines_make_no_table(ports, rows):
    rows[0]["cpu"] = "Another"
    with pytest.raises(ValueError, match="too many values"):
        ports.write(rows)
