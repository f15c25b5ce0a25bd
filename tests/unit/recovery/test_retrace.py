"""Retrace: what was handled is written down before its consequences leave, and whoever takes over retraces it."""

# mypy: disable-error-code="arg-type, dict-item, index, list-item, union-attr"

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.driving import FIRST, ME, OTHER, THIRD, DrivenCoordinator, DrivenWorker, adoption, route
from tests.unit.core.pipes import LEFT, RIGHT, Count, bundle, pipeline, records_of, rows_of, words_in
from tidemill.core import effects, events, messages
from tidemill.core.decisions import Assign, NewShard, Supersede, TakeBack, Write
from tidemill.core.effects import Append, OpenLog
from tidemill.core.halves import Change
from tidemill.core.ids import BEGINNING, Peer
from tidemill.core.keys import FULL
from tidemill.core.messages import Adoption, ChannelId, Lineage
from tidemill.core.routing import Routing
from tidemill.recovery.contract import EXACTLY_ONCE
from tidemill.recovery.retrace import Retrace, RetraceCoordinator, RetraceWorker
from tidemill.recovery.retrace.worker import log_of

GRAPH = pipeline(Count)
IN, OUT = ChannelId(1, 1, 2, 5), ChannelId(2, 5, 3, 1)
A, B = words_in(LEFT, 1)[0], words_in(RIGHT, 1)[0]


def test_it_says_what_it_promises():
    assert (Retrace().name, Retrace().promise) == ("retrace", EXACTLY_ONCE)
    assert isinstance(Retrace().worker_half(), RetraceWorker)
    assert isinstance(Retrace().coordinator_half(), RetraceCoordinator)


# In a worker


def opened(lineage=None, *, epoch=5, graph=GRAPH, shard=2, range=FULL):
    """A worker that has asked for the logs of its shard."""
    worker = DrivenWorker(graph, Retrace().worker_half())
    worker.routes(
        route(1, "words-source", OTHER),
        route(shard, "count", None, range=FULL, epoch=epoch),
        route(3, "counts-sink", OTHER),
    )
    lineage = lineage or Lineage(shard, range, [])
    worker.adopt(Adoption(shard, "count", lineage.range, epoch, lineage))
    return worker


def load(worker, logs=None):
    """Answers what was asked for, each log by its name."""
    for asked in worker.asked(OpenLog):
        worker.happen(events.Loaded(worker.now, asked.ticket, (logs or {}).get(asked.log, [])))


def counting(logs=None, *, lineage=None, epoch=5, shard=2):
    worker = opened(lineage, epoch=epoch, shard=shard)
    load(worker, logs)
    worker.routes(route(shard, "count", ME, range=FULL, epoch=epoch))
    worker.work()
    worker.said.clear()
    return worker


def delivered(worker, peer=OTHER):
    return records_of(*(each.bundle for each in worker.deliveries(peer)))


def rows(worker, peer=OTHER):
    return rows_of(*(each.bundle for each in worker.deliveries(peer)))


def untaken(worker):
    """All that it has not seen taken, for the sink has moved."""
    worker.routes(route(3, "counts-sink", THIRD, epoch=2), gone=(OTHER,))
    return delivered(worker, THIRD)


def receipts(worker, peer=OTHER):
    """What a sender is told with the next tick."""
    worker.tick(1)
    return [(each.channel, each.taken) for told in worker.told(peer, messages.Receipts) for each in told.receipts]


def test_what_was_handled_is_written_down_before_anything_leaves_or_is_taken():
    worker = counting()
    worker.deliver(IN, bundle(("a", 1, 1)))
    worker.work()
    (append,) = worker.asked(Append)
    assert (append.log, append.epoch, len(append.entries)) == (log_of(2), 5, 1)
    assert delivered(worker) == []
    assert [taken for _, taken in receipts(worker)] == [0]
    worker.persist(append.ticket)
    worker.work()
    assert rows(worker) == [("a", 1, 1)]
    assert receipts(worker) == [(IN, 1)]


