"""What shows that two lanes compute the same: five words, the speed-up beside three of them, and the notes."""

import dataclasses
import re

import numpy as np
import pytest

from fwbench.compare import parity
from fwbench.compare.cases import cases, over_seeds, settings
from fwbench.compare.parity import apart, doubts, evidence, tally
from fwbench.meters.sketching import _all_folded, sketches_of
from fwbench.record.measurement import Metric, unavailable
from fwbench.report import calls, ratios, summary
from fwbench.report.answers import answers, table
from fwbench.report.cards import cards
from tests.unit.recorded import measured, proof
from tests.unit.report.parsing import texts
from tests.unit.report.test_cases import record
from tests.unit.shared import needs

OUTPUT = np.linspace(1.0, 2.0, 8)


def sketched(output):
    """What a lane with this output keeps, which moves by a millionth."""
    return sketches_of(_all_folded({"output": output}, lengths=True), [_all_folded({"output": output * (1 + 1e-6)})])


CHECKS = {
    "agrees": sketched(OUTPUT),
    "differs": sketched(OUTPUT * 1.01),
    "fails": {"reason": "reading back what it computes failed: ValueError: no"},
    "absent": None,
}


def lane(name, check="agrees", state="", throughput=100.0, weights="abc", versions=None, stamp=None, **fields):
    """A lane's measurement with this check and a proof in this state; `stamp` is what else the proof says."""
    parity = {"weights": weights}
    if state is not None:
        parity["proof"] = proof(name, state, **(stamp or {}))
    if CHECKS[check] is not None:
        parity["check"] = CHECKS[check]
    return measured(name, throughput=throughput, parity=parity, versions=versions or {}, **fields)


def both(*jax, torch=None):
    """The evidence for PyTorch and JAX, each a list of processes or one."""
    first, second = over_seeds(cases([*(torch or [lane("torch")]), *jax]))
    return evidence(first, second)


REASON = "it has never been proved"


@pytest.mark.parametrize(
    ("state", "check", "word", "doubt"),
    [
        ("proved", "agrees", "proved", ""),
        ("proved", "absent", "proved", ""),
        ("proved", "fails", "proved", ""),
        # This run's own check can refute a proof.
        ("proved", "differs", "different", ""),
        ("missing", "agrees", "checked", REASON),
        ("missing", "absent", "unchecked", REASON),
        ("missing", "fails", "unchecked", REASON),
        ("missing", "differs", "different", ""),
        ("stale", "agrees", "checked", "jax was 0.12.0 and is 0.12.1"),
        ("stale", "absent", "unchecked", "jax was 0.12.0 and is 0.12.1"),
        ("stale", "differs", "different", ""),
        # What float64 refutes, this run's check is too blunt to defend.
        ("failed", "agrees", "different", ""),
        ("failed", "absent", "different", ""),
        ("failed", "differs", "different", ""),
        (None, "agrees", "checked", REASON),
        (None, "absent", "unchecked", REASON),
    ],
)
def test_a_proof_and_a_check_make_a_word(state, check, word, doubt):
    reasons = {"missing": REASON, "stale": "jax was 0.12.0 and is 0.12.1", "failed": "gradients differ"}
    shown = both(lane("jax", check, state, stamp={"reason": reasons[state]} if state in reasons else {}))
    assert shown.word == word
    assert shown.stale == doubt
    assert shown.detail
    if state == "failed" and check != "differs":
        assert shown.detail == "gradients differ"
    if check == "differs":
        assert shown.detail.startswith("outputs differ by 9.9e-03")


@pytest.mark.parametrize(("check", "word"), [("agrees", "checked"), ("absent", "unchecked"), ("differs", "different")])
def test_a_proof_of_other_versions_is_named_and_takes_nothing_away_from_a_check(check, word):
    """Each lane has an interpreter of its own: JAX's proof was made beside another PyTorch than the one measured."""
    jax = lane("jax", check, stamp={"versions": {"torch": "2.0"}}, versions={"jax": "0.12.1"})
    shown = both(jax, torch=[lane("torch", versions={"torch": "2.1"})])
    assert shown.word == word
    assert shown.stale == ("" if word == "different" else "torch was 2.0 and is 2.1")


