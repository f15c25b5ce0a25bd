"""What is sent arrives unaltered and in order, or is sent again; what can't be read is refused and counted."""

# mypy: disable-error-code="arg-type, union-attr, type-var"

from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest

from tests.unit.core.pipes import bundle
from tests.unit.hosts.spark.wires import (
    HOST,
    KEYS,
    Place,
    eventually,
    knock,
    open_files,
    threads,
)
from tidemill.core.bundle import Bundle
from tidemill.core.ids import Peer
from tidemill.core.link import RESEND_AFTER, Links
from tidemill.core.messages import ChannelId, Delivery, Hello, Packet, Tell
from tidemill.core.wire import SMALL, frames_of
from tidemill.errors import RunError
from tidemill.hosts.spark import protocol, sockets, transport
from tidemill.hosts.spark.secrets import new_secrets
from tidemill.hosts.spark.sockets import bound_port

ME, OTHER = Peer(0, 1), Peer(1, 1)
CHANNEL = ChannelId(1, 1, 2, 1)


def packet(number, message=None):
    return Packet(ME, OTHER, number, 0, message if message is not None else Tell(str(number).encode()))


def large_bundle(rows=20_000):
    """Of which both the identities and the columns are frames of their own."""
    made = bundle(*((f"word {n}", n, n) for n in range(rows)))
    sequences = np.arange(1, 2 * rows, 2, dtype=np.int64)
    return Bundle(made.stream, made.origin, sequences, made.batch, made.oldest)


@pytest.fixture
def pair(place):
    mine, theirs = place(), place()
    mine.transport.know({OTHER: theirs.address})
    theirs.transport.know({ME: mine.address})
    return mine, theirs


def test_what_is_sent_arrives_in_order(pair):
    mine, theirs = pair
    sent = [packet(number) for number in range(1, 501)]
    for each in sent:
        mine.transport.send(each)
    assert theirs.gets(500) == sent


@pytest.mark.parametrize("large", [False, True])
def test_a_bundle_arrives_unaltered(pair, large):
    mine, theirs = pair
    sent = large_bundle() if large else bundle(("tide", 1, 5), (None, 2, 6))
    frames = frames_of(packet(1, Delivery(CHANNEL, 1, sent)))
    assert len(frames) == (3 if large else 1)
    mine.transport.send(packet(1, Delivery(CHANNEL, 1, sent, back_edge=True)))
    mine.transport.send(packet(2))
    first, second = theirs.gets(2)
    got = first.message.bundle
    assert got.batch.equals(sent.batch)
    assert got.sequences.tolist() == sent.sequences.tolist()
    assert (got.stream, got.origin, got.oldest, first.message.back_edge) == (
        sent.stream,
        sent.origin,
        sent.oldest,
        True,
    )
    assert second == packet(2)


def test_what_arrives_is_taken_in_a_part_at_a_time(pair):
    """So that the core has a turn in between."""
    mine, theirs = pair
    for number in range(3 * transport.AT_ONCE):
        mine.transport.send(packet(number))
    theirs.gets(1)
    time.sleep(0.05)
    assert len(theirs.transport.receive()) <= transport.AT_ONCE


def test_control_messages_are_heard_and_keep_their_order_with_packets(pair):
    mine, theirs = pair
    mine.transport.send(packet(1))
    mine.transport.control(OTHER, protocol.Noted("me", "said", "this"))
    theirs.hears()
    assert theirs.packets == [packet(1)]
    assert theirs.heard[0][1] == protocol.Noted("me", "said", "this")


def test_one_without_a_socket_of_its_own_is_answered(place, closing):
    mine = place()
    way = closing(sockets.connected(mine.transport._context, KEYS, mine.address, identity=b"driver"))
    assert not mine.transport.answer(b"driver", protocol.Welcome(1)), "it is not there yet"
    way.send(b"c" + protocol.encode(protocol.Attach(1)))
    mine.hears()
    assert mine.heard == [(b"driver", protocol.Attach(1))]
    assert mine.transport.answer(b"driver", protocol.Welcome(1))
    assert way.poll(5000)
    assert protocol.decode(way.recv()[1:]) == protocol.Welcome(1)
    assert not mine.transport.answer(b"nobody", protocol.Welcome(1))


def test_a_socket_that_was_bound_before_is_taken_over(place):
    bound = bound_port(HOST)
    port = bound.getsockname()[1]
    mine, theirs = place(), place(bound=bound)
    assert theirs.port == port
    mine.transport.know({OTHER: theirs.address})
    mine.transport.send(packet(1))
    assert theirs.gets(1) == [packet(1)]


# The book