def test_an_append_holds_all_that_was_handled_since_the_one_before():
    worker = counting()
    for place in range(3):
        worker.deliver(IN, bundle(("a", 1, 1), first=place + 1))
    worker.publish(words_source=9)
    worker.work()
    (append,) = worker.asked(Append)
    assert len(append.entries) == 4
    worker.persist(append.ticket)
    worker.work()
    assert receipts(worker)[-1] == (IN, 3)


def test_a_bundle_that_was_known_is_taken_when_what_made_it_known_is_durable():
    worker = counting()
    worker.deliver(IN, bundle(("a", 1, 1)))
    worker.work()
    worker.deliver(IN, bundle(("a", 1, 1)))
    worker.work()
    first, second = worker.asked(Append)
    assert second.entries == []
    receipts(worker)
    worker.persist(first.ticket)
    worker.work()
    assert receipts(worker) == [(IN, 1)]
    worker.persist(second.ticket)
    worker.work()
    assert receipts(worker) == [(IN, 2)]


def test_with_nothing_to_write_nothing_is_waited_for():
    worker = counting()
    worker.deliver(IN, bundle(("a", 1, 1)))
    worker.work()
    worker.persist(worker.asked(Append)[0].ticket)
    worker.work()
    receipts(worker)
    worker.deliver(IN, bundle(("a", 1, 1)))
    worker.work()
    assert worker.asked(Append) == []
    assert receipts(worker) == [(IN, 2)]


def test_what_was_handled_from_an_older_channel_is_not_taken_for_a_newer_one_s():
    """The sender was restored meanwhile, and its new channel numbers from one."""
    worker = counting()
    for place in range(3):
        worker.deliver(IN, bundle(("a", 1, 1), first=place + 1))
    worker.work()
    (append,) = worker.asked(Append)
    newer = ChannelId(1, 7, 2, 5)
    worker.deliver(newer, bundle(("a", 1, 1)), sender=THIRD)
    worker.persist(append.ticket)
    assert worker.core.hosted[2].ins[1].taken == 0


def test_a_refused_append_gives_the_shard_up():
    worker = counting()
    worker.deliver(IN, bundle(("a", 1, 1)))
    worker.work()
    (append,) = worker.asked(Append)
    worker.refuse(append.ticket)
    worker.work()
    assert worker.core.hosted == {}
    assert delivered(worker) == []
    assert all(taken == 0 for _, taken in receipts(worker))


def test_answers_to_what_an_older_owner_asked_change_nothing():
    worker = counting()
    for place in range(2):
        worker.deliver(IN, bundle(("a", 1, 1), first=place + 1))
        worker.work()
    first, second = worker.asked(Append)
    worker.adopt(adoption(2, "count", epoch=9))
    worker.persist(first.ticket)
    worker.refuse(second.ticket)
    assert 2 in worker.core.hosted
    load(worker, {log_of(2): first.entries})
    worker.routes(route(2, "count", ME, epoch=9))
    worker.work()
    assert rows(worker) == [("a", 1, 1)]


# Restoring


def test_a_shard_s_log_is_opened_under_its_epoch():
    worker = opened()
    assert [(asked.log, asked.epoch, asked.last) for asked in worker.asked(OpenLog)] == [(log_of(2), 5, False)]
    assert worker.told(FIRST, messages.Ready) == []


def test_nobody_will_append_to_its_ancestors_logs_any_more():
    grandparent = Lineage(7, FULL, [])
    parents = [Lineage(8, LEFT, [grandparent]), Lineage(9, RIGHT, [grandparent])]
    worker = opened(Lineage(2, FULL, parents))
    asked = {each.log: (each.epoch, each.last) for each in worker.asked(OpenLog)}
    assert asked == {log_of(2): (5, False), log_of(7): (5, True), log_of(8): (5, True), log_of(9): (5, True)}


def test_it_is_ready_when_all_logs_were_read():
    worker = opened(Lineage(2, LEFT, [Lineage(7, FULL, [])]))
    first, second = worker.asked(OpenLog)
    worker.happen(events.Loaded(worker.now, first.ticket, []))
    assert worker.told(FIRST, messages.Ready) == []
    worker.happen(events.Loaded(worker.now, second.ticket, []))
    assert worker.told(FIRST, messages.Ready) == [messages.Ready(2, 5)]


