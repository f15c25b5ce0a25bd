"""A worker: refuses what is not under the epochs that it knows, holds what is not released, and answers for the rest.

Most tests have one shard here, number 2, of the computation "count". Its source (1) and its sink (3) are elsewhere.
"""

# mypy: disable-error-code="arg-type, dict-item, index, list-item, no-untyped-call, union-attr"

from dataclasses import replace

import pytest

from tests.unit.core.driving import FIRST, ME, OTHER, THIRD, DrivenWorker, Told, adoption, route
from tests.unit.core.pipes import (
    COUNTS,
    LEFT,
    RIGHT,
    Count,
    Hop,
    Pass,
    bundle,
    chain,
    cycle,
    pipeline,
    records_of,
    rows_of,
    shard_of,
    take,
    words_in,
)
from tidemill.core import decisions as d
from tidemill.core import effects, events, messages
from tidemill.core.flow import weight_of
from tidemill.core.graph import Graph, Key, Late
from tidemill.core.ids import BEGINNING, COORDINATOR, END, Peer
from tidemill.core.limits import Limits
from tidemill.core.link import RESEND_AFTER
from tidemill.core.messages import Accepted, ChannelId
from tidemill.core.order import BundleEntry, MarkEntry, WakeEntry

IN = ChannelId(1, 1, 2, 1)
OUT = ChannelId(2, 1, 3, 1)
SECOND = Peer(COORDINATOR, 2)
A, B = words_in(LEFT, 1)[0], words_in(RIGHT, 1)[0]


def counting(graph=None, half=None, *, limits=None, epoch=1, settled=True):
    """A worker that owns shard 2, which has told everybody that it is there and has nothing to do."""
    worker = DrivenWorker(graph or pipeline(Pass, state=None), half, limits=limits)
    worker.routes(route(1, "words-source", OTHER), route(2, "count", None, epoch=epoch), route(3, "counts-sink", OTHER))
    worker.adopt(adoption(2, "count", epoch=epoch))
    worker.routes(route(2, "count", ME, epoch=epoch))
    if settled:
        worker.work()
        worker.said.clear()
        worker.half.events.clear()
    return worker


def delivered(worker, peer=OTHER):
    """The rows that a peer was sent."""
    return rows_of(*(delivery.bundle for delivery in worker.deliveries(peer)))


def test_what_a_state_begins_with_is_for_the_epoch_that_asked():
    """An answer that is late finds the shard under another epoch, for which it was asked for anew."""
    plain = pipeline(Pass, state=None)
    nodes = {name: replace(node, initial=object()) if name == "count" else node for name, node in plain.nodes.items()}
    worker = DrivenWorker(Graph(plain.name, plain.streams, nodes, plain.subscriptions))
    worker.routes(route(1, "words-source", OTHER), route(2, "count", None, epoch=5), route(3, "counts-sink", OTHER))
    for epoch in (5, 6):
        worker.adopt(adoption(2, "count", epoch=epoch))
        assert [asked.epoch for asked in worker.asked(effects.LoadInitial)] == [epoch]
    worker.happen(events.InitialLoaded(worker.now, 2, 5, []))
    assert worker.told(FIRST, messages.Ready) == [], "it runs before what it asked for has come"
    worker.happen(events.InitialLoaded(worker.now, 2, 6, []))
    assert worker.told(FIRST, messages.Ready) == [messages.Ready(2, 6)]


# One owner (Law 3)


def test_a_delivery_is_handled():
    worker = counting()
    worker.deliver(IN, bundle(("a", 1, 10)))
    worker.work()
    assert delivered(worker) == [("a", 1, 10)]
    assert worker.core.refused == 0


@pytest.mark.parametrize("channel", [ChannelId(1, 1, 2, 4), ChannelId(1, 1, 2, 6), ChannelId(1, 1, 99, 5)])
def test_a_delivery_under_another_epoch_than_the_shard_s_is_refused(channel):
    worker = counting(epoch=5)
    worker.deliver(channel, bundle(("a", 1, 10)))
    worker.work()
    assert delivered(worker) == []
    assert worker.half.of("arrived") == []
    assert worker.core.refused == 1


def test_a_delivery_of_an_older_owner_of_the_sender_is_refused():
    worker = counting()
    worker.deliver(ChannelId(1, 7, 2, 1), bundle(("new", 1, 10)), sender=THIRD)
    worker.deliver(ChannelId(1, 6, 2, 1), bundle(("old", 1, 10), first=2))
    worker.work()
    assert delivered(worker) == [("new", 1, 10)]
    assert worker.core.refused == 1


def test_a_newer_owner_of_the_sender_numbers_from_one_and_what_the_older_sent_is_known():
    worker = counting()
    for place in range(3):
        worker.deliver(IN, bundle(("a", place, 10), first=place + 1))
    worker.deliver(ChannelId(1, 7, 2, 1), bundle(*(("a", place, 10) for place in range(4))), sender=THIRD)
    worker.work()
    assert delivered(worker) == [("a", place, 10) for place in range(4)]


def test_markers_are_refused_like_bundles():
    worker = counting(epoch=5)
    worker.deliver(ChannelId(1, 1, 2, 4), b"marker")
    worker.work()
    assert worker.half.of("marker") == []
    assert worker.core.refused == 1


class Slow(Told):
    """Restores a shard when the test says so."""

    def adopt(self, adoption, graph, plan_seed):
        self.events.append(("adopt", adoption.shard, adoption.epoch))
        return ()


def test_nothing_is_delivered_to_a_shard_that_is_not_restored():
    """Law 5: no key runs before its row, timers and identities are loaded."""
    worker = counting(half=Slow())
    worker.deliver(IN, bundle(("a", 1, 10)))
    worker.work()
    assert worker.core.refused == 1
    assert worker.half.of("handled") == []
    assert worker.told(FIRST, messages.Ready) == []


