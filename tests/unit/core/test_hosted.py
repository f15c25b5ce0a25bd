"""A shard as its worker holds it: what waits to be handled and to leave, and what it answers for in time."""

# mypy: disable-error-code="arg-type, dict-item, index, list-item, union-attr"

import pytest

from tests.unit.core.driving import ME, OTHER, THIRD, adoption, route
from tests.unit.core.pipes import (
    LEFT,
    RIGHT,
    Count,
    Pass,
    advance,
    bundle,
    cycle,
    pipeline,
    records_of,
    rows_of,
    shard_of,
    take,
    words_in,
)
from tidemill.core.flow import WINDOW, Arrival, InChannel
from tidemill.core.hosted import Hosted
from tidemill.core.ids import BEGINNING, END
from tidemill.core.messages import ChannelId, Receipt
from tidemill.core.routing import Routing

A, B = words_in(LEFT, 1)[0], words_in(RIGHT, 1)[0]


def hosted(graph=None, node="count", *, epoch=1, restored=True, window=WINDOW):
    graph = graph or pipeline(Pass, state=None)
    made = Hosted(graph, adoption(2, node, epoch=epoch), window=window, loop_memory=window)
    if restored:
        made.shard = shard_of(graph, node, shard=2, epoch=epoch)
    return made


def routed(*routes):
    routing = Routing()
    routing.change([], routes)
    return routing


def follow(held, routing):
    for lane in held.lanes.values():
        lane.follow(routing, held.keyings[lane.consumer])


def arrive(held, *rows, sender=1, epoch=1, back_edge=False, first=1):
    channel = held.channel(ChannelId(sender, epoch, 2, 1), OTHER, back_edge=back_edge)
    channel.number += 1
    arrival = Arrival(channel, channel.number, bundle(*rows, origin=sender, first=first))
    held.arrive(arrival)
    return arrival


def sends(held, consumer):
    """What each of a consumer's shards is sent now: shard to rows."""
    found = {}
    for shard, channel in held.lanes[consumer].channels.items():
        items = [item for _, item in channel.sendable()]
        if items:
            found[shard] = rows_of(*(item for item in items if not isinstance(item, bytes)))
    return found


# What arrives


def test_it_has_no_shard_until_that_is_restored():
    assert hosted(restored=False).shard is None


def test_a_sender_s_channel_is_known_by_both_epochs():
    held = hosted()
    first = held.channel(ChannelId(1, 4, 2, 1), OTHER, back_edge=False)
    assert held.channel(ChannelId(1, 4, 2, 1), OTHER, back_edge=False) is first
    newer = held.channel(ChannelId(1, 5, 2, 1), THIRD, back_edge=False)
    assert newer is not first
    assert (newer.number, newer.taken, newer.peer) == (0, 0, THIRD)


def test_an_older_owner_of_the_sender_is_refused_as_soon_as_a_newer_is_known():
    held = hosted()
    held.channel(ChannelId(1, 5, 2, 1), THIRD, back_edge=False)
    assert held.channel(ChannelId(1, 4, 2, 1), OTHER, back_edge=False) is None
    assert held.channel(ChannelId(3, 4, 2, 1), OTHER, back_edge=False) is not None


def test_arrivals_are_handled_in_order():
    held = hosted()
    arrivals = [arrive(held, ("a", n, n), first=n + 1) for n in range(3)]
    assert [held.next_arrival() for _ in range(4)] == [*arrivals, None]


def test_what_came_round_a_loop_goes_first():
    held = hosted(cycle(), "step-1")
    outside = arrive(held, ("a", 1, 1))
    inside = arrive(held, ("b", 2, 2), sender=3, back_edge=True)
    assert [held.next_arrival(), held.next_arrival()] == [inside, outside]


