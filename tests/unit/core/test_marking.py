"""A worker's side of time: what its shards may believe, what it reports, and when a receipt binds a report."""

# mypy: disable-error-code="arg-type, dict-item, index, list-item, union-attr"

import pytest

from tests.unit.core.driving import OTHER, adoption, route
from tests.unit.core.pipes import Pass, bundle, cycle, pipeline, shard_of
from tidemill.core.flow import WINDOW, Arrival
from tidemill.core.hosted import Hosted
from tidemill.core.ids import BEGINNING, END
from tidemill.core.marking import Reporter
from tidemill.core.messages import ChannelId, Marks, Receipts, Report, ShardReport
from tidemill.core.order import ReadEntry
from tidemill.core.routing import Routing

EVERY, SIGN = 10, 1_000
TWO = pipeline(Pass, state=None, sources=("words", "more"))


def reporter(graph=TWO):
    return Reporter(graph, EVERY, SIGN)


def told(made, *, idle=(), **marks):
    named = [(name.replace("_", "-"), mark) for name, mark in marks.items()]
    return made.published(Marks(named, [], list(idle)))


def hosted(graph=TWO, node="count", shard=2, *, mark=BEGINNING):
    held = Hosted(graph, adoption(shard, node), window=WINDOW, loop_memory=WINDOW)
    held.shard = shard_of(graph, node, shard=shard)
    held.released_mark = mark
    return held


def arrive(held, at, sender=1, back_edge=False):
    channel = held.channel(ChannelId(sender, 1, held.id, 1), OTHER, back_edge=back_edge)
    channel.number += 1
    held.arrive(Arrival(channel, channel.number, bundle(("a", 1, at), origin=sender, first=channel.number)))
    return channel


# What its shards may believe


def test_an_input_mark_is_the_least_of_all_senders():
    made, held = reporter(), hosted()
    assert made.input_marks(held) == (BEGINNING, BEGINNING)
    told(made, words_source=50)
    assert made.input_marks(held) == (BEGINNING, BEGINNING)
    told(made, more_source=30)
    assert made.input_marks(held) == (30, 30)


def test_its_own_queue_holds_it():
    made, held = reporter(), hosted()
    told(made, words_source=50, more_source=50)
    arrive(held, 20)
    assert made.input_marks(held) == (20, 20)
    held.block(1)
    assert made.input_marks(held) == (20, 20)
    held.unblock(1)
    held.next_arrival()
    assert made.input_marks(held) == (50, 50)


def test_inside_a_cycle_all_senders_hold_the_input_mark_and_those_outside_the_output_mark():
    made, held = reporter(cycle()), hosted(cycle(), "step-1")
    told(made, words_source=50, step_1=20, step_2=20)
    assert made.input_marks(held) == (20, 50)
    arrive(held, 10, sender=3, back_edge=True)
    assert made.input_marks(held) == (10, 10)


def test_marks_never_fall_here_and_what_rose_is_told():
    made = reporter()
    assert list(told(made, words_source=50, more_source=10)) == ["words-source", "more-source"]
    assert list(told(made, words_source=40, more_source=20)) == ["more-source"]
    assert made.input_marks(hosted()) == (20, 20)


def test_until_everything_goes_back():
    made = reporter()
    told(made, words_source=50, more_source=50)
    made.reset()
    assert made.input_marks(hosted()) == (BEGINNING, BEGINNING)


def test_an_idle_sender_holds_nobody_back():
    made, held = reporter(), hosted()
    told(made, words_source=50, more_source=10)
    assert list(told(made, idle=("more-source",))) == ["more-source"]
    assert made.input_marks(held) == (50, 50)
    assert list(told(made, words_source=60)) == ["words-source"]
    assert made.input_marks(held) == (10, 10), "it is idle no more"


def test_when_all_senders_are_idle_time_stands_still():
    made, held = reporter(), hosted()
    told(made, words_source=50, more_source=10)
    told(made, idle=("words-source", "more-source"))
    assert made.input_marks(held) == (10, 10)