def installed(worker, *rows, epoch=1, unsent=()):
    """Restores shard 2: with what it made of these rows still to leave."""
    shard = shard_of(worker.core.graph, "count", shard=2, epoch=epoch)
    if rows:
        take(shard, *rows)
    worker.decide(d.Install(shard, list(unsent)))


def test_a_restored_shard_is_ready_and_what_it_had_produced_leaves():
    worker = counting(half=Slow())
    installed(worker, ("a", 1, 10))
    assert worker.told(FIRST, messages.Ready) == [messages.Ready(2, 1)]
    worker.work()
    assert delivered(worker) == [("a", 1, 10)]


def test_what_its_parents_had_not_sent_leaves_first_under_their_names():
    worker = counting(half=Slow())
    installed(worker, ("new", 1, 10), unsent=[bundle(("old", 1, 5), stream="counts", origin=77)])
    worker.work()
    sent = [each.bundle for each in worker.deliveries()]
    assert [record[1:4] for record in records_of(*sent)] == [(77, 1, "old"), (2, 1, "new")]


def test_no_mark_is_reported_before_what_a_restored_shard_had_produced_has_left():
    """The records may be older than the mark it was restored with, and nobody else answers for them."""
    half = Slow(hold=True)
    worker = counting(half=half)
    worker.publish(words_source=50)
    assert worker.reported() == {}
    shard = shard_of(worker.core.graph, "count", shard=2)
    take(shard, ("a", 1, 10))
    shard.handle(MarkEntry(50, 50, 0))
    worker.decide(d.Install(shard))
    assert worker.reported() == {2: BEGINNING}
    worker.decide(d.Release(2, 1))
    assert worker.reported() == {2: 10}
    worker.take_receipt(OUT, 1)
    assert worker.reported() == {2: 50}


def test_a_shard_restored_under_an_older_epoch_is_not_taken():
    worker = counting(half=Slow(), epoch=5)
    installed(worker, epoch=4)
    assert worker.told(FIRST, messages.Ready) == []
    assert worker.core.hosted[2].shard is None


def test_a_shard_that_is_given_again_begins_again():
    worker = counting()
    worker.adopt(adoption(2, "count", epoch=8))
    assert worker.half.of("dropped") == [("dropped", 2)]
    assert worker.told(FIRST, messages.Ready) == [messages.Ready(2, 8)]
    worker.deliver(IN, bundle(("old", 1, 10)))
    worker.deliver(ChannelId(1, 1, 2, 8), bundle(("new", 1, 10)))
    worker.work()
    assert delivered(worker) == [("new", 1, 10)]


def test_a_shard_that_is_given_up_releases_nothing_more():
    worker = counting(half=Told(hold=True))
    worker.deliver(IN, bundle(("a", 1, 10)))
    worker.work()
    receipts(worker)
    worker.said.clear()
    worker.decide(d.GiveUp(2), d.Release(2, 9), d.Acknowledge(IN, 9))
    worker.work()
    assert delivered(worker) == []
    assert receipts(worker) == []
    assert worker.core.hosted == {}
    assert worker.reported() == {}


def test_everything_goes_back():
    worker = counting()
    worker.publish(words_source=50)
    worker.deliver(IN, bundle(("a", 1, 60)))
    worker.hear(FIRST, messages.Reset(1))
    worker.work()
    assert worker.core.hosted == {}
    assert worker.core.routing.all() == []
    assert delivered(worker) == []
    worker.routes(
        route(1, "words-source", OTHER, epoch=9),
        route(2, "count", ME, epoch=9),
        route(3, "counts-sink", OTHER, epoch=9),
    )
    worker.adopt(adoption(2, "count", epoch=9))
    worker.work()
    worker.deliver(ChannelId(1, 9, 2, 9), bundle(("a", 1, 10)))
    worker.work()
    assert delivered(worker) == [("a", 1, 10)], "it is not late: the marks went back too"


# What leaves, and when


def test_a_flush_waits_for_the_mechanism_s_release():
    worker = counting(half=Told(hold=True))
    worker.deliver(IN, bundle(("a", 1, 10)))
    worker.work()
    assert worker.half.of("flushed") == [("flushed", 2, 2)]
    assert delivered(worker) == []
    worker.decide(d.Release(2, 2))
    assert delivered(worker) == [("a", 1, 10)]


def test_a_release_is_of_all_flushes_up_to_it_and_of_no_later_one():
    worker = counting(half=Told(hold=True))
    for place in range(3):
        worker.deliver(IN, bundle(("a", place, 10), first=place + 1))
        worker.work()
    worker.decide(d.Release(2, 3))
    assert delivered(worker) == [("a", 0, 10), ("a", 1, 10)]
    worker.decide(d.Release(2, 3))
    assert delivered(worker) == []


def test_the_mechanism_is_told_what_was_handled_before_it_is_told_of_the_flush():
    worker = counting()
    worker.deliver(IN, bundle(("a", 1, 10)))
    worker.work()
    assert [event[0] for event in worker.half.events] == ["arrived", "handled", "flushed"]
    (_, shard, entry, number) = worker.half.of("handled")[0]
    assert (shard, rows_of(entry.bundle), entry.now, number) == (2, [("a", 1, 10)], worker.now, 1)


def test_of_a_bundle_that_was_known_the_mechanism_is_told_too():
    """Its sender still waits for responsibility to be taken."""
    worker = counting()
    worker.deliver(IN, bundle(("a", 1, 10)))
    worker.deliver(IN, bundle(("a", 1, 10)))
    worker.work()
    assert [(entry is None, number) for _, _, entry, number in worker.half.of("handled")] == [(False, 1), (True, 2)]
    assert delivered(worker) == [("a", 1, 10)]


def test_a_bundle_leaves_at_once_when_nothing_else_is_to_be_done():
    worker = counting()
    worker.deliver(IN, bundle(("a", 1, 10)))
    worker.turn()
    assert delivered(worker) == [("a", 1, 10)]


def test_under_load_bundles_leave_full():
    worker = counting(limits=Limits(full_bundle=4))
    for place in range(10):
        worker.deliver(IN, bundle(("a", place, 10), first=place + 1))
    worker.work()
    assert [each.bundle.rows for each in worker.deliveries()] == [4, 4, 2]


