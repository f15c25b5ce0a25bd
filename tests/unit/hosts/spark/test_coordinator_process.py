"""Who joins a run is told who else is there; what is gathered comes once; commits reach the sinks in order."""

# mypy: disable-error-code="arg-type, call-arg"

from __future__ import annotations

import os
import socket
from dataclasses import replace

import pytest

from tests.unit.hosts.spark.offices import Hand, Office, command, with_sinks
from tests.unit.hosts.spark.wires import HOST, eventually
from tidemill.core import effects, events
from tidemill.core.coordinator import COMMIT_TICKET, Commit, JournalEntry, encode
from tidemill.core.ids import Peer
from tidemill.core.messages import Adopt
from tidemill.errors import FencedError, RunError
from tidemill.hosts.spark import protocol
from tidemill.hosts.spark.coordinator import CoordinatorProcess
from tidemill.hosts.spark.sockets import bound_port
from tidemill.observe.journal import read_journal
from tidemill.observe.progress import ShardFacts, WorkerFacts

ME, OTHER = Peer(0, 1), Peer(1, 1)


@pytest.fixture
def office(closing):
    return lambda *orders, **how: closing(Office(command(*orders, **how)))


@pytest.fixture
def hand(closing):
    return lambda *who, **how: closing(Hand(*who, **how))


# Who comes


def test_who_joins_is_welcome_and_told_of_the_others(office, hand):
    here = office(workers=2)
    first = hand(here, ME)
    assert first.hears(protocol.Welcome) == [protocol.Welcome(1)]
    assert first.hears(protocol.Book)[0].entries == [(*ME, first.place.address)]
    second = hand(here, OTHER)
    both = [(*ME, first.place.address), (*OTHER, second.place.address)]
    assert second.hears(protocol.Book)[-1].entries == both
    assert first.hears(protocol.Book, 2)[-1].entries == both


def test_a_newer_incarnation_has_the_place_in_the_book(office, hand):
    here = office(workers=2)
    other = hand(here, OTHER)
    other.hears(protocol.Book)
    hand(here, ME).hears(protocol.Book)
    newer = hand(here, Peer(ME.worker, 2))
    entries = [(ME.worker, 2, newer.place.address), (*OTHER, other.place.address)]
    assert other.hears(protocol.Book, 3)[-1].entries == entries


def test_one_of_another_version_is_not_welcome_and_in_nobodys_book(office, hand):
    here = office(workers=2)
    other = hand(here, OTHER)
    other.hears(protocol.Book)
    stranger = hand(here, Peer(ME.worker, 9), version=99)
    (unwelcome,) = stranger.hears(protocol.Unwelcome)
    assert unwelcome.why == "worker0.9 speaks version 99 and the driver 1: install one version of tidemill"
    stranger.control(protocol.Join(99, 0, 9, stranger.place.address, "host", 1))
    assert len(stranger.hears(protocol.Unwelcome, 2)) == 2
    first = hand(here, ME)
    assert first.hears(protocol.Book)[0].entries == [(*ME, first.place.address), (*OTHER, other.place.address)]
    assert stranger.heard(protocol.Welcome) == []
    eventually(lambda: here.notes("refused"))
    assert here.notes("refused") == [unwelcome.why], "said once"


def test_the_run_begins_when_all_are_there(office, hand):
    here = office(workers=2)
    first = hand(here, ME)
    first.hears(protocol.Welcome)
    first.greet()
    second = hand(here, OTHER)
    second.hears(protocol.Welcome)
    assert not any(isinstance(told, Adopt) for told in first.told)
    second.greet()
    assert first.is_told(Adopt)
    assert second.is_told(Adopt)


def test_what_a_worker_says_of_itself_is_shown(office, hand):
    here = office()
    worker = hand(here, ME)
    worker.hears(protocol.Welcome)
    worker.greet()
    worker.is_told(Adopt)
    shard = ShardFacts("count", 1, 7, 6, 0, 0, 5)
    worker.control(protocol.Facts(WorkerFacts(*ME, "host-of-a-test", 4711, 2**20, 1.5, 3, [shard])))

    def shown():
        progress = here.of(protocol.State)[-1].progress
        return progress if progress.node("count").records_in == 7 else None

    progress = eventually(shown, 10, worker.turn)
    assert (progress.workers[0].pid, progress.workers[0].memory, progress.refused) == (4711, 2**20, 3)


def test_what_is_not_for_it_is_refused_and_counted(office, hand):
    here = office()
    worker = hand(here, ME)
    worker.hears(protocol.Welcome)
    for message in (protocol.Welcome(3), protocol.StopRun(abandon=True), protocol.Attach(1), protocol.Heard()):
        worker.control(message)
    eventually(lambda: here.of(protocol.State)[-1].progress.refused == 4, 10, worker.turn)
    assert here.notes("refused") == ["a message that can't be read was refused: Welcome is not for the coordinator"]
    assert here.of(protocol.Ended) == []


