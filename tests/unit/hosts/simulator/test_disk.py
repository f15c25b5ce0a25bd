"""The simulated storage promises what `ports` asks of a real one: fences, order, and nothing torn taken for data."""

from typing import Any

import pytest

from tidemill.hosts.simulator.disk import Disk
from tidemill.hosts.simulator.faults import Faults
from tidemill.hosts.simulator.world import World


@pytest.fixture
def world():
    return World(1)


@pytest.fixture
def disk(world):
    return Disk(world, Faults())


def finish(world):
    while world.step():
        pass


def opened(world, disk, epoch, *, last=False):
    answers: list[Any] = []
    disk.open_log("log", epoch, last=last, done=answers.append)
    finish(world)
    return answers[0]


def appended(world, disk, epoch, *entries):
    answers: list[Any] = []
    disk.append("log", epoch, list(entries), answers.append)
    finish(world)
    return answers[0]


def test_a_log_gives_back_what_was_appended(world, disk):
    assert opened(world, disk, 1) == []
    assert appended(world, disk, 1, b"one", b"two")
    assert opened(world, disk, 2) == [b"one", b"two"]


def test_a_newer_owner_fences_an_older_one(world, disk):
    opened(world, disk, 1)
    opened(world, disk, 2)
    assert not appended(world, disk, 1, b"zombie")
    assert opened(world, disk, 3) == []


def test_a_delayed_write_of_a_zombie_does_not_pass_its_successors_scan(world, disk):
    """MillWheel's Figure 12: the write is under way when the successor opens the log."""
    opened(world, disk, 1)
    accepted: list[bool] = []
    scanned: list[Any] = []
    disk.open_log("log", 2, last=False, done=scanned.append)
    disk.append("log", 1, [b"orphan"], accepted.append)
    finish(world)
    assert scanned == [[]]
    assert accepted == [False]


def test_an_epoch_opens_a_log_once(world, disk):
    opened(world, disk, 2)
    assert opened(world, disk, 2) is None
    assert opened(world, disk, 1) is None


def test_a_log_that_has_ended_is_read_under_any_epoch_and_stays_fenced(world, disk):
    opened(world, disk, 1)
    appended(world, disk, 1, b"one")
    assert opened(world, disk, 7, last=True) == [b"one"]
    assert opened(world, disk, 5, last=True) == [b"one"]
    assert not appended(world, disk, 1, b"late")


@pytest.mark.parametrize("seed", range(20))
def test_a_torn_append_leaves_a_prefix_of_whole_entries(seed):
    world = World(seed)
    disk = Disk(world, Faults())
    opened(world, disk, 1)
    appended(world, disk, 1, b"whole")
    disk.tear("log", 1, [b"first", b"second", b"third"])
    finish(world)
    found = opened(world, disk, 2)
    assert found == [b"whole", b"first", b"second", b"third"][: len(found)]
    assert 1 <= len(found) <= 3
    assert appended(world, disk, 2, b"next")
    assert opened(world, disk, 3) == [*found, b"next"]


def test_a_full_disk_delays_writes_and_keeps_their_order(world, disk):
    opened(world, disk, 1)
    disk.fill(world.now + 1_000_000)
    answers: list[Any] = []
    disk.append("log", 1, [b"one"], answers.append)
    disk.append("log", 1, [b"two"], answers.append)
    finish(world)
    assert world.now >= 1_000_000
    assert answers == [True, True]
    assert opened(world, disk, 2) == [b"one", b"two"]


def test_only_the_newest_generation_writes_the_journal(world, disk):
    claims: list[Any] = []
    written: list[bool] = []
    disk.claim(lambda generation, entries: claims.append((generation, entries)))
    finish(world)
    disk.write_journal(claims[0][0], b"first", written.append)
    finish(world)
    disk.claim(lambda generation, entries: claims.append((generation, entries)))
    finish(world)
    disk.write_journal(claims[0][0], b"by a zombie", written.append)
    disk.write_journal(claims[1][0], b"second", written.append)
    finish(world)
    assert claims == [(1, []), (2, [b"first"])]
    assert written == [True, False, True]
    assert disk.journal() == [b"first", b"second"]


def test_a_torn_piece_is_never_shown(world, disk):
    disk.put_piece("whole", [b"rows"], lambda: None)
    finish(world)
    assert disk.piece("whole") == [b"rows"]
    disk.tear_piece("torn", [b"many rows"] * 9)
    with pytest.raises(AssertionError, match="torn"):
        disk.piece("torn")
