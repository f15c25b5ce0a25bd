"""The journal: whole lines, whoever is killed; a run goes on without it; it has a limit; all that was told is read."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys

import pytest

from tidemill.observe import journal
from tidemill.observe.journal import Happening, JournalReader, JournalWriter, line_of, old_one, read_journal


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run" / "journal.jsonl"


@pytest.fixture
def passing(monkeypatch):
    """Time, in seconds, that passes when a test says so."""
    now = [100.0]
    monkeypatch.setattr(journal, "monotonic", lambda: now[0])
    return now


def happening(number, about="worker2.1"):
    return Happening(number, "coordinator.1", "lost", about)


def abouts(path):
    return [h.about for h in read_journal(path)]


def test_a_line_is_the_object_that_it_says(path):
    writer = JournalWriter(path)
    writer.write(happening(7))
    writer.close()
    assert path.read_text().endswith("}\n")
    assert json.loads(path.read_text()) == {"at": 7, "who": "coordinator.1", "what": "lost", "about": "worker2.1"}
    assert list(read_journal(path)) == [happening(7)]


def test_what_was_there_stays(path):
    for number in (1, 2):
        writer = JournalWriter(path)
        writer.write(happening(number))
        writer.close()
    assert [h.at for h in read_journal(path)] == [1, 2]


def test_every_line_is_on_the_disk_at_once(path):
    writer = JournalWriter(path)
    for number in range(3):
        writer.write(happening(number))
        assert len(list(read_journal(path))) == number + 1
    writer.close()


@pytest.mark.parametrize("about", ["two\nlines", "\x1b[31mred", "ü", "\udcff.txt", ""])
def test_any_text_is_one_line(path, about):
    writer = JournalWriter(path)
    writer.write(happening(1, about))
    writer.close()
    assert path.read_bytes().count(b"\n") == 1
    assert abouts(path) == [about.encode("utf-8", "backslashreplace").decode()]


def test_a_kill_leaves_whole_lines(path):
    program = (
        "import sys, os; from tidemill.observe.journal import *\n"
        f"writer = JournalWriter({str(path)!r})\n"
        "for i in range(10**9):\n"
        "    writer.write(Happening(i, 'who', 'what', 'x' * 1000))\n"
        "    print(i, flush=True) if i == 50 else None\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
    told = [h.at for h in read_journal(path)]
    assert told == list(range(len(told)))
    assert len(told) > 50


def test_a_torn_last_line_is_stepped_over(path):
    path.parent.mkdir()
    path.write_bytes(line_of(happening(1)) + line_of(happening(2))[:-5])
    assert list(read_journal(path)) == [happening(1)]


def test_who_finds_a_torn_line_begins_one_of_its_own(path):
    path.parent.mkdir()
    writer = JournalWriter(path)
    writer.write(happening(1))
    with path.open("ab") as file:
        file.write(b'{"at":2,"wh')  # another process, killed
    writer.write(happening(3))
    writer.close()
    first, damaged, last = read_journal(path)
    assert (first, last) == (happening(1), happening(3))
    assert (damaged.who, damaged.what, damaged.at) == ("journal", "damaged", 1)
    assert damaged.about.startswith("line 2 of journal.jsonl (")
    assert damaged.about.endswith("""'{"at":2,"wh'""")


@pytest.mark.parametrize("line", [b"\xff\xfe\x00", b'{"at":"x","who":"a","what":"b"}', b"[]", b"x" * 10_000])
def test_a_damaged_line_is_named(path, line):
    path.parent.mkdir()
    path.write_bytes(line_of(happening(1)) + b"\n" + line + b"\n" + line_of(happening(2)))
    first, damaged, last = read_journal(path)
    assert (first, last) == (happening(1), happening(2))
    assert damaged.about.startswith("line 3 of journal.jsonl (")
    assert len(damaged.about) < 500


def test_fields_of_a_later_version_do_no_harm(path):
    path.parent.mkdir()
    path.write_text('{"at":1,"who":"a","what":"b","more":[1]}\n')
    assert list(read_journal(path)) == [Happening(1, "a", "b", "")]


def test_no_journal_no_happenings(path):
    assert list(read_journal(path)) == []


# Trouble


def test_a_full_disk_is_counted_said_once_and_tried_again(path, passing, monkeypatch):
    said: list[str] = []
    writer = JournalWriter(path, on_trouble=said.append)
    writer.write(happening(1))
    with monkeypatch.context() as full:
        full.setattr(os, "write", failing(errno.ENOSPC))
        writer.write(happening(2))
        passing[0] += 5
        writer.write(happening(3))
    writer.write(happening(4))  # it is not asked again at once
    assert writer.missed == 3
    assert said == [
        f"The journal {path} can't be written ([Errno 28] No space left on device); the run goes on without it."
    ]
    passing[0] += 5
    writer.write(happening(5))
    writer.write(happening(6))
    writer.close()
    assert list(read_journal(path)) == [
        happening(1),
        Happening(5, "journal", "missed", "3 happenings"),
        happening(5),
        happening(6),
    ]


def test_a_write_that_stops_half_way(path, passing, monkeypatch):
    writer = JournalWriter(path)
    real = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda file, data: real(file, data[:10]))
        writer.write(happening(1))
    passing[0] += 5
    writer.write(happening(2))
    writer.close()
    damaged, missed, told = read_journal(path)
    assert (damaged.what, missed.what, told) == ("damaged", "missed", happening(2))


def failing(number):
    def fail(*_):
        raise OSError(number, os.strerror(number))

    return fail


def test_a_place_that_can_not_be(tmp_path, passing):
    (tmp_path / "run").write_text("a file")
    said: list[str] = []
    writer = JournalWriter(tmp_path / "run" / "journal.jsonl", on_trouble=said.append)
    for number in range(10):
        passing[0] += 5
        writer.write(happening(number))
    assert writer.missed == 10
    assert len(said) == 1
    (tmp_path / "run").unlink()
    passing[0] += 5
    writer.write(happening(10))
    assert [h.what for h in read_journal(writer.path)] == ["missed", "lost"]
    writer.close()


def test_closed_twice_and_written_to_after(path):
    writer = JournalWriter(path)
    writer.write(happening(1))
    writer.close()
    writer.close()
    writer.write(happening(2))
    assert writer.missed == 1
    assert list(read_journal(path)) == [happening(1)]


# The limit


def test_a_full_journal_is_renamed_and_one_old_one_kept(path):
    length = len(line_of(happening(10)))
    writer = JournalWriter(path, limit=3 * length)
    for number in range(10, 18):
        writer.write(happening(number))
        assert path.stat().st_size <= 3 * length
    writer.close()
    assert sorted(p.name for p in path.parent.iterdir()) == ["journal.jsonl", "journal.jsonl.1"]
    assert [h.at for h in read_journal(path)] == [13, 14, 15, 16, 17]
    assert [h.at for h in read_journal(old_one(path))] == [13, 14, 15]


def test_several_writers_rename_it_once(path):
    length = len(line_of(happening(10)))
    one, other = (JournalWriter(path, limit=4 * length) for _ in range(2))
    for number in range(10, 16):
        (one, other)[number % 2].write(happening(number))
    one.close()
    other.close()
    assert [h.at for h in read_journal(path)] == [10, 11, 12, 13, 14, 15]


def test_while_another_renames_it_lines_still_arrive(path):
    length = len(line_of(happening(10)))
    writer = JournalWriter(path, limit=length)
    writer.write(happening(10))
    with path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        writer.write(happening(11))
    assert not old_one(path).exists()
    writer.write(happening(12))
    writer.close()
    assert [h.at for h in read_journal(path)] == [10, 11, 12]


def test_a_file_system_without_locks(path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", failing(errno.ENOLCK))
    writer = JournalWriter(path, limit=1)
    writer.write(happening(1))
    writer.write(happening(2))
    writer.close()
    assert old_one(path).exists()
    assert [h.at for h in read_journal(path)] == [1, 2]


# Reading while it is written


def test_what_is_new_since_the_last_time(path):
    reader, writer = JournalReader(path), JournalWriter(path)
    assert list(reader.news()) == []
    writer.write(happening(1))
    assert list(reader.news()) == [happening(1)]
    assert list(reader.news()) == []
    with path.open("ab") as file:  # half a line is not told yet
        file.write(line_of(happening(2))[:9])
    assert list(reader.news()) == []
    with path.open("ab") as file:
        file.write(line_of(happening(2))[9:])
    writer.write(happening(3))
    assert list(reader.news()) == [happening(2), happening(3)]
    reader.close()
    writer.close()


def test_news_go_on_in_the_new_journal(path):
    writer = JournalWriter(path, limit=3 * len(line_of(happening(10))))
    reader = JournalReader(path)
    told = []
    for number in range(10, 30):
        writer.write(happening(number))
        if number % 2:
            told += [h.at for h in reader.news()]
    assert told == list(range(10, 30))
    reader.close()
    writer.close()


def test_a_journal_that_is_taken_away_and_begun_again(path):
    writer, reader = JournalWriter(path), JournalReader(path)
    writer.write(happening(1))
    assert list(reader.news()) == [happening(1)]
    writer.close()
    path.unlink()
    assert list(reader.news()) == []
    writer = JournalWriter(path)
    writer.write(happening(2))
    assert list(reader.news()) == [happening(2)]
    reader.close()
    writer.close()