def test_what_happened_is_in_the_journal(office, hand, tmp_path):
    here = office(journal=str(tmp_path / "journal.jsonl"))
    worker = hand(here, ME)
    worker.hears(protocol.Welcome)
    worker.control(protocol.Noted("worker0.1", "said", "this"))
    eventually(lambda: here.notes("said"), 10, worker.turn)
    assert [(each.who, each.what, each.about) for each in read_journal(tmp_path / "journal.jsonl")] == [
        ("driver", "started", "test, recovery=nothing"),
        ("coordinator.1", "claimed", "generation 1"),
        ("worker0.1", "said", "this"),
    ]


# Who goes


def test_a_worker_that_goes_is_lost_with_all_that_it_had(office, hand):
    here = office()
    worker = hand(here, ME)
    worker.hears(protocol.Welcome)
    worker.greet()
    worker.is_told(Adopt)
    assert worker.line is not None
    worker.line.close()
    (ended,) = here.hears(protocol.Ended)
    assert (ended.status, ended.error) == ("failed", "RunError")
    assert "Lost: worker0.1 (process 4711 on host-of-a-test)" in ended.message
    assert here.notes("lost") == ["worker0.1"]


def test_its_end_lets_the_workers_go(office, hand):
    here = office()
    worker = hand(here, ME)
    worker.hears(protocol.Welcome)
    assert not worker.cut()
    assert here.process.stdin is not None
    here.process.stdin.close()  # as the kernel does when the driver dies
    here.process.wait(5)
    assert here.process.returncode == 0
    eventually(worker.cut, 1)


def test_an_abandoned_run_ends_at_once_though_workers_are_there(office, hand):
    here = office()
    worker = hand(here, ME)
    worker.hears(protocol.Welcome)
    here.attendance.say(protocol.StopRun(abandon=True))
    (ended,) = here.hears(protocol.Ended, seconds=2)
    assert ended.status == "stopped"
    eventually(worker.cut, 2)


# What is gathered for the driver


def gathered(number, worker=ME):
    return protocol.Gathered(*worker, number, "counts-sink", str(number).encode())


def test_what_is_gathered_reaches_the_driver_once_and_in_order(office, hand):
    here = office()
    worker = hand(here, ME)
    worker.hears(protocol.Welcome)
    for number in (1, 2, 2, 1, 3):
        worker.control(gathered(number))
    other = hand(here, OTHER)
    other.hears(protocol.Welcome)
    other.control(gathered(1, OTHER))
    got = here.hears(protocol.Gathered, 4, do=worker.turn)
    assert [(each.worker, each.number) for each in got] == [(0, 1), (0, 2), (0, 3), (1, 1)]


def test_what_is_missing_ends_the_run(office, hand):
    here = office()
    worker = hand(here, ME)
    worker.hears(protocol.Welcome)
    worker.greet()
    worker.is_told(Adopt)
    for number in (1, 4):
        worker.control(gathered(number))
    (ended,) = here.hears(protocol.Ended, do=worker.turn)
    assert (ended.status, ended.error) == ("failed", "RunError")
    assert ended.message.startswith("2 batches that worker0.1 gathered for the driver were lost on the way")
    assert len(here.of(protocol.Gathered)) == 1


def test_what_the_driver_has_taken_its_worker_hears(office, hand):
    here = office()
    worker = hand(here, ME)
    worker.hears(protocol.Welcome)
    here.attendance.say(protocol.Taken(*ME, 5))
    assert worker.hears(protocol.Taken) == [protocol.Taken(*ME, 5)]


def test_a_driver_that_comes_late_is_told_all(closing):
    """It may have slept; rows may have come meanwhile."""
    process = closing(Process())
    process.it._gathered(gathered(1))
    process.it._gathered(gathered(2))
    assert process.answered == []
    process.there = True
    process.it._attached()
    assert [each.number for each in process.answered if isinstance(each, protocol.Gathered)] == [1, 2]
    process.there = False
    process.it._gathered(gathered(3))
    process.it._gathered(gathered(4))
    process.there = True
    process.it._attached()
    assert [each.number for each in process.answered if isinstance(each, protocol.Gathered)] == [1, 2, 3, 4]


# Commits: in this very process, so that a test sees the sinks


class Table:
    def __init__(self, last=0):
        self.calls: list = []
        self.last = last
        self.problem: Exception | None = None

    def committed(self, generation):
        if self.problem is not None:
            raise self.problem
        self.calls.append(("claimed", generation))
        return self.last

    def commit(self, generation, number, prepared):
        if self.problem is not None:
            raise self.problem
        self.calls.append((generation, number, list(prepared)))


