"""A folder has one holder at a time, and none is left behind, however a holder ends."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys

import pytest

from tidemill.errors import StorageError
from tidemill.storage.folder import LOCK, held

HOLD = """
import sys, time
from pathlib import Path
from tidemill.storage.folder import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_it_is_made_and_held(tmp_path):
    wanted = tmp_path / "state" / "of" / "a run"
    with held(wanted) as folder:
        assert folder == wanted
        assert folder.is_dir()
        assert (folder / LOCK).read_text() == f"{os.getpid()}\n"


def test_a_second_holder_is_told_who_the_first_is(tmp_path):
    with held(tmp_path):
        with pytest.raises(StorageError, match=rf"in use by another run \(process {os.getpid()}\)\. Stop that one"):
            held(tmp_path).__enter__()
        with pytest.raises(StorageError):
            held(tmp_path).__enter__()


def test_it_is_free_again_afterwards(tmp_path):
    for _ in range(2):
        with held(tmp_path):
            pass
    with pytest.raises(KeyError), held(tmp_path):
        raise KeyError
    with held(tmp_path):
        pass


def test_another_process_has_it_until_it_is_killed(tmp_path):
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(StorageError, match=rf"\(process {other.pid}\)"):
            held(tmp_path).__enter__()
        other.kill()
        other.wait(10)
    with held(tmp_path) as folder:
        assert (folder / LOCK).read_text() == f"{os.getpid()}\n"


def test_a_program_that_a_holder_starts_does_not_hold_it(tmp_path):
    code = "print('here', flush=True); input()"
    pipe = subprocess.PIPE
    with held(tmp_path):
        other = subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, close_fds=False)
        assert other.stdout is not None
        other.stdout.readline()
    try:
        with held(tmp_path):
            pass
    finally:
        other.communicate(b"\n")


def test_the_longer_name_of_an_earlier_holder_is_gone(tmp_path):
    (tmp_path / LOCK).write_text("123456789012345\n")
    with held(tmp_path) as folder:
        assert (folder / LOCK).read_text() == f"{os.getpid()}\n"


def test_one_that_can_not_be_written_is_an_error_with_a_remedy(tmp_path):
    (tmp_path / "file").write_text("")
    for wanted in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StorageError, match=r"can't be used: .*\. Name one that can be written\."):
            held(wanted).__enter__()


def test_one_that_can_not_be_locked_is_not_said_to_be_in_use(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(
        StorageError, match=r"can't be locked: No locks available\. Name one on a file system with locks"
    ):
        held(tmp_path).__enter__()