@pytest.mark.parametrize(("check", "word"), [("agrees", "checked"), ("absent", "unchecked"), ("differs", "different")])
@pytest.mark.parametrize("beside", ["torch", "jax"])
def test_what_a_compiler_makes_of_a_network_is_checked_and_never_proved(beside, check, word):
    given = cases([lane(beside), lane("torch-compile", check)])
    assert evidence(*given).word == word
    assert apart(*given) == ("" if word == "checked" else word)
    # No command can say more.
    assert "fwbench prove" not in " ".join(doubts(given))


@pytest.mark.parametrize("state", ["reference", "missing", "proved", "failed", "alone"])
def test_lanes_of_one_framework_are_never_proved_whatever_their_proofs_say(state):
    """Those of older records, which called each lane of a framework what they called the first."""
    assert evidence(*cases([lane(name, state=state) for name in ("jax", "jax-compile")])).word == "checked"


OWN = {"program": "torch-compile"}


@pytest.mark.parametrize(("state", "word"), [("proved", "proved"), ("missing", "checked"), ("failed", "different")])
@pytest.mark.parametrize(("beside", "known"), [("torch", "reference"), ("torch", "alone"), ("jax", "proved")])
def test_a_compiled_program_with_a_proof_of_its_own_has_that_proofs_word(beside, known, state, word):
    stamp = {**OWN, "reason": "" if state == "proved" else "a reason"}
    given = cases([lane(beside, state=known), lane("torch-compile", state=state, stamp=stamp)])
    assert evidence(*given).word == evidence(*reversed(given)).word == word


def test_a_compiled_program_is_proved_beside_its_own_network_and_proved_lanes_alone():
    def word(name, state, beside="torch-compile:fused"):
        one, other = (
            lane(each, state=of, stamp={"framework": each.partition(":")[0].partition("-")[0], **more})
            for each, of, more in ((name, state, {}), (beside, "proved", OWN))
        )
        return evidence(*cases([one, other])).word

    assert word("torch:fused", "proved") == word("jax", "proved") == "proved"
    # No proof compares two networks of one framework.
    assert word("torch:eager", "proved") == word("jax", "missing") == "checked"


@needs("proofs")
@pytest.mark.parametrize(("jax", "lanes"), [("proved", "torch-compile"), ("stale", "jax,torch-compile")])
def test_the_command_that_is_advised_names_the_lanes_whose_programs_have_no_proof(jax, lanes):
    (doubt,) = doubts(cases([lane("jax", state=jax), lane("torch-compile", state="missing", stamp=OWN)]))
    assert f"`fwbench prove mlp --lanes {lanes}` proves them" in doubt


def test_a_program_whose_network_was_refuted_is_different_though_no_proof_runs_it():
    failed = lane("jax", state="failed", stamp={"reason": "gradients differ"})
    for given in ([failed, lane("torch-compile")], [lane("torch-compile"), failed]):
        shown = evidence(*cases(given))
        assert (shown.word, shown.detail) == ("different", "gradients differ")


@pytest.mark.parametrize(
    ("mode", "alone", "check", "word"),
    [
        ("inference", True, "agrees", "proved"),
        ("inference", True, "differs", "different"),
        ("inference", False, "agrees", "different"),
        ("train_step", True, "agrees", "different"),
        ("decode", True, "agrees", "different"),
    ],
)
def test_a_proof_that_fails_in_training_alone_holds_for_inference(mode, alone, check, word):
    stamp = {"reason": "gradients differ", "training_alone": alone}
    jax = lane("jax", check, "failed", mode=mode, stamp=stamp)
    assert both(jax, torch=[lane("torch", mode=mode)]).word == word


def test_a_proof_that_fails_in_training_alone_is_of_its_versions_too():
    stamp = {"reason": "gradients differ", "training_alone": True, "versions": {"torch": "2.0"}}
    shown = both(lane("jax", state="failed", stamp=stamp), torch=[lane("torch", versions={"torch": "2.1"})])
    assert (shown.word, shown.stale) == ("checked", "torch was 2.0 and is 2.1")


def test_two_lanes_without_a_framework_on_their_proofs_are_two():
    """Also those of a package that cannot prove anything."""
    given = [
        measured(name, parity={"weights": "abc", "check": CHECKS["agrees"], "proof": {"state": "missing"}})
        for name in ("numpy", "jax")
    ]
    assert evidence(*cases(given)).word == "checked"


