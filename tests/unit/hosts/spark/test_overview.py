"""A run's progress, of what its workers said last: counts add up, and do not fall when a worker is lost."""

# mypy: disable-error-code="arg-type, call-arg, dict-item"

from __future__ import annotations

import pytest

from tests.unit.core.driving import ME, OTHER
from tests.unit.core.pipes import pipeline
from tidemill.core import events, messages
from tidemill.core.coordinator import Coordinator, Plan
from tidemill.core.ids import Peer
from tidemill.core.link import Links
from tidemill.hosts.spark.overview import Known, Overview
from tidemill.observe.progress import ShardFacts, WorkerFacts
from tidemill.recovery.nothing import Nothing

KNOWN = {ME: Known("tcp://a", "host-a", 11), OTHER: Known("tcp://b", "host-b", 22)}
BEGAN = 5_000_000


def facts(peer, *shards, refused=0, memory=7, cpu=0.5):
    return WorkerFacts(*peer, "host", 1, memory, cpu, refused, list(shards))


def shard(node="count", came=0, left=0, *, late=0, malformed=0, queued=0, id=1):
    return ShardFacts(node, id, came, left, late, malformed, queued)


class Overlooked:
    def __init__(self):
        self.core = Coordinator(pipeline(), Nothing().coordinator_half(), Plan(2, {"words-source": 1}, 2))
        self.overview = Overview(self.core, "nothing", BEGAN)

    def begin(self):
        self.core.handle(events.Claimed(0, 1, []))
        for peer in (ME, OTHER):
            hello = Links(peer).send(Peer(-1, 1), messages.Hello(), 0).packet
            self.core.handle(events.Received(0, hello))

    def progress(self, now=BEGAN, refused=0):
        return self.overview.progress(now, KNOWN, refused)


@pytest.fixture
def over():
    made = Overlooked()
    made.begin()
    return made


def test_before_anything_is_claimed_there_is_a_progress():
    progress = Overlooked().progress(BEGAN + 2_500_000)
    assert (progress.pipeline, progress.recovery, progress.status) == ("test", "nothing", "starting")
    assert (progress.at, progress.seconds) == (BEGAN + 2_500_000, 2.5)
    assert [(node.name, node.kind) for node in progress.nodes] == [
        ("words-source", "source"),
        ("count", "computation"),
        ("counts-sink", "sink"),
    ]
    assert progress.workers == ()
    assert all(node.watermark is None and node.lag is None for node in progress.nodes)


def test_workers_are_those_that_are_there(over):
    over.overview.learn(ME, facts(ME, shard(), shard(), memory=2**20, cpu=1.5))
    first, second = over.progress().workers
    assert (first.id, first.incarnation, first.host, first.pid, first.shards) == (*ME, "host-a", 11, 2)
    assert (first.memory, first.cpu_seconds) == (2**20, 1.5)
    assert (second.pid, second.shards, second.memory) == (22, 0, 0), "it has not said anything yet"


def test_what_was_done_adds_up_over_shards_and_workers(over):
    over.overview.learn(ME, facts(ME, shard(came=5, left=4, late=1, queued=2), shard("counts-sink", 3)))
    over.overview.learn(OTHER, facts(OTHER, shard(came=10, left=9, malformed=1, queued=1)))
    count = over.progress().node("count")
    assert (count.records_in, count.records_out, count.late, count.malformed) == (15, 13, 1, 1)
    assert (count.queued, count.shards) == (3, 2)
    assert over.progress().node("counts-sink").records_in == 3


def test_the_latest_word_counts(over):
    over.overview.learn(ME, facts(ME, shard(came=5)))
    over.overview.learn(ME, facts(ME, shard(came=7)))
    assert over.progress().node("count").records_in == 7


def test_what_a_lost_worker_did_was_done_and_what_it_had_is_gone(over):
    over.overview.learn(ME, facts(ME, shard(came=5, left=4, queued=9)))
    over.overview.learn(OTHER, facts(OTHER, shard(came=1, queued=1)))
    over.core.handle(events.PeerGone(1, ME))
    progress = over.progress()
    count = progress.node("count")
    assert (count.records_in, count.records_out) == (6, 4)
    assert (count.queued, count.shards) == (1, 1)
    assert [worker.id for worker in progress.workers] == [OTHER.worker]


def test_all_that_was_refused_is_counted(over):
    over.overview.learn(ME, facts(ME, refused=2))
    over.overview.learn(OTHER, facts(OTHER, refused=3))
    assert over.progress(refused=10).refused == 15


def test_marks_are_shown_with_how_far_they_are_behind(over, monkeypatch):
    monkeypatch.setattr(over.core.authority, "mark", lambda name: {"count": BEGAN}.get(name, -(2**63)))
    progress = over.progress(BEGAN + 250_000)
    assert (progress.node("count").watermark, progress.node("count").lag) == (BEGAN, 0.25)
    assert progress.node("counts-sink").watermark is None