def test_shards_take_turns():
    worker = counting()
    worker.routes(route(5, "count", None, range=RIGHT, epoch=1), route(2, "count", ME, range=LEFT))
    worker.adopt(adoption(5, "count", range=RIGHT))
    worker.work()
    worker.half.events.clear()
    for place in range(2):
        worker.deliver(IN, bundle((A, place, 1), first=2 * place + 1))
        worker.deliver(ChannelId(1, 1, 5, 1), bundle((B, place, 1), first=2 * place + 2))
    worker.work()
    assert [shard for _, shard, *_ in worker.half.of("handled")] == [2, 5, 2, 5]


def test_records_go_where_the_routes_say():
    worker = DrivenWorker(chain(Pass, Pass, state=None))
    worker.routes(route(2, "step-1", ME), route(7, "step-2", OTHER, range=LEFT), route(8, "step-2", THIRD, range=RIGHT))
    worker.adopt(adoption(2, "step-1"))
    worker.work()
    worker.deliver(IN, bundle((A, 1, 1), (B, 2, 2)))
    worker.work()
    assert delivered(worker, OTHER) == [(A, 1, 1)]
    assert delivered(worker, THIRD) == [(B, 2, 2)]


def test_what_is_sent_to_a_shard_that_is_not_ready_waits_and_so_does_its_sender():
    worker = counting()
    worker.routes(route(3, "counts-sink", None, epoch=2))
    worker.deliver(IN, bundle(("a", 1, 1)))
    worker.deliver(IN, bundle(("b", 2, 2), first=2))
    worker.work()
    worker.deliver(IN, bundle(("c", 3, 3), first=3))
    worker.work()
    assert delivered(worker) == []
    assert len(worker.half.of("handled")) == 2
    worker.routes(route(3, "counts-sink", THIRD, epoch=2))
    worker.work()
    assert delivered(worker, THIRD) == [("a", 1, 1), ("b", 2, 2), ("c", 3, 3)]


def test_what_a_lost_receiver_had_not_taken_goes_to_the_next_one_in_order():
    worker = counting()
    for place in range(3):
        worker.deliver(IN, bundle(("a", place, 1), first=place + 1))
        worker.work()
    worker.take_receipt(OUT, 1)
    worker.routes(route(3, "counts-sink", None, epoch=2), gone=(OTHER,))
    worker.said.clear()
    worker.routes(route(3, "counts-sink", THIRD, epoch=2))
    assert [each.number for each in worker.said[THIRD]] == [1, 2]
    assert delivered(worker, THIRD) == [("a", 1, 1), ("a", 2, 1)]


@pytest.mark.parametrize("channel", [ChannelId(2, 1, 3, 7), ChannelId(2, 7, 3, 1), ChannelId(9, 1, 3, 1)])
def test_a_receipt_for_another_channel_changes_nothing(channel):
    worker = counting()
    worker.deliver(IN, bundle(("a", 1, 1)))
    worker.work()
    worker.take_receipt(channel, 1)
    assert worker.half.of("acknowledged") == []
    assert not worker.core.hosted[2].drained()


def test_the_mechanism_is_told_what_receivers_took():
    worker = counting()
    worker.deliver(IN, bundle(("a", 1, 1)))
    worker.work()
    worker.take_receipt(OUT, 1)
    assert worker.half.of("acknowledged") == [("acknowledged", 2, 3, 1)]
    assert worker.core.hosted[2].drained()


# What senders are told


def receipts(worker, peer=OTHER):
    """What a sender is told with the next tick, or was told before."""
    worker.tick(1)
    return [each for message in worker.told(peer, messages.Receipts) for each in message.receipts]


def test_a_sender_learns_what_was_worked_off_and_what_was_taken():
    half = Told(take=False)
    worker = counting(half=half)
    sent = bundle(("a", 1, 1))
    worker.deliver(IN, sent)
    worker.work()
    assert [(each.channel, each.taken, each.worked) for each in receipts(worker)] == [(IN, 0, weight_of(sent))]
    worker.decide(d.Acknowledge(IN, 1))
    worker.work()
    assert [(each.taken, each.worked) for each in receipts(worker)] == [(1, weight_of(sent))]


def test_much_credit_is_given_at_once_and_little_with_the_next_tick():
    worker = counting(half=Told(), limits=Limits(window=4 * 20))
    sent = bundle(("a", 1, 1))
    worker.deliver(IN, sent)
    worker.work()
    assert worker.told(OTHER, messages.Receipts) == []
    worker.deliver(IN, bundle(("a", 2, 1), first=2))
    worker.work()
    ((told,),) = [message.receipts for message in worker.told(OTHER, messages.Receipts)]
    assert told.worked == 2 * weight_of(sent)


def test_what_is_not_worked_off_gives_no_credit():
    half = Told()
    worker = counting(half=half)
    worker.routes(route(3, "counts-sink", None, epoch=2))
    for place in range(3):
        worker.deliver(IN, bundle(("a", place, 1), first=place + 1))
        worker.work()
    assert receipts(worker)[-1].worked == weight_of(bundle(("a", 1, 1)))
    assert receipts(worker) == []


def test_an_acknowledgement_is_for_the_channel_that_it_names():
    """What came on an older channel of the same sender has other numbers."""
    worker = counting(half=Told(take=False))
    for place in range(3):
        worker.deliver(IN, bundle(("a", place, 1), first=place + 1))
    newer = ChannelId(1, 7, 2, 1)
    worker.deliver(newer, bundle(("a", 0, 1)), sender=THIRD)
    worker.decide(d.Acknowledge(IN, 3))
    worker.work()
    assert [(each.channel, each.taken) for each in receipts(worker, THIRD)] == [(newer, 0)]
    assert receipts(worker, OTHER) == []