@pytest.mark.parametrize(
    ("checks", "word"),
    [
        (("agrees", "agrees"), "checked"),
        (("agrees", "differs"), "different"),
        (("differs", "agrees"), "different"),
        (("agrees", "absent"), "checked"),
        (("absent", "absent"), "unchecked"),
    ],
)
@pytest.mark.parametrize("seeds", [(0, 0), (0, 1)])
def test_of_several_processes_one_that_differs_is_enough(checks, word, seeds):
    torch = [lane("torch", seed=seed) for seed in seeds]
    jax = [lane("jax", check, "missing", seed=seed) for check, seed in zip(checks, seeds, strict=True)]
    assert both(*jax, torch=torch).word == word


def test_processes_of_other_seeds_are_not_held_against_each_other():
    """They began with other weights, so their outputs differ."""
    torch = [lane("torch", seed=0), lane("torch", "differs", seed=1)]
    jax = [lane("jax", state="missing", seed=0), lane("jax", "differs", "missing", seed=1)]
    assert both(*jax, torch=torch).word == "checked"
    shown = both(lane("jax", state="missing", seed=1), torch=[lane("torch", seed=0)])
    assert (shown.word, shown.detail) == ("unchecked", "no two processes of theirs began alike")


def test_one_process_without_a_proof_is_enough_to_lose_it():
    shown = both(lane("jax"), lane("jax", state="missing", stamp={"reason": REASON}))
    assert (shown.word, shown.stale) == ("checked", REASON)


def test_what_was_not_measured_alike_comes_before_every_word():
    torch, jax = cases([lane("torch"), lane("jax", "differs", weights="def")])
    assert apart(torch, jax) == "other weights"
    torch, jax = cases([lane("torch"), lane("jax")])
    assert (apart(torch, jax), evidence(torch, jax).word) == ("", "proved")
    torch, jax = cases([lane("torch"), lane("jax", "absent", "missing")])
    assert apart(torch, jax) == "unchecked"


# Each word, and how a lane comes by it.
WORDS = {
    "proved": {},
    "checked": {"state": "missing", "stamp": {"reason": REASON}},
    "different": {"check": "differs"},
    "quantised": {
        "check": "differs",
        "settings": {"quantised": "int8"},
        "metrics": {"output_error": Metric(4e-3, "against float64 in torch")},
    },
    "unchecked": {"check": "absent", "state": "missing", "stamp": {"reason": REASON}},
}
ADMITTED = ("proved", "checked", "quantised")


def beside(expected):
    return cases([lane("torch"), lane("jax", throughput=300.0, **WORDS[expected])])


@pytest.mark.parametrize("expected", WORDS)
def test_every_table_has_the_word_and_a_speed_up_beside_three_of_them(expected):
    given, admits = beside(expected), expected in ADMITTED
    # The terminal's, and those of the report.
    torch, row = texts(calls.table("inference", "", given, "torch"))
    assert row["speed-up"] == ("3.00x" if admits else expected)
    assert row["evidence"].strip(" -") == (expected if admits else "")
    assert (torch["speed-up"], torch["evidence"].strip(" -")) == ("1.00x", "")

    found = ratios.ratios(given, "torch")
    (row,) = texts(ratios.table(found, "torch"))
    assert row["ratio"] == ("3.00x" if admits else expected)
    assert row["evidence"] == expected

    (answer,) = answers(given)
    assert answer.shown == (3.0 if admits else expected)
    (row,) = texts(table([answer]))
    assert (row["ratio"], row["evidence"]) == ("3.00x" if admits else "-", expected)

    ((card,),) = cards([answer]).values()
    if admits:
        said = "with quantised weights" if expected == "quantised" else f"{expected} to compute the same"
        assert card.rests.endswith(f"; {said}")
    else:
        assert card.kind == "apart"
        assert expected in card.sentence