def test_a_log_that_is_another_s_gives_the_shard_up():
    worker = opened()
    (asked,) = worker.asked(OpenLog)
    worker.refuse(asked.ticket)
    assert worker.core.hosted == {}
    assert worker.told(FIRST, messages.Ready) == []


def test_a_log_that_was_opened_for_an_older_ownership_restores_nothing():
    worker = opened()
    (old,) = worker.asked(OpenLog)
    worker.adopt(adoption(2, "count", epoch=9))
    worker.happen(events.Loaded(worker.now, old.ticket, []))
    assert worker.told(FIRST, messages.Ready) == []
    (new,) = worker.asked(OpenLog)
    worker.happen(events.Loaded(worker.now, new.ticket, []))
    assert worker.told(FIRST, messages.Ready) == [messages.Ready(2, 9)]


def test_a_refusal_for_an_older_ownership_gives_nothing_up():
    worker = opened()
    (old,) = worker.asked(OpenLog)
    worker.adopt(adoption(2, "count", epoch=9))
    worker.refuse(old.ticket)
    assert 2 in worker.core.hosted


def test_a_shard_that_was_dropped_while_it_was_restored_stays_so():
    worker = opened()
    (asked,) = worker.asked(OpenLog)
    worker.hear(FIRST, messages.Reset(1))
    worker.happen(events.Loaded(worker.now, asked.ticket, []))
    assert worker.told(FIRST, messages.Ready) == []
    assert worker.core.hosted == {}


EVENTS = st.lists(
    st.one_of(
        st.lists(st.sampled_from([A, B, None]), min_size=1, max_size=3),
        st.integers(0, 20),  # a mark
    ),
    max_size=8,
)


def lived(worker, events_):
    """Lets this happen to the worker's shard; gives back its log, and what left with it."""
    log, left = [], []
    first = 1
    for event in events_:
        if isinstance(event, int):
            worker.publish(words_source=event)
        else:
            worker.deliver(IN, bundle(*((word, 0, first + 10) for word in event), first=first))
            first += len(event)
        worker.work()
        for append in worker.asked(Append):
            log += append.entries
            worker.persist(append.ticket)
        worker.work()
        left += delivered(worker)
    return log, left


@given(EVENTS, st.integers(0, 99))
def test_a_retraced_shard_is_the_one_that_was_lost(before, cut):
    """Everything it produced leaves again, under the same identities."""
    lost = counting()
    log, left = lived(lost, before)
    again = counting({log_of(2): log})
    assert untaken(again) == left
    shards = [worker.core.hosted[2].shard for worker in (lost, again)]
    assert shards[0].head() == shards[1].head()
    assert shards[0].state.rows == shards[1].state.rows
    short = counting({log_of(2): log[: cut % (len(log) + 1)]})
    part = untaken(short)
    assert part == left[: len(part)], "what was durable first is what is retraced"


def test_a_retraced_shard_reports_no_mark_before_what_it_had_produced_was_taken():
    log, _ = lived(counting(), [["a"], 9])
    worker = opened()
    load(worker, {log_of(2): log})
    worker.routes(route(2, "count", ME, epoch=5))
    worker.tick()
    assert [value.mark for value in worker.reports()] == [BEGINNING]
    assert worker.reported() == {2: 9}


def test_a_split_s_child_takes_its_keys_from_its_parent_s_log_and_sends_nothing_of_it_again():
    log, _ = lived(counting(), [[A, B, A]])
    child = counting({log_of(2): log}, lineage=Lineage(40, LEFT, [Lineage(2, FULL, [])]), shard=40)
    assert child.core.hosted[40].shard.state.rows.keys() == {A}
    child.deliver(ChannelId(1, 1, 40, 5), bundle((A, 0, 11), first=3))
    child.deliver(ChannelId(1, 1, 40, 5), bundle((A, 0, 20), first=4))
    child.work()
    child.persist(child.asked(Append)[0].ticket)
    assert untaken(child) == [("counts", 40, 1, A, 3, 20)]


