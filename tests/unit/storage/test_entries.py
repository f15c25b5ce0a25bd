"""Files that are made once, whole, by whoever comes first."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tidemill.errors import StorageError
from tidemill.storage.entries import BEING_MADE, Entries, reaching


def test_the_first_who_comes_makes_it_and_the_others_are_told(tmp_path):
    entries = Entries(tmp_path / "log")
    assert entries.names() == []
    assert entries.read("0") is None
    assert entries.create("0", b"first")
    assert not entries.create("0", b"second")
    assert entries.read("0") == b"first"
    assert entries.names() == ["0"]
    assert entries.has("0")
    entries.remove("0")
    entries.remove("0")
    assert not entries.has("0")


def test_of_many_who_come_at_once_one_is_first(tmp_path):
    with ThreadPoolExecutor(8) as people:
        for name in map(str, range(50)):
            made = list(people.map(lambda who, name=name: Entries(tmp_path).create(name, b"%d" % who), range(8)))
            assert made.count(True) == 1
            assert Entries(tmp_path).read(name) == b"%d" % made.index(True)
    assert len(list(tmp_path.iterdir())) == 50  # nothing half made is left


def test_what_is_being_made_has_no_name_yet(tmp_path, monkeypatch):
    seen = []

    def link(source, _):
        seen.append((Entries(tmp_path).names(), Path(source).stat().st_size))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(StorageError, match="the disk is full"):
        Entries(tmp_path).create("0", b"whole")
    assert seen == [([], 5)]
    assert list(tmp_path.iterdir()) == []
    (tmp_path / f"{BEING_MADE}of-a-crash").write_bytes(b"wh")
    assert Entries(tmp_path).names() == []


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "disk is full"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "may not be written"),
        (errno.EOPNOTSUPP, "can't make links"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_what_the_system_refuses_is_said_with_its_place_and_a_remedy(tmp_path, number, said):
    with pytest.raises(StorageError, match=f"{tmp_path}.*{said}"), reaching(tmp_path):
        raise OSError(number, os.strerror(number))


def test_a_file_where_the_folder_should_be(tmp_path):
    (tmp_path / "log").write_text("something else")
    with pytest.raises(StorageError, match="there is a file where a folder should be"):
        Entries(tmp_path / "log").create("0", b"")
    assert (tmp_path / "log").read_text() == "something else"
