"""Whatever the transport loses, repeats and reorders: each message arrives once, in order, as long as ticks come."""

# mypy: disable-error-code="arg-type"

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.unit.core.driving import FIRST, ME, OTHER
from tidemill.core.ids import COORDINATOR, Peer
from tidemill.core.link import ACKNOWLEDGE_EVERY, RESEND_AFTER, RESEND_AFTER_AT_MOST, RESEND_AT_MOST, Links
from tidemill.core.messages import OUTSIDE, Hello, Outdated, Packet, Tell


def tell(n):
    return Tell(str(n).encode())


def told(messages):
    return [int(message.payload) for message in messages]


def pair():
    return Links(ME), Links(OTHER)


def test_a_message_arrives_at_once():
    mine, theirs = pair()
    packet = mine.send(OTHER, tell(1), 0).packet
    assert packet == Packet(ME, OTHER, 1, 0, tell(1))
    assert told(theirs.receive(packet, 0)[0]) == [1]
    assert mine.unacknowledged(OTHER) == 1


def test_one_that_overtook_others_waits_for_them():
    mine, theirs = pair()
    packets = [mine.send(OTHER, tell(n), 0).packet for n in range(3)]
    assert theirs.receive(packets[2], 0)[0] == []
    assert theirs.receive(packets[1], 0)[0] == []
    assert told(theirs.receive(packets[0], 0)[0]) == [0, 1, 2]


def test_a_repeated_one_is_dropped_and_the_sender_hears_of_it():
    mine, theirs = pair()
    packet = mine.send(OTHER, tell(1), 0).packet
    theirs.receive(packet, 0)
    messages, sends = theirs.receive(packet, 0)
    assert messages == []
    assert [send.packet for send in sends] == [Packet(OTHER, ME, 0, 1, None)]
    mine.receive(sends[0].packet, 0)
    assert mine.unacknowledged(OTHER) == 0


def test_messages_bring_acknowledgements_along():
    mine, theirs = pair()
    theirs.receive(mine.send(OTHER, tell(1), 0).packet, 0)
    mine.receive(theirs.send(ME, tell(2), 0).packet, 0)
    assert mine.unacknowledged(OTHER) == 0
    assert theirs.tick(0) == []


def test_one_who_has_nothing_to_say_acknowledges_at_the_tick_or_after_many():
    mine, theirs = pair()
    theirs.receive(mine.send(OTHER, tell(0), 0).packet, 0)
    assert [send.packet.acked for send in theirs.tick(0)] == [1]
    assert theirs.tick(0) == []
    sends = []
    for n in range(ACKNOWLEDGE_EVERY):
        sends += theirs.receive(mine.send(OTHER, tell(n), 0).packet, 0)[1]
    assert [send.packet.acked for send in sends] == [1 + ACKNOWLEDGE_EVERY]
    assert theirs.tick(0) == []


def test_what_is_not_acknowledged_is_sent_again_after_a_while_and_again():
    mine, _ = pair()
    packets = [mine.send(OTHER, tell(n), 0).packet for n in range(2)]
    assert mine.tick(RESEND_AFTER - 1) == []
    assert [send.packet for send in mine.tick(RESEND_AFTER)] == packets
    assert mine.tick(RESEND_AFTER + 1) == []
    assert len(mine.tick(3 * RESEND_AFTER)) == 2