def test_nobody_talks_to_those_who_are_gone():
    worker = counting()
    worker.deliver(IN, bundle(("a", 1, 1)))
    worker.routes(route(3, "counts-sink", THIRD, epoch=2), gone=(OTHER,))
    worker.said.clear()
    worker.work()
    worker.tick(RESEND_AFTER)
    worker.tick(RESEND_AFTER)
    assert OTHER not in worker.said


def test_a_delivery_that_skips_a_number_is_a_fault_of_ours():
    worker = counting()
    with pytest.raises(AssertionError, match="the link keeps the order"):
        worker.deliver(IN, bundle(("a", 1, 1)), number=2)


# Time


def test_marks_are_handled_when_the_queue_is_worked_off():
    worker = counting()
    worker.deliver(IN, bundle(("a", 1, 10)))
    worker.publish(words_source=30)
    worker.work()
    assert [type(entry) for _, _, entry, _ in worker.half.of("handled")] == [BundleEntry, MarkEntry]
    assert worker.core.hosted[2].shard.mark == 30


def test_a_mark_is_reported_when_what_it_speaks_for_was_taken():
    worker = counting()
    worker.deliver(IN, bundle(("a", 1, 10)))
    worker.publish(words_source=30)
    assert worker.reported() == {2: 10}
    worker.take_receipt(OUT, 1)
    assert worker.reported() == {2: 30}


def test_a_mark_waits_for_the_release_of_its_flush():
    worker = counting(half=Told(hold=True))
    worker.publish(words_source=30)
    worker.reported()
    assert worker.core.hosted[2].answers_for() == BEGINNING
    worker.decide(d.Release(2, 9))
    assert worker.reported() == {2: 30}


def test_marks_of_an_unknown_part_hold_everything():
    worker = counting(pipeline(Pass, state=None, sources=("words", "more")))
    worker.publish(words_source=30)
    worker.work()
    assert worker.half.of("handled") == []
    worker.publish(more_source=20)
    worker.work()
    assert worker.core.hosted[2].shard.mark == 20


class Alarm:
    def process_record(self, ctx, record):
        ctx.set_timer("clock", ctx.now + record.n, clock="wall")
        ctx.set_timer("bell", record.timestamp + record.n)

    def process_timer(self, ctx, timer):
        ctx.produce(COUNTS, word=timer.tag, n=timer.at)


def test_event_timers_fire_with_the_mark_and_wall_timers_with_the_clock():
    worker = counting(pipeline(Alarm, state=None))
    worker.deliver(IN, bundle(("a", 100_000, 0)))
    worker.work()
    started = worker.now
    worker.publish(words_source=100_000)
    worker.work()
    assert delivered(worker) == [("bell", 100_000, 100_000)]
    worker.tick(99_999)
    worker.work()
    assert delivered(worker) == []
    worker.tick(1)
    worker.work()
    assert delivered(worker) == [("clock", started + 100_000, 100_000)]
    assert [type(entry) for _, _, entry, _ in worker.half.of("handled")][-1] is WakeEntry


def test_late_records_are_diverted_on_their_way():
    worker = counting(pipeline(Pass, state=None, late=Late("divert", "late"), sinks=("counts", "late")), settled=False)
    worker.routes(route(4, "late-sink", THIRD))
    worker.publish(words_source=50)
    worker.work()
    worker.deliver(IN, bundle(("late", 1, 49), ("on time", 2, 50)))
    worker.work()
    assert delivered(worker) == [("on time", 2, 50)]
    assert delivered(worker, THIRD) == [("late", 1, 49)]


def test_reports_are_signs_of_life():
    worker = counting()
    worker.reported()
    worker.told(FIRST, messages.Report)
    worker.tick(Limits().sign_of_life_every - 1)
    assert worker.told(FIRST, messages.Report) == []
    worker.tick(1)
    assert [each.shards for each in worker.told(FIRST, messages.Report)] == [[]]


# Sources


def reading(limits=None, half=None):
    """A worker with the source's shard 1; the computation is elsewhere."""
    worker = DrivenWorker(pipeline(Pass, state=None), half, limits=limits)
    worker.routes(route(1, "words-source", None, epoch=3), route(2, "count", OTHER), route(3, "counts-sink", OTHER))
    worker.adopt(adoption(1, "words-source", epoch=3))
    worker.routes(route(1, "words-source", ME, epoch=3))
    worker.work()
    return worker


def test_a_source_reads_on_as_its_records_leave():
    worker = reading()
    worker.read(("a", 1, 10), ("b", 2, 20), mark=15)
    assert delivered(worker) == [("a", 1, 10), ("b", 2, 20)]
    (asked,) = worker.asked(effects.Read)
    assert (asked.shard, asked.epoch, asked.split, asked.position) == (1, 3, 0, 2)


def test_one_read_is_under_way_at_a_time():
    worker = reading()
    assert len(worker.asked(effects.Read)) == 1
    worker.tick()
    worker.publish(words_source=5)
    worker.work()
    assert worker.asked(effects.Read) == []


def test_a_source_that_had_nothing_is_asked_again():
    """The host sets the pace: it answers when something is there, or after a while."""
    worker = reading()
    worker.read(mark=15)
    worker.work()
    assert len(worker.asked(effects.Read)) == 1


def test_a_source_that_has_ended_is_not_asked_again():
    worker = reading()
    worker.read(("a", 1, 10), mark=END)
    worker.tick()
    worker.work()
    assert worker.asked(effects.Read) == []
    worker.take_receipt(ChannelId(1, 3, 2, 1), 1)
    assert worker.reported() == {1: END}


def test_an_answer_to_what_an_older_owner_asked_is_not_taken():
    worker = reading()
    (asked,) = worker.asked(effects.Read)
    worker.adopt(adoption(1, "words-source", epoch=8))
    worker.work()
    worker.answer(asked, ("a", 1, 10), mark=5)
    worker.work()
    assert delivered(worker) == []
    (again,) = worker.asked(effects.Read)
    assert (again.epoch, again.position) == (8, 0)
    worker.answer(replace_epoch(asked, 8), ("a", 1, 10), mark=5)
    worker.answer(replace_epoch(asked, 8), ("a", 1, 10), mark=5)
    worker.work()
    assert delivered(worker) == [("a", 1, 10)], "and one answer to each question"


