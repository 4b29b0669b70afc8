import errno
import json
import os

import pytest

from fwbench.record import files
from fwbench.record.journal import SCHEMA, Journal, header, lines


def test_nothing_is_written_before_the_first_record(tmp_path):
    journal = Journal(tmp_path / "journal", {"profile": "quick"})
    journal.close()
    assert list(tmp_path.iterdir()) == []


def test_each_record_is_on_disk_when_append_returns(tmp_path):
    journal = Journal(tmp_path / "journal", {"profile": "quick"})
    for number in range(3):
        journal.append({"number": number})
        # Read before closing, as a run that was killed would leave it.
        first, *records = map(json.loads, journal.path.read_text().splitlines())
        assert records == [{"number": n} for n in range(number + 1)]
    assert (first["schema"], first["profile"]) == (SCHEMA, "quick")
    journal.close()


def test_a_line_that_could_not_be_written_leaves_no_part_behind(tmp_path):
    journal = Journal(tmp_path, {})
    journal.append({"number": 1})

    class Full:
        """A disk that takes five bytes of each line."""

        def __init__(self, file):
            self._file, self._left = file, 5

        def write(self, line):
            if not self._left:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            taken, self._left = self._left, 0
            return self._file.write(bytes(line[:taken]))

        def __getattr__(self, name):
            return getattr(self._file, name)

    whole, journal._file = journal._file, Full(journal._file)
    with pytest.raises(OSError, match="No space left") as raised:
        journal.append({"number": 2})
    assert raised.value.filename == str(journal.path)
    journal._file = whole
    journal.append({"number": 3})
    journal.close()
    found, cut = lines(journal.path.read_text())
    assert ([json.loads(line) for line in found[1:]], cut) == ([{"number": 1}, {"number": 3}], False)


def test_a_journal_that_begins_with_records_is_there_with_all_of_them_or_not_at_all(tmp_path):
    journal = Journal(tmp_path, {"profile": "quick"})
    seen = []

    def records():
        for number in range(3):
            seen.extend(tmp_path.glob("*.jsonl"))
            yield {"number": number}

    journal.begin(records())
    journal.append({"number": 3})
    journal.close()
    assert seen == []
    assert [json.loads(line).get("number") for line in journal.path.read_text().splitlines()] == [None, 0, 1, 2, 3]
    assert header(journal.path)["profile"] == "quick"


def test_a_named_journal_is_gone_on_with_in_the_place_of_a_line_that_was_cut_off(tmp_path):
    path = tmp_path / "suites.jsonl"
    for number in range(2):
        journal = Journal(tmp_path, {"by": number}, path.name)
        journal.append({"number": number})
        journal.close()
        path.write_bytes(path.read_bytes() + b'{"number": ')
    found, cut = lines(path.read_text())
    assert cut
    assert [json.loads(line).get("number") for line in found] == [None, 0, 1]
    assert header(path)["by"] == 0


@pytest.mark.parametrize("content", [b"", b"{}\n", b"[]\n", b"\xff\xfe\n", b'{"schema": 1}\n', b"[" * 100_000])
def test_what_is_no_header_is_none(tmp_path, content):
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    assert header(path) == {}


# Whole files


def test_a_file_is_replaced_in_one_go_and_keeps_its_mode_and_its_link(tmp_path):
    path, link = tmp_path / "x.json", tmp_path / "link"
    files.write(path, "first")
    path.chmod(0o640)
    link.symlink_to(path)
    with path.open() as reader:
        files.write(link, b"second")
        assert reader.read() == "first"
    assert link.is_symlink()
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("second", 0o640)
    assert sorted(found.name for found in tmp_path.iterdir()) == ["link", "x.json"]


@pytest.mark.parametrize("content", ["", "new", "a longer one"])
def test_in_a_folder_that_takes_no_new_file_a_file_is_written_over(tmp_path, monkeypatch, content):
    path = tmp_path / "x.json"
    path.write_text("the old")
    monkeypatch.setattr(files, "_locked", refused)
    files.write(path, content)
    assert path.read_text() == content
    with pytest.raises(PermissionError):
        files.write(tmp_path / "new.json", content)
    assert list(tmp_path.iterdir()) == [path]


def refused(folder):
    raise PermissionError(errno.EACCES, "no new file here")


def test_what_is_no_file_is_written_to(tmp_path):
    # Not tried on a device of the system's: what is to be shown here would replace it for everybody.
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    files.write(tmp_path / "pipe", "text")
    assert [found.is_fifo() for found in tmp_path.iterdir()] == [True]
    assert os.read(reader, 10) == b"text"
    os.close(reader)


def test_a_file_that_is_there_is_not_created(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    for linking in (os.link, lambda *_: (_ for _ in ()).throw(PermissionError(errno.EPERM, "no links here"))):
        monkeypatch.setattr(os, "link", linking)
        path.unlink(missing_ok=True)
        files.create(path, "first")
        with pytest.raises(FileExistsError):
            files.create(path, "second")
        assert path.read_text() == "first"
        assert list(tmp_path.iterdir()) == [path]
