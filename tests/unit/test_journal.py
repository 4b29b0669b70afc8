import json

from fwbench.record.journal import SCHEMA, Journal


def test_nothing_is_written_before_the_first_record(tmp_path):
    journal = Journal(tmp_path / "journal", {"profile": "quick"})
    journal.close()
    assert list(tmp_path.iterdir()) == []


def test_each_record_is_on_disk_when_append_returns(tmp_path):
    journal = Journal(tmp_path / "journal", {"profile": "quick"})
    for number in range(3):
        journal.append({"number": number})
        # Read before closing, as a run that was killed would leave it.
        header, *records = map(json.loads, journal.path.read_text().splitlines())
        assert records == [{"number": n} for n in range(number + 1)]
    assert (header["schema"], header["profile"]) == (SCHEMA, "quick")
    journal.close()