def test_to_one_who_says_nothing_it_is_sent_ever_less_often_and_at_once_when_it_speaks():
    """It may be stopped: all of it would pile up where it will be read some day."""
    mine, theirs = pair()
    mine.send(OTHER, tell(0), 0)
    at = [now for now in range(0, 60 * RESEND_AFTER, RESEND_AFTER // 4) if mine.tick(now)]
    pauses = [after - before for before, after in pairwise([0, *at])]
    assert pauses == [n * RESEND_AFTER for n in (1, 2, 4, 8, 16, 16)]
    mine.receive(theirs.send(ME, tell(0), 0).packet, 60 * RESEND_AFTER)
    assert [send.packet.number for send in mine.tick(60 * RESEND_AFTER)][1:] == [1]


def test_waiting_begins_with_the_first_that_is_not_acknowledged():
    """After a long rest nothing is sent again at once; and what comes later delays nothing."""
    mine, _ = pair()
    start = 10 * RESEND_AFTER
    mine.send(OTHER, tell(0), start)
    mine.send(OTHER, tell(1), start + RESEND_AFTER - 1)
    assert mine.tick(start + RESEND_AFTER - 1) == []
    assert len(mine.tick(start + RESEND_AFTER)) == 2


def test_it_is_sent_again_a_part_at_a_time():
    mine, _ = pair()
    for n in range(2 * RESEND_AT_MOST):
        mine.send(OTHER, tell(n), 0)
    assert len(mine.tick(RESEND_AFTER)) == RESEND_AT_MOST


def test_a_slow_link_that_moves_on_is_not_flooded():
    mine, theirs = pair()
    packets = [mine.send(OTHER, tell(n), 0).packet for n in range(2)]
    theirs.receive(packets[0], 0)
    (acknowledgement,) = theirs.tick(0)
    mine.receive(acknowledgement.packet, RESEND_AFTER - 1)
    assert mine.tick(RESEND_AFTER) == []
    assert [send.packet for send in mine.tick(2 * RESEND_AFTER)] == packets[1:]


def test_each_pair_has_its_own_link():
    mine = Links(ME)
    assert mine.send(OTHER, tell(1), 0).packet.number == 1
    assert mine.send(FIRST, tell(1), 0).packet.number == 1
    assert mine.unacknowledged(Peer(9, 1)) == 0


def test_one_may_talk_to_oneself():
    mine = Links(ME)
    packets = [mine.send(ME, tell(n), 0).packet for n in range(2)]
    assert [told(mine.receive(packet, 0)[0]) for packet in packets] == [[0], [1]]
    for send in mine.tick(0):
        mine.receive(send.packet, 0)
    assert mine.unacknowledged(ME) == 0


# Incarnations


def test_only_the_newest_incarnation_is_listened_to():
    mine = Links(ME)
    old, new = Links(Peer(1, 1)), Links(Peer(1, 2))
    first, second = old.send(ME, tell(1), 0).packet, old.send(ME, tell(2), 0).packet
    assert told(mine.receive(first, 0)[0]) == [1]
    assert told(mine.receive(new.send(ME, tell(10), 0).packet, 0)[0]) == [10]
    assert mine.receive(second, 0) == ([], [])
    assert mine.refused == 1


def test_what_was_sent_to_an_older_me_is_refused():
    mine, theirs = Links(Peer(0, 2)), Links(OTHER)
    packet = theirs.send(Peer(0, 1), tell(1), 0).packet
    assert mine.receive(packet, 0) == ([], [])
    assert mine.refused == 1


def test_whoever_was_heard_of_replaces_the_one_before():
    mine = Links(ME)
    old = Links(Peer(COORDINATOR, 1))
    mine.send(old.me, tell(1), 0)
    mine.heard_of(Peer(COORDINATOR, 2))
    assert mine.receive(old.send(ME, tell(1), 0).packet, 0) == ([], [])
    assert mine.tick(RESEND_AFTER) == [], "nobody goes on talking to it"
    assert mine.gave_up(old.me)
    mine.heard_of(Peer(COORDINATOR, 1))
    assert mine.gave_up(old.me), "it does not come back"
    assert not mine.gave_up(Peer(COORDINATOR, 2))


def test_one_who_was_given_up_is_never_listened_to_again_but_the_next_one_is():
    mine, theirs = pair()
    mine.send(OTHER, tell(1), 0)
    mine.give_up(OTHER)
    assert mine.receive(theirs.send(ME, tell(1), 0).packet, 0) == ([], [])
    assert mine.tick(RESEND_AFTER) == []
    assert mine.gave_up(OTHER)
    again = Links(Peer(OTHER.worker, 2))
    assert told(mine.receive(again.send(ME, tell(2), 0).packet, 0)[0]) == [2]


def test_giving_up_an_older_one_leaves_the_newest():
    mine, newest = Links(ME), Links(Peer(1, 3))
    mine.receive(newest.send(ME, tell(1), 0).packet, 0)
    mine.give_up(Peer(1, 1))
    assert told(mine.receive(newest.send(ME, tell(2), 0).packet, 0)[0]) == [2]
    assert mine.gave_up(Peer(1, 2))


def test_a_message_outside_of_any_link_needs_none():
    mine = Links(ME)
    packet = Packet(FIRST, ME, OUTSIDE, 0, Outdated())
    assert mine.receive(packet, 0) == ([Outdated()], [])
    assert mine.receive(packet, 0) == ([Outdated()], [])
    assert mine.receive(Packet(FIRST, ME, 1, 0, Hello()), 0)[0] == [Hello()]


def test_one_outside_of_any_link_from_somebody_who_was_replaced_is_refused():
    mine = Links(ME)
    mine.heard_of(Peer(COORDINATOR, 2))
    assert mine.receive(Packet(FIRST, ME, OUTSIDE, 0, Outdated()), 0) == ([], [])


class Transport(RuleBasedStateMachine):
    """Two processes and everything a network may do between them."""

    @initialize()
    def begin(self):
        self.links = dict(zip((ME, OTHER), pair(), strict=True))
        self.sent = {ME: 0, OTHER: 0}
        self.heard: dict = {ME: [], OTHER: []}
        self.air: list = []
        self.now = 0

    @rule(by=st.sampled_from([ME, OTHER]))
    def send(self, by):
        to = OTHER if by == ME else ME
        self.air.append(self.links[by].send(to, tell(self.sent[by]), self.now).packet)
        self.sent[by] += 1

    @rule(place=st.integers(0, 100), copies=st.integers(0, 2))
    def deliver_or_lose_or_repeat(self, place, copies):
        if self.air:
            packet = self.air.pop(place % len(self.air))
            for _ in range(copies):
                self.deliver(packet)

    def deliver(self, packet):
        messages, sends = self.links[packet.to].receive(packet, self.now)
        self.heard[packet.to] += told(messages)
        self.air += [send.packet for send in sends]

    @rule(by=st.sampled_from([1, RESEND_AFTER]))
    def tick(self, by):
        self.now += by
        for links in self.links.values():
            self.air += [send.packet for send in links.tick(self.now)]

    @invariant()
    def each_hears_in_order_and_once(self):
        if hasattr(self, "heard"):
            for heard in self.heard.values():
                assert heard == list(range(len(heard)))

    def teardown(self):
        """As soon as packets get through, everything arrives and is known to."""
        if not hasattr(self, "links"):
            return
        self.air = []
        for _ in range(4 + max(self.sent.values()) // RESEND_AT_MOST):
            self.tick(RESEND_AFTER_AT_MOST)
            while self.air:
                self.deliver(self.air.pop(0))
        assert {who: len(heard) for who, heard in self.heard.items()} == {ME: self.sent[OTHER], OTHER: self.sent[ME]}
        assert self.links[ME].unacknowledged(OTHER) == self.links[OTHER].unacknowledged(ME) == 0


TestTransport = Transport.TestCase
TestTransport.settings = settings(stateful_step_count=40)


@given(st.permutations(range(6)))
def test_in_any_order_each_message_is_given_as_soon_as_it_can_be(order):
    mine, theirs = pair()
    packets = [mine.send(OTHER, tell(n), 0).packet for n in range(6)]
    heard: list[int] = []
    for place, n in enumerate(order, 1):
        heard += told(theirs.receive(packets[n], 0)[0])
        came = set(order[:place])
        assert heard == [n for n in range(6) if set(range(n + 1)) <= came]