def test_a_blocked_sender_s_records_wait_those_too_that_had_come():
    held = hosted()
    one = arrive(held, ("a", 1, 1))
    other = arrive(held, ("b", 2, 2), sender=3)
    held.block(1)
    late = arrive(held, ("c", 3, 3), first=2)
    assert held.next_arrival() is other
    assert held.next_arrival() is None
    assert held.oldest_queued() == 1, "it is answered for all the same"
    held.unblock(1)
    assert [held.next_arrival(), held.next_arrival()] == [one, late]


def test_a_sender_is_blocked_once():
    held = hosted()
    held.block(1)
    with pytest.raises(AssertionError, match="blocked once"):
        held.block(1)


def test_while_it_is_yielded_it_handles_only_what_it_sent_to_itself():
    held = hosted(cycle(), "step-1")
    arrive(held, ("a", 1, 1))
    arrive(held, ("b", 2, 2), sender=3, back_edge=True)
    own = arrive(held, ("c", 3, 3), sender=2, back_edge=True)
    held.yielding = True
    assert held.next_arrival() is own
    assert held.next_arrival() is None


def test_of_a_loop_on_disk_a_part_is_read_back_when_there_is_room_and_all_of_it_to_yield():
    held = hosted(cycle(), "step-1", window=40)
    for place in range(40):
        arrive(held, ("a", place, 1), sender=3, back_edge=True, first=place + 1)
    held.loop._asked = 0
    assert held.to_read_back() == 0, "memory is full"
    held.yielding = True
    assert held.to_read_back() == 37
    held.loop._asked = 0
    held.yielding = False
    for _ in range(3):
        held.next_arrival()
    assert held.to_read_back() == 32


def test_working_off_gives_credit_by_weight():
    held = hosted()
    arrival = arrive(held, ("a", 1, 1), ("b", 2, 2))
    weight = held.queued_weight()
    held.worked_off(held.next_arrival())
    assert arrival.channel.worked == weight
    assert held.queued_weight() == 0


# What leaves

SINKS = (route(3, "counts-sink", OTHER),)


def test_a_flush_holds_what_was_produced_until_it_is_pushed():
    held = hosted()
    take(held.shard, (A, 1, 10), (B, 2, 5))
    advance(held.shard, 7)
    held.oldest_input, held.dirty = 5, True
    flush = held.new_flush()
    assert (flush.number, rows_of(*flush.bundles), flush.mark, flush.oldest_input) == (1, [(A, 1, 10), (B, 2, 5)], 7, 5)
    assert (held.dirty, held.oldest_input) == (False, END)
    assert held.new_flush().number == 2


def test_a_sink_s_flush_holds_what_it_accepted():
    held = hosted(node="counts-sink")
    take(held.shard, ("a", 1, 1), stream="counts")
    assert rows_of(*held.new_flush().accepted) == [("a", 1, 1)]
    assert held.new_flush().accepted == []


def test_what_a_parent_had_not_sent_leaves_first():
    held = hosted()
    held.unsent = [bundle(("old", 1, 1), stream="counts", origin=77)]
    take(held.shard, ("new", 1, 2))
    flush = held.new_flush()
    assert [record[:4] for record in records_of(*flush.bundles)] == [("counts", 77, 1, "old"), ("counts", 2, 1, "new")]
    assert held.new_flush().bundles == []


STEPS = (route(3, "step-2", OTHER, range=LEFT, epoch=4), route(4, "step-2", OTHER, range=RIGHT, epoch=5))


def chained():
    held = hosted(cycle(Pass, Pass), "step-1")
    return held, routed(*STEPS)


def produced(*rows, first=1):
    return bundle(*rows, stream="from-step-1", origin=2, first=first)


def test_a_bundle_is_cut_for_the_receiver_s_shards():
    held, routing = chained()
    follow(held, routing)
    held.push(produced((A, 1, 1), (B, 2, 2), (A, 3, 3)), routing)
    assert sends(held, "step-2") == {3: [(A, 1, 1), (A, 3, 3)], 4: [(B, 2, 2)]}