def test_who_is_not_in_the_book_is_sent_nothing_and_nothing_waits(place):
    mine, theirs = place(), place()
    mine.transport.send(packet(1))
    mine.transport.control(OTHER, protocol.Welcome(1))
    mine.transport.know({OTHER: theirs.address})
    mine.transport.send(packet(2))
    assert theirs.gets(1) == [packet(2)]
    assert theirs.heard == []


def test_a_way_to_one_who_is_no_longer_named_is_closed(pair):
    mine, theirs = pair
    mine.transport.send(packet(1))
    theirs.gets(1)
    mine.transport.know({})
    mine.transport.send(packet(2))
    assert mine.transport._out == {}
    mine.transport.know({OTHER: theirs.address})
    mine.transport.send(packet(3))
    assert theirs.gets(1) == [packet(3)]


def test_a_forgotten_one_is_sent_nothing(pair):
    mine, theirs = pair
    mine.transport.send(packet(1))
    theirs.gets(1)
    mine.transport.forget(OTHER)
    mine.transport.forget(OTHER)
    mine.transport.send(packet(2))
    assert mine.transport._out == {}


def test_a_way_leads_where_the_book_says_now(pair, place):
    mine, before = pair
    mine.transport.send(packet(1))
    before.gets(1)
    now = place()
    mine.transport.know({OTHER: now.address})
    mine.transport.send(packet(2))
    assert now.gets(1) == [packet(2)]


def test_a_new_book_leaves_the_ways_that_are_right(pair):
    mine, theirs = pair
    mine.transport.send(packet(1))
    way = mine.transport._out[OTHER]
    mine.transport.know({OTHER: theirs.address, Peer(2, 1): theirs.address})
    assert mine.transport._out[OTHER] is way


# Links over it


class Linked:
    """A place and its end of the link."""

    def __init__(self, me, place):
        self.me, self.place = me, place
        self.links = Links(me)
        self.told: list[int] = []

    def send(self, to, number, now=0):
        self.place.transport.send(self.links.send(to, Tell(str(number).encode()), now).packet)

    def turn(self, now):
        self.place.look()
        for each in self.place.packets:
            messages, sends = self.links.receive(each, now)
            self.told += [int(message.payload) for message in messages]
            for send in sends:
                self.place.transport.send(send.packet)
        self.place.packets.clear()
        for send in self.links.tick(now):
            self.place.transport.send(send.packet)


@pytest.fixture
def linked(pair):
    return Linked(ME, pair[0]), Linked(OTHER, pair[1])


