"""`tidemill inspect`: a folder or a file, told or raw, the last lines, following, and what to give instead."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time

import pytest

from tidemill.cli import inspect
from tidemill.cli.__main__ import main
from tidemill.observe.journal import Happening, JournalReader, JournalWriter, old_one

STORY = [
    ("claimed", "generation 1"),
    ("began", "with 2 workers"),
    ("lost", "worker1.1"),
    ("lost", "worker1.1"),
    ("over", "finished"),
]


def run(*arguments):
    return main(["inspect", *map(str, arguments)])


def write(writer, happenings, first=0):
    for number, (what, about) in enumerate(happenings, first):
        writer.write(Happening(1_700_000_000_000_000 + number * 1_000_000, "coordinator.1", what, about))


@pytest.fixture
def storage(tmp_path):
    writer = JournalWriter(tmp_path / "journal.jsonl")
    write(writer, STORY)
    writer.close()
    return tmp_path


TOLD = [
    "Times are counted from 2023-11-14 22:13:20.000 UTC.",
    "   0:00.000  coordinator.1: takes charge of the run, generation 1",
    "   0:01.000  coordinator.1: begins with 2 workers",
    "   0:02.000  coordinator.1: lost worker1.1: it ended, or was silent for too long (2 times, until 0:03.000)",
    "   0:04.000  coordinator.1: the run is over: finished",
]


@pytest.mark.parametrize("name", [".", "journal.jsonl"])
def test_the_story(storage, capsys, name):
    assert run(storage / name) == 0
    assert capsys.readouterr().out.splitlines() == TOLD


def test_the_last_lines(storage, capsys):
    assert run(storage, "--last", "2") == 0
    assert capsys.readouterr().out.splitlines() == [TOLD[0], *TOLD[-2:]]


def test_raw(storage, capsys):
    assert run(storage, "--json") == 0
    out = capsys.readouterr().out
    assert out == (storage / "journal.jsonl").read_text()
    run(storage, "--json", "--last", "1")
    assert json.loads(capsys.readouterr().out)["about"] == "finished"


def test_the_old_journal_belongs_to_it(tmp_path, capsys):
    writer = JournalWriter(tmp_path / "journal.jsonl", limit=300)
    write(writer, STORY)
    writer.close()
    assert old_one(tmp_path / "journal.jsonl").exists()
    run(tmp_path)
    assert capsys.readouterr().out.splitlines() == TOLD
    (tmp_path / "journal.jsonl").unlink()
    run(tmp_path)
    assert capsys.readouterr().out.splitlines() == [*TOLD[:3], TOLD[3].replace(" (2 times, until 0:03.000)", "")]


def test_nothing_yet(tmp_path, capsys):
    (tmp_path / "journal.jsonl").touch()
    assert run(tmp_path) == 0
    assert capsys.readouterr().out == f"Nothing is written in {tmp_path / 'journal.jsonl'} yet.\n"
    assert run(tmp_path, "--json") == 0
    assert capsys.readouterr().out == ""


def test_no_journal(tmp_path, capsys):
    assert run(tmp_path) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        f"tidemill: There is no {tmp_path}/journal.jsonl and no journal.jsonl.1 beside it. "
        "Give the storage folder of a run, or a journal file.\n"
    )
    assert run(tmp_path / "absent") == 1
    assert f"There is no {tmp_path}/absent and no absent.1 beside it." in capsys.readouterr().err


def test_no_journal_but_some_below(tmp_path, capsys):
    for number in range(7):
        (tmp_path / f"run{number}").mkdir()
        (tmp_path / f"run{number}" / "journal.jsonl").touch()
        if number == 1:
            assert run(tmp_path) == 1
            said = f"There are journals in: {tmp_path}/run0, {tmp_path}/run1. Give one of these.\n"
            assert capsys.readouterr().err.endswith(said)
    run(tmp_path)
    assert f"{tmp_path}/run4 and 2 more. Give one of these." in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"\x00\x01\n" * 100, b"word,n\ntide,1\n", b'{"some": "json"}\n'])
def test_a_file_that_is_no_journal(tmp_path, capsys, content):
    (tmp_path / "other").write_bytes(content)
    assert run(tmp_path / "other") == 1
    said = capsys.readouterr().err
    assert said.startswith(f"tidemill: {tmp_path}/other is no journal: line 1 of other (")
    assert said.count("\n") == 1


def test_a_damaged_line_is_told(storage, capsys):
    text = (storage / "journal.jsonl").read_text()
    (storage / "journal.jsonl").write_text("what?\n" + text)
    assert run(storage) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("             journal: can't be read: line 1 of journal.jsonl (")
    assert [lines[0], *lines[2:]] == TOLD


def test_a_journal_that_may_not_be_read(storage, capsys, monkeypatch):
    def refuse(_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(JournalReader, "news", refuse)
    assert run(storage) == 1
    assert f"The journal {storage}/journal.jsonl can't be read: [Errno 13] Permission denied" in capsys.readouterr().err


@pytest.mark.parametrize("last", ["0", "-1", "x"])
def test_how_many_lines_is_a_number(storage, capsys, last):
    with pytest.raises(SystemExit):
        run(storage, "--last", last)
    assert f"'{last}' is no whole number from 1 on" in capsys.readouterr().err


# Following


def test_following_ends_with_the_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(inspect, "PAUSE", 0.01)
    writer = JournalWriter(tmp_path / "journal.jsonl")
    write(writer, [*STORY, STORY[0]])  # a first run is over, and a second one began

    def go_on():
        time.sleep(0.1)
        write(writer, STORY[1:], first=6)

    thread = threading.Thread(target=go_on)
    thread.start()
    assert run(tmp_path, "--follow", "--last", "1") == 0
    thread.join()
    writer.close()
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].endswith("takes charge of the run, generation 1")
    assert [line.count("over") for line in lines] == [0] * (len(lines) - 1) + [1]


def test_following_what_is_over(storage, capsys):
    assert run(storage, "--follow") == 0
    assert capsys.readouterr().out.splitlines() == TOLD


def test_following_until_interrupted(tmp_path, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    (tmp_path / "journal.jsonl").touch()
    monkeypatch.setattr(time, "sleep", interrupt)
    assert run(tmp_path, "--follow") == 0


def test_a_reader_that_has_seen_enough(storage):
    command = [sys.executable, "-c", "import sys; from tidemill.cli.__main__ import main; sys.exit(main())"]
    with subprocess.Popen(
        [*command, "inspect", str(storage), "--follow"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