def test_only_those_who_read_a_stream_get_it():
    held = hosted(cycle(Pass, Pass), "step-2")
    routing = routed(route(2, "step-1", ME), route(9, "sink", OTHER))
    follow(held, routing)
    held.push(bundle((A, 1, 1), stream="from-step-2", origin=2), routing)
    assert sends(held, "step-1") == {2: [(A, 1, 1)]}
    assert sends(held, "sink") == {9: [(A, 1, 1)]}


def test_a_marker_goes_to_every_shard_of_every_consumer():
    held, routing = chained()
    follow(held, routing)
    held.push(b"marker", routing)
    assert [list(channel.sendable()) for channel in held.lanes["step-2"].channels.values()] == [[(1, b"marker")]] * 2


def test_when_a_receiver_changes_hands_its_channel_is_opened_again_and_others_are_not():
    held, routing = chained()
    follow(held, routing)
    held.push(produced((A, 1, 1), (B, 2, 2)), routing)
    sends(held, "step-2")
    routing.change([], [route(3, "step-2", None, range=LEFT, epoch=8)])
    follow(held, routing)
    assert sends(held, "step-2") == {}
    routing.change([], [route(3, "step-2", THIRD, range=LEFT, epoch=8)])
    follow(held, routing)
    assert sends(held, "step-2") == {3: [(A, 1, 1)]}
    channel = held.lanes["step-2"].channels[3]
    assert (channel.id, channel.owner) == (ChannelId(2, 1, 3, 8), THIRD)


def test_nothing_is_opened_again_without_a_change():
    held, routing = chained()
    follow(held, routing)
    before = dict(held.lanes["step-2"].channels)
    held.push(produced((A, 1, 1)), routing)
    sends(held, "step-2")
    follow(held, routing)
    assert held.lanes["step-2"].channels == before
    assert sends(held, "step-2") == {}


def test_when_a_receiver_is_split_what_it_had_not_taken_is_cut_again():
    held = hosted(cycle(Pass, Pass), "step-1")
    routing = routed(route(3, "step-2", OTHER))
    follow(held, routing)
    for place, word in enumerate((A, B, A, B)):
        held.push(produced((word, place, place), first=place + 1), routing)
    channel = held.lanes["step-2"].channels[3]
    list(channel.sendable())
    channel.receipt(Receipt(channel.id, 1, 0, 0))
    routing.change([3], [route(7, "step-2", OTHER, range=LEFT), route(8, "step-2", OTHER, range=RIGHT)])
    follow(held, routing)
    assert sends(held, "step-2") == {7: [(A, 2, 2)], 8: [(B, 1, 1), (B, 3, 3)]}


def test_a_marker_for_a_receiver_that_is_no_more_is_dropped():
    """A change of routing rides on the mechanism: whoever comes next has seen it, or begins behind it."""
    held, routing = chained()
    follow(held, routing)
    held.push(b"marker", routing)
    routing.change([3, 4], [route(9, "step-2", OTHER)])
    follow(held, routing)
    assert sends(held, "step-2") == {}


def test_when_receivers_are_merged_what_they_had_not_taken_goes_to_the_one():
    held, routing = chained()
    follow(held, routing)
    held.push(produced((A, 1, 1), (B, 2, 2), (A, 3, 3)), routing)
    routing.change([3, 4], [route(9, "step-2", OTHER)])
    follow(held, routing)
    assert sorted(sends(held, "step-2")[9]) == sorted([(A, 1, 1), (A, 3, 3), (B, 2, 2)])