class Process:
    """A coordinator's process that never runs: what it is asked to perform is performed, and what it tells is kept."""

    def __init__(self, handle=None):
        door, lifelines = bound_port(HOST), bound_port(HOST)
        orders = replace(command(with_sinks(handle)), door=door.detach(), lifelines=lifelines.detach())
        self.it = CoordinatorProcess(orders)
        self.it.transport.unwatch(0)
        self.answered: list = []
        self.there = False
        self.it.transport.answer = self._answer  # type: ignore[method-assign]

    def _answer(self, identity, message):
        assert identity == b"driver"
        if self.there:
            self.answered.append(message)
        return self.there

    def told(self):
        """The event that comes back."""
        loop = self.it.loop
        eventually(lambda: loop._posted or loop._inbox)
        while not loop._inbox:
            eventually(lambda: loop._posted)
            loop._posted.popleft()()
        return loop._inbox.popleft()(9)

    def claim(self):
        self.it._claim(effects.Claim())
        return self.told()

    def commit(self, *pieces, final=True):
        entry = encode(JournalEntry("commit", encode(Commit(list(pieces), final))))
        self.it._journal(effects.Journal(COMMIT_TICKET, 1, entry))
        return self.told()

    def close(self):
        if self.it.loop._helper is not None:
            self.it.loop._helper.shutdown()
        self.it.close()


def test_a_commit_reaches_the_sink_whole_under_the_generation(closing):
    table = Table()
    process = closing(Process(table))
    assert process.claim() == events.Claimed(9, 1, [])
    done = process.commit(("counts-sink", b"a"), ("counts-sink", b""), ("counts-sink", b"b"))
    assert done == events.Persisted(9, COMMIT_TICKET)
    process.commit(("counts-sink", b"c"))
    assert table.calls == [("claimed", 1), (1, 1, [b"a", b"b"]), (1, 2, [b"c"])]


def test_commits_go_on_from_what_the_sink_holds(closing):
    """An earlier run wrote into it: its numbers are taken, and a commit under one of them would do nothing."""
    table = Table(last=41)
    process = closing(Process(table))
    process.claim()
    process.commit(("counts-sink", b"a"))
    assert table.calls[-1] == (1, 42, [b"a"])


@pytest.mark.parametrize("when", ["claim", "commit"])
def test_what_a_sink_raises_names_it_and_nothing_is_done(closing, when):
    table = Table()
    process = closing(Process(table))
    if when == "commit":
        process.claim()
    table.problem = OSError("the disk is full")
    told = process.commit(("counts-sink", b"a")) if when == "commit" else process.claim()
    assert isinstance(told, events.Broken)
    assert isinstance(told.error, RunError)
    assert str(told.error) == "the sink raised OSError: the disk is full [in counts-sink, declared at here.py:9]"


def test_a_sink_that_a_newer_one_has_claimed_ends_the_run(closing):
    table = Table()
    table.problem = FencedError("generation 2 has it")
    told = closing(Process(table)).claim()
    assert isinstance(told.error, FencedError)


def test_what_is_no_commit_needs_no_sink(closing):
    table = Table()
    process = closing(Process(table))
    process.claim()
    process.it._journal(effects.Journal(7, 1, encode(JournalEntry("mechanism", b"x"))))
    assert process.told() == events.Persisted(9, 7)
    assert table.calls == [("claimed", 1)]


def test_what_was_gathered_is_handed_over_when_it_is_committed(closing):
    process = closing(Process())
    process.there = True
    process.it._attached()
    process.claim()
    process.commit(("counts-sink", b"a"), ("counts-sink", b""), ("counts-sink", b"b"))
    got = [each for each in process.answered if isinstance(each, protocol.Gathered)]
    assert [(each.node, each.data, each.number) for each in got] == [("counts-sink", b"a", 0), ("counts-sink", b"b", 0)]


def test_a_driver_that_is_silent_is_there(closing):
    """Only the end of its pipe is its end."""
    process = closing(Process())
    readable, written = os.pipe()
    before = os.dup(0)
    try:
        os.dup2(readable, 0)
        process.it._look_at_driver()
        assert not process.it.loop.over
        os.write(written, b"x")
        process.it._look_at_driver()
        assert not process.it.loop.over
        os.close(written)
        process.it._look_at_driver()
        assert process.it.loop.over
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(readable)


def test_a_closed_process_leaves_its_doors():
    process = Process()
    port = int(process.it.transport.address.rpartition(":")[2])
    process.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, port), timeout=1)
