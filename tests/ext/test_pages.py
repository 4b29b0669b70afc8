"""Pages that name tests of the core and of extensions."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "reliability.md"


def test_the_page_of_faults_names_no_test_that_there_is_not():
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text(encoding="utf-8")))
    texts = [path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py")]
    defined = {name for text in texts for name in re.findall(r"def (test_\w+)", text)}
    assert named
    assert named <= defined