def replace_epoch(asked, epoch):
    return effects.Read(asked.shard, epoch, asked.split, asked.position, asked.limit)


def test_a_source_reads_no_further_than_its_receivers_follow():
    worker = reading(limits=Limits(window=10))
    worker.read(("a", 1, 10), mark=5)
    worker.read(("b", 2, 20), mark=5)
    assert delivered(worker) == [("a", 1, 10)]
    worker.read(mark=5)  # was under way
    worker.tick()
    worker.work()
    assert worker.asked(effects.Read) == []
    worker.take_receipt(ChannelId(1, 3, 2, 1), 0, worked=100)
    worker.work()
    assert delivered(worker) == [("b", 2, 20)]
    assert len(worker.asked(effects.Read)) == 1


def test_a_source_that_runs_too_far_ahead_is_paused():
    graph = pipeline(Pass, state=None, sources=("words", "more"))
    worker = DrivenWorker(graph, limits=Limits(max_skew=100))
    worker.routes(
        route(1, "words-source", ME),
        route(5, "more-source", OTHER),
        route(2, "count", OTHER),
        route(3, "counts-sink", OTHER),
    )
    worker.adopt(adoption(1, "words-source"))
    worker.work()
    worker.publish(words_source=0, more_source=0)
    worker.read(("a", 1, 10), mark=101)
    worker.tick()
    worker.work()
    assert worker.asked(effects.Read) == []
    worker.publish(words_source=101, more_source=1)
    worker.tick()
    worker.work()
    assert len(worker.asked(effects.Read)) == 1


def test_an_idle_source_says_so():
    worker = reading()
    worker.read(mark=5, idle=True)
    worker.tick()
    assert [(each.mark, each.idle) for each in worker.reports()] == [(5, True)]


def test_records_that_were_read_and_not_taken_are_answered_for():
    worker = reading(half=Told(hold=True))
    worker.decide(d.Release(1, 1))
    worker.read(("a", 1, 10), mark=15)
    assert worker.reported() == {1: BEGINNING}
    worker.decide(d.Release(1, 2))
    assert worker.reported() == {1: 10}
    worker.take_receipt(ChannelId(1, 3, 2, 1), 1)
    assert worker.reported() == {1: 15}


# Giving a shard away


def yielded(worker):
    return worker.told(FIRST, messages.Yielded)


def test_a_shard_with_nothing_to_do_is_yielded_at_once():
    worker = counting()
    worker.hear(FIRST, messages.Yield(2, 1))
    assert yielded(worker) == [messages.Yielded(2, 1)]
    assert worker.core.hosted == {}
    assert worker.half.of("dropped") == [("dropped", 2)]


def test_a_wish_under_another_epoch_is_not_heard():
    worker = counting(epoch=5)
    worker.hear(FIRST, messages.Yield(2, 4), messages.Yield(9, 5))
    worker.work()
    assert yielded(worker) == []
    assert 2 in worker.core.hosted


def test_a_shard_is_yielded_when_all_it_produced_was_taken():
    worker = counting(half=Told(hold=True))
    worker.deliver(IN, bundle(("a", 1, 1)))
    worker.turn()
    worker.hear(FIRST, messages.Yield(2, 1))
    worker.work()
    assert yielded(worker) == []
    worker.decide(d.Release(2, 2))
    worker.work()
    assert yielded(worker) == []
    worker.take_receipt(OUT, 1)
    assert yielded(worker) == [messages.Yielded(2, 1)]


def test_while_it_is_yielded_it_takes_nothing_more():
    """What others sent stays theirs to send: to the new owner."""
    worker = counting(half=Told(take=False))
    worker.deliver(IN, bundle(("a", 1, 1)))
    worker.work()
    worker.hear(FIRST, messages.Yield(2, 1))
    worker.deliver(IN, bundle(("b", 1, 1), first=2))
    worker.publish(words_source=90)
    worker.work()
    assert len(worker.half.of("handled")) == 1
    worker.take_receipt(OUT, 1)
    assert yielded(worker) == [messages.Yielded(2, 1)]


def test_a_source_that_is_yielded_reads_no_more():
    worker = reading()
    (asked,) = worker.asked(effects.Read)
    worker.hear(FIRST, messages.Yield(1, 3))
    assert yielded(worker) == [messages.Yielded(1, 3)]
    worker.answer(asked, ("a", 1, 10), mark=5)
    worker.work()
    assert delivered(worker) == []


def hopping(half=None, **limits):
    """Shard 2 of a computation that feeds itself."""
    return counting(pipeline(Hop, state=None, loop=True), half, limits=Limits(**limits))


def hop(worker):
    """What it said to itself comes back once, and is worked off."""
    worker.loop_back()
    worker.work()
    worker.tick(1)


def test_a_shard_that_feeds_itself_is_yielded_when_its_own_records_are_through():
    worker = hopping()
    worker.deliver(IN, bundle(("a", 2, 5)))
    worker.work()
    worker.hear(FIRST, messages.Yield(2, 1))
    assert yielded(worker) == [], "a record to itself is under way"
    for _ in range(6):
        hop(worker)
    assert delivered(worker) == [("a", 0, 5)]
    assert yielded(worker) == []
    worker.take_receipt(OUT, 1)
    assert yielded(worker) == []
    worker.publish(messages.Accepted(2, 1, 99))
    worker.work()
    assert yielded(worker) == [messages.Yielded(2, 1)]


def test_a_merge_s_shards_are_yielded_though_neither_takes_what_the_other_sent():
    worker = counting(pipeline(Hop, state=None, loop=True), settled=False)
    worker.routes(route(5, "count", OTHER, range=RIGHT), route(2, "count", ME, range=LEFT))
    worker.work()
    worker.deliver(IN, bundle((B, 1, 5)))
    worker.work()
    worker.hear(FIRST, messages.Yield(2, 1, [2]))
    assert yielded(worker) == []
    worker.hear(FIRST, messages.Yield(2, 1, [2, 5]))
    assert yielded(worker) == [messages.Yielded(2, 1)]