def test_what_a_split_receiver_took_inside_a_cycle_is_answered_for_until_its_children_report():
    held = hosted(cycle(Pass, Pass), "step-1")
    held.released_mark = END
    routing = routed(route(3, "step-2", OTHER, epoch=4))
    follow(held, routing)
    held.push(produced((A, 1, 10)), routing)
    channel = held.lanes["step-2"].channels[3]
    list(channel.sendable())
    channel.receipt(Receipt(channel.id, 1, 0, 7))
    routing.change([3], [route(7, "step-2", None, range=LEFT, epoch=0), route(8, "step-2", None, range=RIGHT, epoch=0)])
    follow(held, routing)
    assert held.answers_for() == 10
    routing.change(
        [], [route(7, "step-2", OTHER, range=LEFT, epoch=5), route(8, "step-2", OTHER, range=RIGHT, epoch=6)]
    )
    follow(held, routing)
    held.lanes["step-2"].channels[7].accepted(5, 1)
    assert held.answers_for() == 10, "the other child may have it"
    held.lanes["step-2"].channels[8].accepted(6, 1)
    assert held.answers_for() == END


def test_a_receiver_behind_its_credit_stops_what_would_add_to_it():
    held = hosted(window=10)
    routing = routed(*SINKS)
    follow(held, routing)
    arrive(held, ("a", 1, 1))
    for place in range(2):
        held.push(bundle(("a", 1, 1), stream="counts", origin=2, first=place + 1), routing)
    sends(held, "counts-sink")
    assert held.congested()
    assert held.next_arrival() is None
    channel = held.lanes["counts-sink"].channels[3]
    channel.receipt(Receipt(channel.id, 0, 100, 0))
    sends(held, "counts-sink")
    assert not held.congested()
    assert held.next_arrival() is not None


def test_a_receiver_without_an_owner_stops_it_too():
    held = hosted()
    routing = routed(route(3, "counts-sink", None))
    follow(held, routing)
    held.push(bundle(("a", 1, 1), stream="counts", origin=2), routing)
    assert held.congested()


def looping(congested_consumer):
    """The second step of a cycle, with something from the loop waiting, and one of its receivers behind."""
    held = hosted(cycle(Pass, Pass), "step-2", window=10)
    routing = routed(route(1, "step-1", None), route(9, "sink", None))
    follow(held, routing)
    waiting = bundle((A, 1, 1), stream="from-step-1", origin=9)
    assert held.arrive(Arrival(InChannel(ChannelId(9, 1, 2, 1), OTHER, back_edge=True), 1, waiting)) is None
    (stream,) = held.keyings[congested_consumer]
    produced = bundle((A, 1, 1), stream=stream, origin=2)
    held.lanes[congested_consumer].push(produced, routing, held.keyings[congested_consumer][stream])
    return held


def test_a_receiver_outside_the_cycle_that_is_behind_stops_the_loop():
    held = looping("sink")
    assert held.loop
    assert held.next_arrival() is None


def test_a_receiver_inside_the_cycle_does_not():
    """It may be about to change hands, and wait for this shard to take what it sent."""
    held = looping("step-1")
    held.lanes["step-1"].back_edge = False
    for channel in held.lanes["step-1"].channels.values():
        channel.back_edge = False
    assert held.congested()
    assert held.next_arrival() is not None


def test_an_edge_that_closes_a_cycle_never_stops_it():
    held = hosted(cycle(Pass, Pass), "step-2", window=1)
    routing = routed(route(1, "step-1", None), route(9, "sink", OTHER))
    follow(held, routing)
    held.lanes["step-1"].push(
        bundle((A, 1, 1), stream="from-step-2", origin=2), routing, held.keyings["step-1"]["from-step-2"]
    )
    assert not held.congested()


# Drained


def test_it_is_drained_when_all_it_produced_was_taken():
    held = hosted()
    routing = routed(*SINKS)
    follow(held, routing)
    assert held.drained()
    held.dirty = True
    assert not held.drained()
    take(held.shard, ("a", 1, 1))
    flush = held.new_flush()
    assert not held.drained()
    held.flushes.clear()
    held.push(flush.bundles[0], routing)
    sends(held, "counts-sink")
    assert not held.drained(), "it is under way"
    channel = held.lanes["counts-sink"].channels[3]
    channel.receipt(Receipt(channel.id, 1, 0, 0))
    assert held.drained()


