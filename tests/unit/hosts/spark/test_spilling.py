"""What was put aside comes back in order, and the disk holds what waits and not what has passed."""

# mypy: disable-error-code="arg-type"

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests.unit.hosts.spark.wires import open_files
from tidemill.core.effects import DropSpill, ReadBack, Spill
from tidemill.hosts.spark import spilling
from tidemill.hosts.spark.spilling import Spilling

SHARD, EPOCH = 3, 1


@pytest.fixture
def spills(closing):
    return closing(Spilling())


def put(spills, *entries, shard=SHARD, epoch=EPOCH):
    for entry in entries:
        spills.spill(Spill(shard, epoch, entry))


def take(spills, count, shard=SHARD, epoch=EPOCH):
    return spills.take(ReadBack(shard, epoch, count))


def on_disk(spills):
    return sum(os.fstat(each._file.fileno()).st_size for spill in spills._spills.values() for each in spill._files)


def test_entries_come_back_in_order(spills):
    put(spills, b"a", b"", b"c" * 100_000)
    assert take(spills, 2) == [b"a", b""]
    put(spills, b"d")
    assert take(spills, 2) == [b"c" * 100_000, b"d"]


def test_each_shard_and_epoch_has_its_own(spills):
    put(spills, b"a")
    put(spills, b"b", shard=4)
    put(spills, b"c", epoch=2)
    assert take(spills, 1, epoch=2) == [b"c"]
    assert take(spills, 1, shard=4) == [b"b"]
    assert take(spills, 1) == [b"a"]


def test_nothing_is_left_of_what_was_read(spills):
    for _ in range(5):
        put(spills, *[b"x" * 1000] * 10)
        take(spills, 10)
        put(spills, b"y")
        assert on_disk(spills) < 10_000
        take(spills, 1)
    assert on_disk(spills) == 0


def test_the_disk_holds_what_waits_even_where_something_always_does(spills, monkeypatch):
    monkeypatch.setattr(spilling, "ENOUGH", 10_000)
    put(spills, *(str(number).encode() * 1000 for number in range(3)))
    for number in range(3, 300):
        put(spills, str(number).encode() * 1000)
        assert take(spills, 1) == [str(number - 3).encode() * 1000]
        assert on_disk(spills) < 30_000
    assert len(take(spills, 3)) == 3


def test_a_dropped_one_is_gone(spills):
    before = open_files()
    put(spills, b"a")
    assert open_files() == before + 1
    spills.drop(DropSpill(SHARD, EPOCH))
    assert open_files() == before
    put(spills, b"b")
    assert take(spills, 1) == [b"b"]


def test_the_files_have_no_names_and_go_with_the_process(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = open_files()
    spills = Spilling()
    put(spills, b"a")
    assert list(Path(tmp_path).iterdir()) == []
    spills.close()
    assert open_files() == before