# Loops


def test_what_comes_round_a_loop_goes_before_what_comes_from_outside():
    worker = hopping()
    worker.deliver(IN, bundle(("a", 1, 5)))
    worker.work()
    worker.deliver(IN, bundle(("b", 0, 5), first=2))
    worker.loop_back()
    worker.half.events.clear()
    worker.work()
    assert [rows_of(entry.bundle)[0][0] for _, _, entry, _ in worker.half.of("handled") if entry] == ["a", "b"]


def test_whether_an_edge_closes_a_cycle_is_the_sender_s_to_say():
    """Its shard may be so new that its route is not known here yet. What comes round a loop goes first."""
    worker = hopping()
    worker.deliver(IN, bundle(("b", 0, 5)))
    worker.deliver(ChannelId(77, 1, 2, 1), bundle(("c", 0, 5), stream="again", origin=77), back_edge=True)
    worker.work()
    assert [rows_of(entry.bundle)[0][0] for _, _, entry, _ in worker.half.of("handled")] == ["c", "b"]


def test_it_says_itself_which_of_its_edges_close_a_cycle():
    worker = hopping()
    worker.deliver(IN, bundle(("a", 1, 5), ("b", 0, 5)))
    worker.work()
    assert [packet.message.back_edge for packet in worker.to_itself] == [True]
    assert [each.back_edge for each in worker.deliveries()] == [False]


def test_inside_a_cycle_a_shard_is_not_yielded_while_it_alone_answers_for_what_was_taken():
    worker = DrivenWorker(cycle(Pass, Pass))
    worker.routes(
        route(1, "words-source", OTHER),
        route(2, "step-1", ME),
        route(3, "step-2", OTHER, epoch=4),
        route(4, "sink", OTHER),
    )
    worker.adopt(adoption(2, "step-1"))
    worker.work()
    worker.deliver(IN, bundle(("a", 1, 30)))
    worker.work()
    worker.take_receipt(ChannelId(2, 1, 3, 4), 1, report=7)
    worker.hear(FIRST, messages.Yield(2, 1))
    worker.work()
    assert yielded(worker) == []
    worker.publish(Accepted(3, 4, 7))
    worker.work()
    assert yielded(worker) == [messages.Yielded(2, 1)]


def test_a_loop_too_large_for_memory_goes_to_disk_and_comes_back_in_order():
    worker = hopping(loop_memory=1)
    for place in range(4):
        worker.deliver(IN, bundle((f"w{place}", 1, 5), first=place + 1))
        worker.work()
    disk: list[bytes] = []
    worker.loop_back()
    disk += [spill.entry for spill in worker.asked(effects.Spill)]
    assert len(disk) == 3
    worker.work()
    for _ in range(3):
        for asked in worker.asked(effects.ReadBack):
            assert (asked.shard, asked.epoch) == (2, 1)
            worker.happen(events.ReadBackDone(worker.now, 2, 1, disk[: asked.count]))
            del disk[: asked.count]
        worker.work()
    assert [word for word, *_ in delivered(worker)] == ["w0", "w1", "w2", "w3"]
    worker.decide(d.GiveUp(2))
    assert worker.asked(effects.DropSpill) == [effects.DropSpill(2, 1)]


def test_what_comes_back_from_disk_for_an_older_owner_is_not_taken():
    worker = hopping(loop_memory=1)
    worker.adopt(adoption(2, "count", epoch=7))
    worker.happen(events.ReadBackDone(worker.now, 2, 1, [b"anything"]))
    worker.happen(events.ReadBackDone(worker.now, 99, 1, [b"anything"]))
    assert not worker.core.hosted[2].loop


def test_inside_a_cycle_the_mark_is_held_until_the_receiver_s_report_is_accepted():
    graph = cycle(Pass, Pass)
    worker = DrivenWorker(graph)
    worker.routes(
        route(1, "words-source", OTHER),
        route(2, "step-1", ME),
        route(3, "step-2", OTHER, epoch=4),
        route(4, "sink", OTHER),
    )
    worker.adopt(adoption(2, "step-1"))
    worker.work()
    worker.publish(words_source=30, step_1=0, step_2=0)
    worker.reported()
    channel = ChannelId(2, 1, 3, 4)
    worker.deliver(IN, bundle(("a", 1, 30)))
    worker.publish(words_source=90)
    assert worker.reported() == {}
    worker.take_receipt(channel, 1, report=7)
    worker.publish(Accepted(3, 4, 6))
    assert worker.reported() == {}, "nobody holds a report yet that includes the record"
    worker.publish(Accepted(3, 3, 7), Accepted(9, 4, 7))
    assert worker.reported() == {}
    worker.publish(Accepted(3, 4, 7))
    assert worker.reported() == {2: 90}


# When user code raises


class Picky:
    def process_record(self, ctx, record):
        ctx.produce(COUNTS, word=record.word, n=record.n)
        if record.n == 13:
            raise ValueError("not this one")


def failed(worker, to=FIRST):
    return worker.told(to, messages.Failed)


def test_an_exception_of_the_user_s_ends_the_run_with_where_it_was():
    worker = counting(pipeline(Picky, state=None))
    worker.deliver(IN, bundle(("a", 1, 1), ("b", 13, 1)))
    worker.work()
    (said,) = failed(worker)
    assert said.error == "UserCodeError"
    assert said.message == (
        "count.process_record (declared at here.py:1) raised ValueError: not this one "
        "for key 'b', stream 'words', record 1:2"
    )