def test_whether_a_mark_may_rise_is_asked_of_the_senders_alone():
    made, held = reporter(), hosted()
    assert not made.may_advance(held)
    told(made, words_source=50, more_source=30)
    assert made.may_advance(held)
    held.shard.mark = held.shard.outside = 30
    assert not made.may_advance(held)
    told(made, words_source=90)
    assert not made.may_advance(held)
    told(made, more_source=31)
    assert made.may_advance(held)


def test_a_source_runs_ahead_of_the_slowest_by_so_much():
    made = reporter()
    assert not made.runs_ahead(100, 10), "of the others nothing is known yet"
    told(made, words_source=100, more_source=90)
    assert not made.runs_ahead(100, 10)
    assert made.runs_ahead(101, 10)
    assert not made.runs_ahead(10_000, None)
    told(made, idle=("more-source",))
    assert not made.runs_ahead(101, 10), "an idle source is not waited for"
    assert made.runs_ahead(111, 10)


# What it reports


def report(made, *held, now):
    return made.report({each.id: each for each in held}, now)


def test_it_reports_what_has_changed():
    made, one, other = reporter(), hosted(mark=5), hosted(node="counts-sink", shard=3, mark=7)
    first = report(made, one, other, now=10)
    assert first == Report(1, [ShardReport(2, 1, 5, False), ShardReport(3, 1, 7, False)])
    assert report(made, one, other, now=30) is None
    one.released_mark = 6
    assert report(made, one, other, now=50) == Report(2, [ShardReport(2, 1, 6, False)])


def test_it_reports_under_the_shard_s_epoch():
    made, held = reporter(), hosted(mark=5)
    report(made, held, now=10)
    held.adoption = adoption(2, "count", epoch=4)
    assert report(made, held, now=30).shards == [ShardReport(2, 4, 5, False)]


def test_of_a_shard_that_is_not_restored_it_says_nothing():
    held = hosted(mark=5)
    held.shard = None
    assert report(reporter(), held, now=10) is None


def test_it_reports_not_too_often_and_not_too_seldom():
    made, held = reporter(), hosted(mark=5)
    assert report(made, held, now=EVERY) is not None
    held.released_mark = 6
    assert report(made, held, now=EVERY + 9) is None
    assert report(made, held, now=2 * EVERY) is not None
    assert report(made, held, now=2 * EVERY + SIGN - 1) is None
    assert report(made, held, now=2 * EVERY + SIGN) == Report(3, []), "a sign of life"


def test_a_clock_that_went_back_does_not_silence_it():
    made, held = reporter(), hosted(mark=5)
    report(made, held, now=1_000_000)
    assert report(made, held, now=5) == Report(2, [])


def test_a_shard_that_came_again_is_reported_again():
    made, held = reporter(), hosted(mark=5)
    report(made, held, now=10)
    made.forget(2)
    assert report(made, held, now=30) == Report(2, [ShardReport(2, 1, 5, False)])


def test_numbers_of_reports_go_on_also_when_everything_goes_back():
    """A receipt of the attempt before named one of them."""
    made, held = reporter(), hosted(mark=5)
    report(made, held, now=10)
    made.reset()
    assert report(made, held, now=30) == Report(2, [ShardReport(2, 1, 5, False)])


# Idle


def source(idle=True, mark=5):
    held = hosted(node="words-source", shard=1, mark=mark)
    held.shard.handle(ReadEntry(None, 0, mark, idle, 0))
    return held


def is_idle(made, held, now=10):
    (value,) = report(made, held, now=now).shards
    return value.idle


def test_a_source_that_says_so_is_idle():
    assert is_idle(reporter(), source())
    assert not is_idle(reporter(), source(idle=False))


def under_way(held):
    routing = Routing()
    routing.change([], [route(2, "count", OTHER)])
    held.lanes["count"].follow(routing, held.keyings["count"])
    held.push(bundle(("a", 1, 9), origin=1), routing)


def unflushed(held):
    held.dirty = True


def unreleased(held):
    held.new_flush()


@pytest.mark.parametrize("something", [under_way, unflushed, unreleased])
def test_a_source_is_not_idle_while_a_record_of_it_is_on_its_way(something):
    """Also one that is younger than its mark, and so does not lower it: the others must not run past it."""
    held = source()
    something(held)
    assert not is_idle(reporter(), held)