def test_a_merged_shard_sends_again_what_its_parents_had_sent_under_their_names():
    """What they had sent to each other nobody took."""
    logs = {}
    for shard, word in ((8, A), (9, B)):
        parent = counting(lineage=Lineage(shard, FULL, []), shard=shard)
        parent.deliver(ChannelId(1, 1, shard, 5), bundle((word, 0, 1), first=shard))
        parent.work()
        logs[log_of(shard)] = parent.asked(Append)[0].entries
    whole = opened(Lineage(2, FULL, [Lineage(8, LEFT, []), Lineage(9, RIGHT, [])]))
    load(whole, logs)
    whole.routes(route(2, "count", ME, epoch=5))
    whole.work()
    assert delivered(whole) == [("counts", 8, 1, A, 1, 1), ("counts", 9, 1, B, 1, 1)]
    assert whole.core.hosted[2].shard.state.rows.keys() == {A, B}


def test_own_entries_are_retraced_behind_those_of_the_ancestors():
    parent_log, _ = lived(counting(), [[A, B]])
    child = counting({log_of(2): parent_log}, lineage=Lineage(40, LEFT, [Lineage(2, FULL, [])]), shard=40)
    child.deliver(ChannelId(1, 1, 40, 5), bundle((A, 0, 20), first=3))
    child.work()
    own_log = child.asked(Append)[0].entries
    again = counting(
        {log_of(2): parent_log, log_of(40): own_log}, lineage=Lineage(40, LEFT, [Lineage(2, FULL, [])]), shard=40
    )
    assert untaken(again) == [("counts", 40, 1, A, 2, 20)]


# In the coordinator

PARENT, LEFTMOST, RIGHTMOST = 2, 2, 3
AGAIN = Peer(ME.worker, 2)


def table(*ranges):
    made = Routing()
    made.change([], [route(2 + place, "count", ME, range=range) for place, range in enumerate(ranges)])
    return made


def begun(*ranges):
    half = RetraceCoordinator()
    half.begin(1, [], table(*ranges))
    return half


SPLIT = Change("split", (PARENT,), None, (50, 51))
MERGE = Change("merge", (LEFTMOST, RIGHTMOST), None, (52,))
MOVE = Change("move", (PARENT,), 4, ())
CHILDREN = [Lineage(50, LEFT, [Lineage(PARENT, FULL, [])]), Lineage(51, RIGHT, [Lineage(PARENT, FULL, [])])]


def test_everything_is_assigned_from_its_logs():
    half = RetraceCoordinator()
    assert half.begin(1, [], table(LEFT, RIGHT)) == (Assign([LEFTMOST, RIGHTMOST]),)
    assert half.lineage(LEFTMOST) == Lineage(LEFTMOST, LEFT, [])


def test_only_the_lost_shards_are_assigned():
    assert begun(LEFT, RIGHT).lost([RIGHTMOST]) == (Assign([RIGHTMOST]),)


def test_a_move_is_a_drain_and_then_another_owner():
    half = begun(FULL)
    assert list(half.reroute(MOVE, table(FULL))) == [TakeBack(PARENT, [PARENT])]
    assert half.yielded(PARENT) == (Assign([PARENT], {PARENT: 4}),)


def test_a_split_is_written_down_before_it_is_true():
    half = begun(FULL)
    assert list(half.reroute(SPLIT, table(FULL))) == [TakeBack(PARENT, [PARENT])]
    (write,) = half.yielded(PARENT)
    assert isinstance(write, Write)
    added = [NewShard("count", each.range, each.shard, each) for each in CHILDREN]
    assert half.persisted(write.ticket) == (Supersede([PARENT], added), Assign([50, 51]))
    assert half.lineage(50) == CHILDREN[0]
    with pytest.raises(KeyError):
        half.lineage(PARENT)


def test_a_merge_waits_for_both():
    half = begun(LEFT, RIGHT)
    both = [LEFTMOST, RIGHTMOST]
    assert list(half.reroute(MERGE, table(LEFT, RIGHT))) == [TakeBack(shard, both) for shard in both]
    assert half.yielded(RIGHTMOST) == ()
    (write,) = half.yielded(LEFTMOST)
    whole = Lineage(52, FULL, [Lineage(LEFTMOST, LEFT, []), Lineage(RIGHTMOST, RIGHT, [])])
    assert half.persisted(write.ticket) == (Supersede(both, [NewShard("count", FULL, 52, whole)]), Assign([52]))