def test_nothing_is_handled_released_or_taken_after_it():
    """What failed was not done. A bundle behind it must not be acknowledged for it, nor half a bundle leave."""
    worker = counting(pipeline(Picky, state=None), Told(hold=True, take=False))
    worker.deliver(IN, bundle(("before", 1, 1)))
    worker.work()
    worker.deliver(IN, bundle(("half", 1, 1), ("b", 13, 1), first=2))
    worker.deliver(IN, bundle(("behind", 1, 1), first=4))
    worker.work()
    worker.told(OTHER, messages.Receipts)
    worker.half.events.clear()
    worker.decide(d.Acknowledge(IN, 3), d.Release(2, 9))
    worker.deliver(IN, bundle(("later", 1, 1), first=5))
    worker.persist(1)
    worker.publish(words_source=9)
    worker.tick()
    worker.work()
    assert worker.half.events == []
    assert delivered(worker) == []
    assert receipts(worker) == []
    assert not worker.core.busy


def test_a_new_coordinator_hears_of_it_too():
    worker = counting(pipeline(Picky, state=None))
    worker.deliver(IN, bundle(("b", 13, 1)))
    worker.work()
    worker.core.meet(SECOND)
    worker.perform(worker.core.greet(worker.now))
    assert len(failed(worker, SECOND)) == 1


@pytest.mark.parametrize(("word", "reason"), [(messages.Finished(), "finished"), (messages.Outdated(), "outdated")])
def test_it_still_hears_that_it_is_over(word, reason):
    worker = counting(pipeline(Picky, state=None))
    worker.deliver(IN, bundle(("b", 13, 1)))
    worker.work()
    worker.hear(FIRST, word)
    assert worker.asked(effects.Exit) == [effects.Exit(reason)]


class Misfit:
    def process_record(self, ctx, record):
        ctx.produce(COUNTS, word=record.word)


@pytest.mark.parametrize("full_bundle", [1, 100])
def test_what_does_not_fit_its_stream_ends_the_run_whenever_it_is_found(full_bundle):
    worker = counting(pipeline(Misfit, state=None), limits=Limits(full_bundle=full_bundle))
    worker.deliver(IN, bundle(("a", 1, 1)))
    worker.work()
    (said,) = failed(worker)
    assert said.error == "DataError"
    assert "that lacks n" in said.message


def test_a_receiver_s_key_function_that_raises_ends_the_run_also_at_a_later_release():
    def key(record):
        raise ValueError(record.word)

    graph = chain(Pass, Pass, state=None)
    subscriptions = [replace(s, key=Key(function=key)) if s.consumer == "step-2" else s for s in graph.subscriptions]
    worker = DrivenWorker(Graph("test", graph.streams, graph.nodes, tuple(subscriptions)), Told(hold=True))
    worker.routes(route(2, "step-1", ME), route(7, "step-2", OTHER, range=LEFT), route(8, "step-2", THIRD, range=RIGHT))
    worker.adopt(adoption(2, "step-1"))
    worker.deliver(IN, bundle(("a", 1, 1)))
    worker.work()
    assert failed(worker) == []
    worker.decide(d.Release(2, 9))
    (said,) = failed(worker)
    assert "key function of an input on stream 'from-step-1' raised ValueError: a" in said.message


def test_a_fault_of_ours_is_not_taken_for_the_user_s():
    worker = counting()
    with pytest.raises(KeyError):
        worker.decide(d.Unblock(99, 1))


# Markers


def test_a_marker_is_handled_in_its_place_among_the_bundles():
    worker = counting()
    for item in (bundle(("a", 1, 1)), b"marker", bundle(("b", 1, 1), first=2)):
        worker.deliver(IN, item)
    worker.work()
    assert [event[0] for event in worker.half.events if event[0] in ("handled", "marker")] == [
        "handled",
        "marker",
        "handled",
    ]
    assert worker.half.of("marker") == [("marker", 2, 1, b"marker")]


def test_a_blocked_sender_waits_until_it_is_unblocked():
    worker = counting()
    worker.decide(d.Block(2, 1))
    worker.deliver(IN, bundle(("a", 1, 1)))
    worker.deliver(ChannelId(5, 1, 2, 1), bundle(("b", 1, 1), origin=5))
    worker.work()
    assert delivered(worker) == [("b", 1, 1)]
    worker.decide(d.Unblock(2, 1))
    worker.work()
    assert delivered(worker) == [("a", 1, 1)]


def test_a_marker_is_sent_behind_everything_on_every_channel():
    worker = counting()
    worker.deliver(IN, bundle(("a", 1, 1)))
    worker.work()
    worker.decide(d.SendMarker(2, b"marker"))
    (sent,) = worker.told(OTHER, messages.InBand)
    assert (sent.channel, sent.number, sent.marker) == (OUT, 2, b"marker")


def test_a_marker_before_what_was_produced_before_it_would_be_a_fault_of_ours():
    worker = counting(half=Told(hold=True))
    worker.deliver(IN, bundle(("a", 1, 1)))
    worker.work()
    with pytest.raises(AssertionError):
        worker.decide(d.SendMarker(2, b"marker"))


# Sinks


def sinking(half=None):
    worker = DrivenWorker(pipeline(Pass, state=None), half)
    worker.routes(route(1, "words-source", OTHER), route(2, "count", OTHER), route(3, "counts-sink", None, epoch=6))
    worker.adopt(adoption(3, "counts-sink", epoch=6))
    worker.routes(route(3, "counts-sink", ME, epoch=6))
    worker.work()
    return worker


TO_SINK = ChannelId(2, 1, 3, 6)


def staged(worker):
    return [(each.epoch, rows_of(each.bundle)) for each in worker.asked(effects.Stage)]


def test_a_sink_s_records_are_staged_under_its_epoch_when_they_are_released():
    worker = sinking(Told(hold=True))
    worker.deliver(TO_SINK, bundle(("a", 1, 1), stream="counts", origin=2))
    worker.work()
    assert staged(worker) == []
    worker.decide(d.Release(3, 2))
    assert staged(worker) == [(6, [("a", 1, 1)])]