@pytest.mark.parametrize("expected", WORDS)
def test_the_terminals_table_has_the_word(expected):
    measurements = [lane("torch"), lane("jax", throughput=300.0, **WORDS[expected])]
    header, *lines = summary.table(measurements)
    assert re.split(r"\s{2,}", header.strip())[-1] == "evidence"
    (torch, jax) = (line.split() for line in lines)
    assert torch[-1] == "1.00x"
    assert jax[-2:] == ["3.00x", expected] if expected in ADMITTED else jax[-1] == expected
    # The numbers stand, whatever the word; below the table what it rests on is said.
    assert "300" in jax
    assert set(doubts(cases(measurements))) <= set(summary.every_note(measurements))


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, "quantised"),
        ({"settings": {}}, "different"),
        # Without its error nothing vouches for it.
        ({"metrics": {"output_error": unavailable("float64", "it is not finite")}}, "unchecked"),
        ({"metrics": {}}, "unchecked"),
        ({"mode": "train_step"}, "unchecked"),
        # Networks that differ in float64 differ in int8.
        ({"state": "failed"}, "different"),
    ],
)
def test_quantised_weights_need_an_error_in_place_of_agreement(changes, word):
    given = cases([lane("torch", mode=changes.get("mode", "inference")), lane("jax", **WORDS["quantised"] | changes)])
    assert evidence(*given).word == word
    # No proof is of rounded weights.
    assert word == "different" or "fwbench prove" not in " ".join(doubts(given))


def test_what_shows_that_a_lane_does_not_compute_holds_for_quantised_weights_too():
    quantised = lane("jax", **WORDS["quantised"])
    for fault in ({"follows": False}, {"remembers": [1.0, 0.1]}):
        check = {**quantised.parity["check"], **fault}
        faulty = dataclasses.replace(quantised, parity={**quantised.parity, "check": check})
        torch = lane("torch")
        torch = dataclasses.replace(torch, parity={**torch.parity, "check": {**CHECKS["agrees"], "follows": True}})
        assert evidence(*cases([torch, faulty])).word == "different"


def test_a_lane_alone_has_no_speed_up_and_no_column_of_evidence():
    header, row = summary.table([lane("jax")])
    assert "evidence" not in header
    assert not re.search(r"[\d.]x\b", row)


def test_every_table_says_what_the_words_mean():
    given = beside("checked")
    for shown in (calls.table("inference", "x", given, "torch"), ratios.table(ratios.ratios(given, "torch"), "torch")):
        text = repr(shown)
        assert all(re.search(rf"{name} \(", text) for name in WORDS if name != "unchecked"), text
        assert "unchecked (" in text


UNTRIED = "a value above 9 (net.py, line 3)"


@pytest.mark.parametrize(("check", "word"), [("agrees", "checked"), ("absent", "unchecked"), ("differs", "different")])
def test_a_proof_that_left_a_choice_untried_proves_nothing_by_itself(check, word):
    found = both(lane("jax", check, "proved", stamp={"untried": [UNTRIED]}))
    assert (found.word, found.stale) == (word, UNTRIED if word != "different" else "")


def test_what_was_not_tried_is_said_and_no_proof_advised():
    told = over_seeds(cases([lane("torch"), lane("jax", state="proved", stamp={"untried": [UNTRIED]})]))
    (doubt,) = doubts(told)
    assert f"mlp ({UNTRIED})" in doubt
    assert "fwbench prove" not in doubt


def test_what_is_proved_raises_no_doubt():
    assert doubts(beside("proved")) == []


@needs("proofs")
def test_what_is_checked_alone_is_named_once_with_the_command_that_proves_it():
    given = [
        lane(name, model=model, batch_size=batch_size, **(WORDS["checked"] if name == "jax" else {}))
        for model in ("mlp", "my net")
        for batch_size in (1, 8)
        for name in ("torch", "jax")
    ]
    stale = lane("jax", model="cnn", state="stale", stamp={"reason": "jax was 0.12.0 and is 0.12.1"})
    assert doubts(cases([*given, lane("torch", model="cnn"), stale])) == [
        "checked in this run, and not proved for these versions: mlp, my net (it has never been proved); cnn (jax was "
        "0.12.0 and is 0.12.1). `fwbench prove mlp 'my net' cnn` proves them in float64"
    ]