def test_a_computation_is_idle_when_all_its_senders_are_and_nothing_is_left_to_do():
    made, held = reporter(), hosted(mark=5)
    held.shard.mark = held.shard.outside = 5
    assert not is_idle(made, held)
    told(made, idle=("words-source",))
    assert not is_idle(reporter(), held)
    told(made, idle=("words-source", "more-source"))
    made.forget(2)
    assert is_idle(made, held, now=30)
    arrive(held, 9)
    assert not is_idle(made, held, now=50)


def test_a_computation_is_not_idle_while_something_of_a_loop_waits():
    made, held = reporter(), hosted(mark=5)
    held.shard.mark = held.shard.outside = 5
    told(made, idle=("words-source", "more-source"))
    arrive(held, 9, back_edge=True)
    assert not is_idle(made, held)


def test_a_cycle_behind_an_idle_source_is_idle_with_it():
    made, held = reporter(cycle()), hosted(cycle(), "step-1", mark=5)
    held.shard.mark = held.shard.outside = 5
    assert not is_idle(made, held)
    told(made, idle=("words-source",))
    made.forget(2)
    assert is_idle(made, held, now=30)


def test_a_computation_with_a_timer_to_come_before_its_mark_is_not_idle():
    made, held = reporter(), hosted(mark=3)
    held.shard.mark = held.shard.outside = 5
    told(made, idle=("words-source", "more-source"))
    assert not is_idle(made, held)


# What it owes


def receipts(made, *held):
    return list(made.receipts({each.id: each for each in held}))


def test_a_sender_is_told_once_what_is_known_of_its_records():
    made, held = reporter(), hosted()
    channel = arrive(held, 5)
    channel.taken, channel.worked = 1, 17
    made.owe(channel, 17)
    assert made.owes(17)
    assert not made.owes(18)
    ((peer, told_it),) = receipts(made, held)
    assert peer == OTHER
    assert told_it == Receipts([channel.receipt(1)])
    assert not made.owes(1)
    assert receipts(made, held) == []


def test_all_channels_of_one_process_share_a_message():
    made, held, other = reporter(), hosted(), hosted(node="counts-sink", shard=3)
    for each, sender in ((held, 1), (held, 4), (other, 2)):
        made.owe(arrive(each, 5, sender=sender))
    ((_, told_it),) = receipts(made, held, other)
    assert [(r.channel.from_shard, r.channel.to_shard) for r in told_it.receipts] == [(1, 2), (4, 2), (2, 3)]


def test_a_channel_that_was_replaced_or_whose_shard_is_gone_is_owed_nothing():
    made, held, other = reporter(), hosted(), hosted(node="counts-sink", shard=3)
    made.owe(arrive(held, 5))
    made.owe(arrive(other, 5))
    held.channel(ChannelId(1, 9, 2, 1), OTHER, back_edge=False)
    assert receipts(made, held) == []


def test_a_receipt_names_the_next_report_and_that_report_is_made():
    """Whoever waits for it would wait for ever if nothing else changed."""
    made, held = reporter(), hosted(mark=5)
    assert report(made, held, now=10).number == 1
    made.owe(arrive(held, 5))
    held.next_arrival()
    ((_, told_it),) = receipts(made, held)
    assert told_it.receipts[0].report == 2
    assert report(made, held, now=30) == Report(2, [])
    assert report(made, held, now=50) is None


def test_the_report_that_a_receipt_names_is_one_that_includes_the_record():
    made, held = reporter(), hosted(mark=50)
    report(made, held, now=10)
    channel = arrive(held, 20)
    channel.taken = 1
    made.owe(channel)
    ((_, told_it),) = receipts(made, held)
    named = report(made, held, now=30)
    assert told_it.receipts[0].report == named.number
    assert named.shards == [ShardReport(2, 1, 20, False)]


def test_to_an_ended_source_time_is_over():
    made, held = reporter(), hosted()
    told(made, words_source=END, more_source=END)
    assert made.input_marks(held) == (END, END)