def test_what_it_sent_to_itself_counts_too():
    held = hosted(pipeline(Count, loop=True))
    routing = routed(route(2, "count", ME), *SINKS)
    follow(held, routing)
    held.push(bundle(("a", 1, 1), stream="again", origin=2), routing)
    sends(held, "count")
    assert not held.drained()
    channel = held.lanes["count"].channels[2]
    channel.receipt(Receipt(channel.id, 1, 0, 7))
    assert not held.drained(), "it is taken, but no report that the authority holds has it yet"
    channel.accepted(1, 7)
    assert held.drained()


def test_it_is_not_drained_while_it_answers_for_what_was_taken():
    held, routing = chained()
    follow(held, routing)
    held.push(produced((A, 1, 10)), routing)
    sends(held, "step-2")
    channel = held.lanes["step-2"].channels[3]
    channel.receipt(Receipt(channel.id, 1, 0, 7))
    assert not held.drained()
    held.yielding_together = {3: None}
    assert held.drained(), "those that go together may never report again"
    held.yielding_together = {}
    channel.accepted(4, 7)
    assert held.drained()


def test_those_who_yield_together_do_not_wait_for_each_other():
    held, routing = chained()
    follow(held, routing)
    held.push(produced((A, 1, 1)), routing)
    held.yielding_together = {4: None}
    assert not held.drained()
    held.yielding_together = {3: None}
    assert held.drained()


def test_it_is_at_rest_when_nothing_is_here_or_on_its_way():
    held, routing = chained()
    follow(held, routing)
    assert held.at_rest()
    arrive(held, (A, 1, 1))
    assert not held.at_rest()
    held.next_arrival()
    held.push(b"marker", routing)
    assert not held.at_rest(), "a marker is on its way"
    sends(held, "step-2")
    for channel in held.lanes["step-2"].channels.values():
        channel.receipt(Receipt(channel.id, 1, 0, 0))
    assert held.at_rest()
    held.push(produced((A, 1, 10)), routing)
    sends(held, "step-2")
    channel = held.lanes["step-2"].channels[3]
    channel.receipt(Receipt(channel.id, 2, 0, 7))
    assert not held.at_rest(), "it answers for what was taken"
    channel.accepted(4, 7)
    assert held.at_rest()


# What it answers for in time


def at_rest():
    """A shard that has told its mark, 50, and has nothing to do."""
    held = hosted()
    routing = routed(*SINKS)
    follow(held, routing)
    held.released_mark = 50
    assert held.answers_for() == 50
    return held, routing


def test_a_restored_shard_answers_for_everything_until_what_it_had_produced_has_left():
    assert hosted().answers_for() == BEGINNING


def test_it_answers_for_what_is_queued():
    held, _ = at_rest()
    arrive(held, ("a", 1, 30))
    assert held.answers_for() == 30
    held.block(1)
    assert held.answers_for() == 30


def test_it_answers_for_what_came_round_a_loop():
    held, _ = at_rest()
    arrive(held, ("a", 1, 30), back_edge=True)
    assert held.answers_for() == 30


def test_it_answers_for_what_was_handled_and_not_flushed():
    held, _ = at_rest()
    held.oldest_input = 20
    assert held.answers_for() == 20


def test_it_answers_for_what_was_flushed_and_not_released():
    """For its inputs, which nobody else answers for any more, and for its outputs, which may be older than the mark."""
    held, _ = at_rest()
    held.oldest_input = 20
    held.new_flush()
    assert held.answers_for() == 20
    held.flushes.clear()
    take(held.shard, ("a", 1, 40))
    held.new_flush()
    assert held.answers_for() == 40


def test_it_answers_for_what_left_and_was_not_taken():
    held, routing = at_rest()
    held.push(bundle(("a", 1, 30), stream="counts", origin=2), routing)
    assert held.answers_for() == 30
    sends(held, "counts-sink")
    assert held.answers_for() == 30
    channel = held.lanes["counts-sink"].channels[3]
    channel.receipt(Receipt(channel.id, 1, 0, 0))
    assert held.answers_for() == 50