@needs("proofs")
def test_the_command_names_the_interpreter_that_has_to_prove():
    """The one that `--fwbench-python` named, where the versions are that were measured."""
    named = {"python": "/opt/jax 1/bin/python", "reason": "jax was 0.12.0 and is 0.12.1"}
    for words, says in ((WORDS["checked"], "proves them in float64"), (WORDS["unchecked"], "proves it, or says")):
        given = [
            lane(name, model=model, **({**words, "stamp": named} if name == "jax" else {}))
            for model in ("mlp", "cnn")
            for name in ("torch", "jax")
        ]
        given.append(lane("jax", model="vit", stamp={"python": "/not/of/these"}))
        (doubt,) = doubts(cases(given))
        assert f"`fwbench prove mlp cnn --python 'jax=/opt/jax 1/bin/python'` {says}" in doubt


@needs("proofs")
def test_what_is_unchecked_is_named_once_with_its_reason_and_the_command():
    given = [lane("torch"), lane("torch-compile"), lane("jax", **WORDS["unchecked"])]
    (doubt,) = doubts(cases(given))
    assert doubt == (
        "no speed-up where nothing shows that the lanes compute the same: mlp (jax: the record does not say what was "
        "computed; it has never been proved). `fwbench prove mlp` proves it, or says what differs"
    )
    (doubt,) = doubts(cases([lane("torch"), lane("jax", "fails", "missing", stamp={"reason": REASON})]))
    assert "jax: reading back what it computes failed: ValueError: no; it has never been proved" in doubt


@needs("proofs")
def test_what_differs_is_an_error_that_says_what_and_by_how_much_and_where_to_look():
    (doubt,) = doubts(beside("different"))
    assert re.fullmatch(
        r"error: torch and jax do not compute the same in inference of mlp: outputs differ by 9\.9e-03 \(bound "
        r"\de-0\d\)\. They have no speed-up; `fwbench prove mlp` tells more",
        doubt,
    )
    # A refuted proof is told in its own words.
    (doubt,) = doubts(cases([lane("torch"), lane("jax", state="failed", stamp={"reason": "gradients differ"})]))
    assert "do not compute the same in inference of mlp: gradients differ. They have no speed-up" in doubt


@pytest.mark.parametrize("state", ["alone", "derived"])
def test_no_proof_is_advised_where_there_is_nothing_to_prove(state):
    (doubt,) = doubts(cases([lane("torch"), lane("jax", "differs", state)]))
    assert "do not compute the same in inference of mlp" in doubt
    assert "fwbench prove" not in doubt


@pytest.mark.parametrize("fields", [WORDS["checked"], WORDS["unchecked"], WORDS["different"], {"weights": "def"}])
def test_no_command_is_advised_that_is_not_here(monkeypatch, fields):
    monkeypatch.setattr(parity, "addition", lambda kind: "")
    (doubt,) = doubts(cases([lane("torch"), lane("jax", **fields)]))
    assert "fwbench" not in doubt


@needs("proofs")
def test_each_kind_of_doubt_has_one_sentence():
    given = [
        lane(name, model=model, **fields)
        for model, how in WORDS.items()
        for name, fields in (("torch", {}), ("jax", how))
    ]
    given += [lane("torch", model="light"), lane("jax", "differs", model="light", weights="def")]
    told = doubts(cases(given))
    assert [line.partition(" ")[0] for line in told] == ["error:", "error:", "no", "checked"]
    assert "inference of different" in told[0]
    assert "began with different weights in light" in told[1]
    assert "`fwbench prove unchecked`" in told[2]
    assert "`fwbench prove checked`" in told[3]


def test_runs_of_several_records_keep_their_word():
    jax = lane("jax", state="stale", stamp={"reason": "torch was 2.0 and is 2.1"})
    given = settings([record(lane("torch"), jax) for _ in range(3)])[0].cases
    (answer,) = answers(given)
    assert answer.evidence == "checked"


def test_the_tally_counts_pairs_of_lanes_and_says_how_near_they_come():
    given = cases([lane("torch"), lane("jax", state="missing"), lane("torch", "agrees", model="cnn")])
    assert list(tally(given)) == ["mlp"]
    assert tally(given)["mlp"].startswith("checked 1 (outputs agree within 0.0e+00 (bound ")
    wrong = cases([lane("torch"), lane("torch-compile"), lane("jax", "differs")])
    assert [part[:11] for part in tally(wrong)["mlp"].split("; ")] == ["checked 1 (", "different 2"]