def test_a_stage_is_closed_when_all_was_staged():
    worker = sinking(Told(hold=True))
    worker.decide(d.Release(3, 1))
    worker.deliver(TO_SINK, bundle(("a", 1, 1), stream="counts", origin=2))
    worker.work()
    worker.hear(FIRST, messages.Seal(3, 6))
    assert worker.asked(effects.CloseStage) == []
    worker.decide(d.Release(3, 2))
    assert [type(effect) for effect in worker.effects] == [effects.Stage, effects.CloseStage]
    worker.happen(events.SealDone(worker.now, 3, 6, b"piece"))
    assert worker.told(FIRST, messages.Sealed) == [messages.Sealed(3, 6, b"piece")]


def test_a_piece_is_made_when_the_one_before_it_is():
    """A later one that came first would be committed without it."""
    worker = sinking()
    worker.hear(FIRST, messages.Seal(3, 6, 0))
    assert worker.asked(effects.CloseStage) == [effects.CloseStage(3, 6, 0)]
    worker.hear(FIRST, messages.Seal(3, 6, 1))
    worker.work()
    assert worker.asked(effects.CloseStage) == []
    worker.happen(events.SealDone(worker.now, 3, 6, b"first", 0))
    assert worker.told(FIRST, messages.Sealed) == [messages.Sealed(3, 6, b"first", 0)]
    assert worker.asked(effects.CloseStage) == [effects.CloseStage(3, 6, 1)]
    worker.happen(events.SealDone(worker.now, 3, 6, b"second", 1))
    assert worker.told(FIRST, messages.Sealed) == [messages.Sealed(3, 6, b"second", 1)]


def test_a_sink_that_was_restored_is_not_sealed_before_what_it_had_accepted_is_staged():
    worker = sinking(Slow())
    shard = shard_of(worker.core.graph, "counts-sink", shard=3, epoch=6)
    take(shard, ("a", 1, 1), stream="counts")
    worker.decide(d.Install(shard))
    worker.hear(FIRST, messages.Seal(3, 6))
    assert worker.asked(effects.CloseStage) == []
    worker.work()
    assert [type(effect) for effect in worker.effects] == [effects.Stage, effects.CloseStage]


def test_sealing_is_under_an_epoch():
    worker = sinking()
    worker.hear(FIRST, messages.Seal(3, 5), messages.Seal(9, 6))
    assert worker.asked(effects.CloseStage) == []
    worker.hear(FIRST, messages.Seal(3, 6))
    assert worker.asked(effects.CloseStage) == [effects.CloseStage(3, 6)]
    worker.happen(events.SealDone(worker.now, 3, 5, b"old"))
    worker.happen(events.SealDone(worker.now, 9, 6, b"other"))
    assert worker.told(FIRST, messages.Sealed) == []


# The others


def test_the_half_talks_to_the_coordinator_s_half_or_to_another_worker_s():
    worker = counting()
    worker.decide(d.TellHalf(b"up"), d.TellHalf(b"across", THIRD))
    assert worker.told(FIRST, messages.Tell) == [messages.Tell(b"up")]
    assert worker.told(THIRD, messages.Tell) == [messages.Tell(b"across")]


def test_only_the_newest_coordinator_is_listened_to():
    worker = counting()
    worker.core.meet(SECOND)
    worker.hear(FIRST, messages.Outdated())
    worker.hear(FIRST, messages.Reset(1))
    assert worker.asked(effects.Exit) == []
    assert 2 in worker.core.hosted
    worker.core.meet(FIRST)
    assert worker.core.coordinator == SECOND


def test_it_greets_a_new_coordinator_and_keeps_its_shards():
    worker = counting()
    worker.core.meet(SECOND)
    worker.perform(worker.core.greet(worker.now))
    assert worker.told(SECOND, messages.Hello) == [messages.Hello()]
    worker.deliver(IN, bundle(("a", 1, 1)))
    worker.work()
    assert delivered(worker) == [("a", 1, 1)]


def test_a_whole_table_replaces_what_was_known():
    worker = counting()
    whole = [
        route(1, "words-source", OTHER),
        route(12, "count", THIRD, range=LEFT),
        route(13, "count", THIRD, range=RIGHT),
        route(3, "counts-sink", OTHER),
    ]
    worker.hear(FIRST, messages.Routes([], whole, [], whole=True))
    assert sorted(each.shard for each in worker.core.routing.all()) == [1, 3, 12, 13]


def test_a_removal_of_what_is_not_known_changes_nothing():
    worker = counting()
    worker.routes(removed=(77,))
    assert len(worker.core.routing.all()) == 3


def test_what_it_was_asked_to_persist_and_load_is_told_to_its_half():
    told = []

    class Storing(Told):
        def persisted(self, ticket):
            told.append(("persisted", ticket))
            return ()

        def refused(self, ticket):
            told.append(("refused", ticket))
            return ()

        def loaded(self, ticket, entries):
            told.append(("loaded", ticket, entries))
            return ()

        def told(self, sender, payload):
            told.append(("told", sender, payload))
            return ()

    worker = counting(half=Storing())
    worker.decide(effects.Append(4, "log", 1, [b"entry"]), effects.OpenLog(5, "log", 1))
    assert worker.asked(effects.Append) == [effects.Append(4, "log", 1, [b"entry"])]
    assert worker.asked(effects.OpenLog) == [effects.OpenLog(5, "log", 1)]
    worker.persist(4)
    worker.refuse(4)
    worker.happen(events.Loaded(worker.now, 5, [b"entry"]))
    worker.hear(THIRD, messages.Tell(b"word"))
    assert told == [("persisted", 4), ("refused", 4), ("loaded", 5, [b"entry"]), ("told", THIRD, b"word")]


def test_when_it_is_over_it_exits():
    worker = counting()
    worker.hear(FIRST, messages.Finished())
    assert worker.asked(effects.Exit) == [effects.Exit("finished")]


def test_a_worker_without_shards_is_not_busy():
    worker = DrivenWorker(pipeline(Count))
    worker.happen(events.Started(0))
    assert not worker.core.busy
    worker.tick()
    assert not worker.core.busy