def turns(*linked):
    now = iter(range(0, 10**9, RESEND_AFTER // 4))

    def turn():
        at = next(now)
        for each in linked:
            each.turn(at)

    return turn


def test_what_was_sent_to_one_not_yet_in_the_book_is_sent_again(linked):
    mine, theirs = linked
    address = theirs.place.address
    mine.place.transport.know({})
    for number in range(3):
        mine.send(OTHER, number)
    mine.place.transport.know({OTHER: address})
    mine.send(OTHER, 3)
    eventually(lambda: theirs.told == [0, 1, 2, 3], do=turns(mine, theirs))


def test_what_a_broken_connection_lost_is_sent_again_once_and_in_order(linked, place):
    """The receiver's sockets are closed in the middle, as if its network had failed, and opened elsewhere."""
    mine, theirs = linked
    for number in range(50):
        mine.send(OTHER, number)
    eventually(lambda: theirs.told, do=lambda: theirs.turn(0))
    theirs.place.close()
    for number in range(50, 100):
        mine.send(OTHER, number)
    theirs.place = place()
    mine.place.transport.know({OTHER: theirs.place.address})
    theirs.place.transport.know({ME: mine.place.address})
    mine.send(OTHER, 100)  # a gap: what was sent before it is missing
    eventually(lambda: theirs.told == list(range(101)), do=turns(mine, theirs))
    eventually(lambda: mine.links.unacknowledged(OTHER) == 0, do=turns(mine, theirs))


def test_a_socket_that_comes_back_at_its_port_is_found_again(place, closing):
    """Nobody is told a new address; ZeroMQ tries the old one until somebody is there."""
    mine = Linked(ME, place())
    door = bound_port(HOST)
    again = door.dup()  # as a process does that begins anew under the same address
    first = Place(bound=door)
    mine.place.transport.know({OTHER: first.address})
    theirs = Linked(OTHER, first)
    theirs.place.transport.know({ME: mine.place.address})
    for number in range(10):
        mine.send(OTHER, number)
    eventually(lambda: theirs.told == list(range(10)), do=turns(mine, theirs))
    first.close()
    for number in range(10, 20):
        mine.send(OTHER, number)
    theirs.place = closing(Place(bound=again))
    theirs.place.transport.know({ME: mine.place.address})
    eventually(lambda: theirs.told == list(range(20)), do=turns(mine, theirs))


# Strangers


def test_a_peer_that_does_not_encrypt_is_refused(place, stranger):
    theirs = place()
    other = stranger(theirs.address)
    other.send(b"p" + frames_of(packet(1))[0])
    theirs.refuses()
    assert theirs.said[0].startswith("a connection that ")
    assert theirs.packets == []


@pytest.mark.parametrize("knows_ours", [False, True])
def test_a_peer_with_other_keys_is_refused(place, stranger, knows_ours):
    theirs = place()
    other = stranger(theirs.address, keys=new_secrets(), server=KEYS if knows_ours else None)
    other.send(b"p" + frames_of(packet(1))[0])
    theirs.refuses()
    assert len(theirs.said) == 1
    assert "without the run's keys" in theirs.said[0] or "another protocol" in theirs.said[0]
    assert theirs.packets == []


@pytest.mark.parametrize(
    "data", [os.urandom(300), b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100], ids=["random", "http", "ff"]
)
def test_bytes_of_another_protocol_are_refused(place, data):
    theirs = place()
    knock(theirs.port, data).close()
    theirs.refuses()
    assert len(theirs.said) == 1


def test_each_is_counted_and_each_kind_said_once(place):
    theirs = place()
    for _ in range(5):
        knock(theirs.port, b"GET / HTTP/1.1\r\n\r\n").close()
    theirs.refuses(5)
    assert theirs.said == ["a connection that spoke another protocol was refused"]


def test_the_run_goes_on_beside_strangers(pair, stranger):
    mine, theirs = pair
    for number in range(1, 6):
        knock(theirs.port, os.urandom(100)).close()
        stranger(theirs.address).send(b"p")
        mine.transport.send(packet(number))
    assert theirs.gets(5) == [packet(number) for number in range(1, 6)]
    theirs.refuses(5)


# What can't be read


def way_to(theirs, closing):
    return closing(sockets.connected(theirs.transport._context, KEYS, theirs.address))


@pytest.mark.parametrize(
    "frames",
    [
        [b""],
        [b"x"],
        [b"p"],
        [b"p" + os.urandom(50)],
        [b"c" + os.urandom(50)],
        [b"c"],
        [b"c" + protocol.encode(protocol.Welcome(1)), b"and more"],
        [b"p" + frames_of(packet(1))[0], b"and more"],
        [b"P" + frames_of(packet(1))[0]],
        [b"P" + frames_of(packet(1, Delivery(CHANNEL, 1, large_bundle())))[0], b"these are", b"no columns"],
        [b"", b"p" + frames_of(packet(1))[0]],
    ],
    ids=lambda frames: repr(frames[0][:1]) + str(len(frames)),
)
def test_what_can_not_be_read_is_refused_though_it_comes_from_one_of_us(place, closing, frames):
    theirs = place()
    way = way_to(theirs, closing)
    for _ in range(3):
        way.send_multipart(frames)
    way.send(b"p" + frames_of(packet(1))[0])
    assert theirs.gets(1) == [packet(1)], "what comes behind is not disturbed"
    assert theirs.transport.refused == 3
    (said,) = theirs.said
    assert said.startswith("a message that can't be read was refused: ")
    assert theirs.heard == []


def test_columns_that_are_cut_short_are_refused(place, closing):
    theirs = place()
    head, *rest = frames_of(packet(1, Delivery(CHANNEL, 1, large_bundle())))
    cut = [b"P" + head, rest[0], memoryview(rest[1])[: len(rest[1]) // 2]]
    way = way_to(theirs, closing)
    way.send_multipart(cut)
    theirs.refuses()
    assert theirs.packets == []


def test_what_is_not_meant_for_this_process_is_refused_by_who_hears_it(closing):
    def hear(_, message):
        raise ValueError(f"{type(message).__name__} is not for me")

    theirs = closing(Place())
    theirs.transport._hear = hear
    way = way_to(theirs, closing)
    way.send(b"c" + protocol.encode(protocol.Welcome(1)))
    theirs.refuses()
    assert theirs.said == ["a message that can't be read was refused: Welcome is not for me"]


def test_a_frame_beyond_the_largest_is_not_let_in(closing, monkeypatch):
    """By the receiver, from one who does not care; and it costs the receiver nothing."""
    monkeypatch.setattr(sockets, "LARGEST_FRAME", 10_000)
    theirs = closing(Place())
    way = way_to(theirs, closing)
    way.send(b"p" + frames_of(packet(1))[0])
    theirs.gets(1)
    way.send(b"p" + b"x" * 20_000)
    way.send(b"p" + frames_of(packet(2))[0])
    time.sleep(0.2)
    theirs.look()
    assert theirs.packets in ([], [packet(2)])


def test_a_packet_beyond_the_largest_never_leaves(pair, monkeypatch):
    """Else it would be sent again for ever, each time at the price of the connection."""
    mine, theirs = pair
    monkeypatch.setattr(transport, "LARGEST_SENT", SMALL)
    with pytest.raises(
        RunError, match=r"a bundle for worker1\.1 has .* can't travel at once: its records are too large"
    ):
        mine.transport.send(packet(1, Delivery(CHANNEL, 1, large_bundle())))
    mine.transport.send(packet(2))
    assert theirs.gets(1) == [packet(2)]


# Waiting


def test_a_packet_ends_a_wait(pair):
    mine, theirs = pair
    threading.Timer(0.1, lambda: mine.transport.send(packet(1))).start()
    began = time.monotonic()
    theirs.transport.wait(5_000_000)
    while not theirs.transport._readable:  # the first that wakes it is the handshake
        theirs.transport.wait(5_000_000)
    assert time.monotonic() - began < 2
    assert theirs.transport.receive() == [packet(1)]


def test_what_is_there_already_is_not_waited_for(pair):
    mine, theirs = pair
    mine.transport.send(packet(1))
    mine.transport.send(packet(2))
    eventually(lambda: theirs.transport._readable)
    began = time.monotonic()
    theirs.transport.wait(5_000_000)
    assert time.monotonic() - began < 1


def test_a_wait_ends_when_its_time_has_passed(place):
    mine = place()
    mine.transport.wait(0)
    began = time.monotonic()
    mine.transport.wait(50_000)
    assert 0.04 < time.monotonic() - began < 1


def test_another_thread_wakes_it(place):
    mine = place()
    threading.Timer(0.1, mine.transport.wake).start()
    began = time.monotonic()
    mine.transport.wait(5_000_000)
    assert time.monotonic() - began < 2
    began = time.monotonic()
    mine.transport.wait(20_000)
    assert time.monotonic() - began > 0.01, "one wake ends one wait"


def test_it_may_be_woken_any_number_of_times(place):
    mine = place()
    for _ in range(100_000):
        mine.transport.wake()
    mine.transport.wait(5_000_000)


def test_what_is_watched_ends_a_wait_and_is_called(place):
    mine = place()
    readable, written = os.pipe()
    called: list[bytes] = []
    mine.transport.watch(readable, lambda: called.append(os.read(readable, 10)))
    os.write(written, b"a")
    mine.transport.wait(5_000_000)
    assert called == [b"a"]
    os.write(written, b"b")
    mine.transport.look(0)
    assert called == [b"a", b"b"], "one who is busy never waits, and looks with its ticks"
    mine.transport.unwatch(readable)
    mine.transport.unwatch(readable)
    os.write(written, b"c")
    mine.transport.wait(1_000)
    mine.transport.look(0)
    assert called == [b"a", b"b"]
    os.close(readable)
    os.close(written)


def test_one_that_is_watched_may_be_the_reason_to_watch_another_no_more(place):
    mine = place()
    pipes = [os.pipe(), os.pipe()]
    called: list[int] = []

    def end(number):
        called.append(number)
        mine.transport.unwatch(pipes[1 - number][0])

    for number, (readable, written) in enumerate(pipes):
        mine.transport.watch(readable, lambda number=number: end(number))
        os.write(written, b"a")
    mine.transport.wait(5_000_000)
    assert len(called) == 1
    for ends in pipes:
        for file in ends:
            os.close(file)


# The end


def test_what_was_said_last_still_leaves(pair):
    mine, theirs = pair
    for number in range(100):
        mine.transport.send(packet(number, Hello()))
    mine.close(2_000)
    assert len(theirs.gets(100)) == 100


def test_nothing_is_left_of_a_transport_that_is_closed(place):
    place()  # what ZeroMQ keeps for good is there now
    files, running = open_files(), threads()
    mine, theirs = Place(), Place()
    mine.transport.know({OTHER: theirs.address})
    mine.transport.send(packet(1))
    theirs.gets(1)
    knock(theirs.port, b"x").close()
    mine.close()
    theirs.close()
    eventually(lambda: threads() == running)
    eventually(lambda: open_files() == files)


def test_a_wake_that_comes_too_late_writes_into_nothing():
    """A file that was opened meanwhile may have the number of the closed one."""
    mine = Place()
    written = mine.transport._woken
    mine.close()
    readable, other = os.pipe()
    os.set_blocking(readable, False)
    try:
        if other != written:
            os.dup2(other, written)
        mine.transport.wake()
        with pytest.raises(BlockingIOError):
            os.read(readable, 1)
    finally:
        for file in {readable, other, written}:
            os.close(file)