def test_one_change_at_a_time():
    half = begun(FULL)
    half.reroute(SPLIT, table(FULL))
    assert half.reroute(MOVE, table(FULL)) == ()
    (write,) = half.yielded(PARENT)
    half.persisted(write.ticket)
    later = Change("move", (50,), 4, ())
    assert list(half.reroute(later, table(FULL))) == [TakeBack(50, [50])]


def test_the_next_coordinator_reads_the_routing_from_the_journal():
    half = begun(FULL)
    half.reroute(SPLIT, table(FULL))
    (write,) = half.yielded(PARENT)
    half.persisted(write.ticket)
    half.reroute(Change("merge", (50, 51), None, (60,)), table(FULL))
    half.yielded(50)
    (second,) = half.yielded(51)
    successor = RetraceCoordinator()
    first, then, assign = successor.begin(2, [write.entry, second.entry], table(FULL))
    assert (first.removed, then.removed) == ([PARENT], [50, 51])
    assert assign == Assign([60])
    assert successor.lineage(60) == Lineage(60, FULL, CHILDREN)


def test_a_change_whose_owner_dies_before_it_has_drained_is_off():
    half = begun(LEFT, RIGHT)
    half.reroute(MERGE, table(LEFT, RIGHT))
    assert half.lost([LEFTMOST]) == (Assign([LEFTMOST]),)
    assert half.yielded(RIGHTMOST) == (Assign([RIGHTMOST]),), "it drained for nothing, and needs an owner"
    assert list(half.reroute(MOVE, table(LEFT, RIGHT))) == [TakeBack(PARENT, [PARENT])]


def test_what_had_been_yielded_for_a_change_that_is_off_gets_an_owner_too():
    half = begun(LEFT, RIGHT)
    half.reroute(MERGE, table(LEFT, RIGHT))
    half.yielded(RIGHTMOST)
    assert half.lost([LEFTMOST]) == (Assign([LEFTMOST, RIGHTMOST]),)


def test_while_the_journal_is_written_to_what_it_may_replace_has_no_owner():
    """Were the parent assigned again, it and its children would own the same keys."""
    half = begun(FULL)
    half.reroute(SPLIT, table(FULL))
    (write,) = half.yielded(PARENT)
    assert half.lost([PARENT]) == ()
    assert half.lost([PARENT, 1]) == (Assign([1]),)
    assert half.persisted(write.ticket)[1] == Assign([50, 51])


def driven(workers=2, shards=1):
    peers = (ME, OTHER)[:workers]
    made = DrivenCoordinator(GRAPH, RetraceCoordinator(), workers=workers, shards=shards)
    made.join(*peers)
    made.ready(*peers)
    made.said.clear()
    return made


def test_a_merge_whose_shards_yield_one_after_the_other_is_a_merge():
    made = driven(shards=2)
    left, right = made.shards_of("count")
    made.happen(events.MergeAsked(made.now, left))
    made.hear(made.owner_of(left), messages.Yielded(left, made.epoch_of(left)))
    for _ in range(5):
        made.tick()
    made.hear(made.owner_of(right), messages.Yielded(right, made.epoch_of(right)))
    (journal,) = made.asked(effects.Journal)
    made.persist(journal.ticket)
    (whole,) = made.shards_of("count")
    made.ready(ME, OTHER)
    assert made.owner_of(whole) is not None


def test_a_split_whose_only_worker_dies_is_had_by_the_next_one():
    made = driven(workers=1)
    (parent,) = made.shards_of("count")
    made.happen(events.SplitAsked(made.now, parent))
    made.hear(ME, messages.Yielded(parent, made.epoch_of(parent)))
    (journal,) = made.asked(effects.Journal)
    made.gone(ME)
    made.persist(journal.ticket)
    made.join(AGAIN)
    made.ready(AGAIN)
    assert made.core.ownership.complete()
    assert len(made.shards_of("count")) == 2
