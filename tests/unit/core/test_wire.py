"""Every message comes back from its bytes as what it was."""

# mypy: disable-error-code="arg-type, index, list-item"

import typing

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.driving import FIRST, ME, OTHER
from tests.unit.core.pipes import bundle, pipeline, records_of
from tidemill.core import messages as m
from tidemill.core.ids import BEGINNING, COORDINATOR, END, Peer
from tidemill.core.keys import FULL, KeyRange
from tidemill.core.messages import Packet
from tidemill.core.routing import Route
from tidemill.core.wire import SMALL, frames_of, packet_of

GRAPH = pipeline()

NUMBERS = st.integers(0, 2**63 - 1)
TIMES = st.integers(BEGINNING, END)
NAMES = st.text(min_size=1, max_size=5)
PEERS = st.builds(Peer, st.integers(0, 9) | st.just(COORDINATOR), st.integers(0, 2**40))
RANGES = st.just(FULL) | st.tuples(st.integers(0, 2**64 - 1), st.integers(1, 2**64)).map(sorted).filter(
    lambda ends: ends[0] < ends[1]
).map(lambda ends: KeyRange(*ends))
CHANNELS = st.builds(m.ChannelId, NUMBERS, NUMBERS, NUMBERS, NUMBERS)
LINEAGES = st.recursive(
    st.builds(m.Lineage, NUMBERS, RANGES, st.just([])),
    lambda parents: st.builds(m.Lineage, NUMBERS, RANGES, st.lists(parents, max_size=2)),
    max_leaves=4,
)
ROUTES = st.builds(Route, NUMBERS, NAMES, RANGES, NUMBERS, st.none() | PEERS)

MESSAGES: dict[type, st.SearchStrategy] = {
    m.InBand: st.builds(m.InBand, CHANNELS, NUMBERS, st.binary(), st.booleans()),
    m.Receipts: st.builds(m.Receipts, st.lists(st.builds(m.Receipt, CHANNELS, NUMBERS, NUMBERS, NUMBERS))),
    m.Hello: st.just(m.Hello()),
    m.Adopt: st.builds(m.Adopt, st.lists(st.builds(m.Adoption, NUMBERS, NAMES, RANGES, NUMBERS, LINEAGES))),
    m.Reset: st.builds(m.Reset, NUMBERS),
    m.Yield: st.builds(m.Yield, NUMBERS, NUMBERS),
    m.Yielded: st.builds(m.Yielded, NUMBERS, NUMBERS),
    m.Ready: st.builds(m.Ready, NUMBERS, NUMBERS),
    m.Routes: st.builds(m.Routes, st.lists(NUMBERS), st.lists(ROUTES), st.lists(PEERS), st.booleans()),
    m.Report: st.builds(m.Report, NUMBERS, st.lists(st.builds(m.ShardReport, NUMBERS, NUMBERS, TIMES, st.booleans()))),
    m.Marks: st.builds(
        m.Marks,
        st.lists(st.tuples(NAMES, TIMES)),
        st.lists(st.builds(m.Accepted, NUMBERS, NUMBERS, NUMBERS)),
        st.lists(NAMES),
        st.lists(NAMES),
    ),
    m.Seal: st.builds(m.Seal, NUMBERS, NUMBERS),
    m.Sealed: st.builds(m.Sealed, NUMBERS, NUMBERS, st.binary()),
    m.Tell: st.builds(m.Tell, st.binary()),
    m.Stop: st.just(m.Stop()),
    m.Failed: st.builds(m.Failed, NAMES, st.text(), st.text()),
    m.Finished: st.just(m.Finished()),
    m.Outdated: st.just(m.Outdated()),
}


def test_every_message_is_tried():
    assert set(MESSAGES) == set(typing.get_args(m.Message))


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_a_message_makes_the_journey(kind, data):
    packet = data.draw(st.builds(Packet, PEERS, PEERS, NUMBERS, NUMBERS, MESSAGES[kind]))
    again = packet_of(frames_of(packet), GRAPH)
    assert again == packet
    assert type(again.message) is kind
    assert type(again.sender) is type(again.to) is Peer


def test_owners_and_peers_inside_messages_can_be_looked_up():
    """They are keys of dictionaries: a list that was read for a tuple would not be found."""
    routes = m.Routes([], [Route(1, "count", FULL, 1, ME)], [OTHER])
    again = packet_of(frames_of(Packet(FIRST, ME, 1, 0, routes)), GRAPH).message
    assert isinstance(again, m.Routes)
    assert {ME: "me"}[again.changed[0].owner] == "me"
    assert {OTHER: "other"}[again.gone[0]] == "other"


def test_a_bare_acknowledgement_carries_nothing():
    packet = Packet(ME, OTHER, 0, 17, None)
    assert packet_of(frames_of(packet), GRAPH) == packet


ROWS = st.lists(st.tuples(st.text(max_size=3) | st.none(), st.integers(-9, 9), TIMES.filter(lambda at: at != END)))


@given(ROWS.filter(bool), CHANNELS, NUMBERS, st.booleans(), st.data())
def test_a_bundle_makes_the_journey_with_its_identities(rows, channel, number, back_edge, data):
    whole = bundle(*rows, origin=2**40, first=7)
    places = sorted(data.draw(st.sets(st.integers(0, len(rows) - 1), min_size=1)))
    sent = whole.take(np.array(places))
    packet = Packet(ME, OTHER, 3, 4, m.Delivery(channel, number, sent, back_edge))
    again = packet_of(frames_of(packet), GRAPH)
    assert (again.sender, again.to, again.number, again.acked) == (ME, OTHER, 3, 4)
    assert isinstance(again.message, m.Delivery)
    assert (again.message.channel, again.message.number, again.message.back_edge) == (channel, number, back_edge)
    assert records_of(again.message.bundle) == records_of(sent)
    assert again.message.bundle.oldest == sent.oldest
    assert again.message.bundle.batch.schema == sent.batch.schema


def test_sequences_travel_whole_however_far_apart_they_are():
    for text, dense, others in (("b", 1, 1), ("b" * SMALL, 2, 3)):
        rows = bundle(("a", 1, 1), (text, 2, 2), ("c", 3, 3))
        check_sequences(rows, [7, 8, 9], dense)
        check_sequences(rows, [7, 9, 2**32], others)
        check_sequences(rows, [7, 9, 2**40], others)


def check_sequences(rows, sequences, frames):
    sent = rows._replace(sequences=np.array(sequences))
    packet = Packet(ME, OTHER, 3, 4, m.Delivery(m.ChannelId(1, 2, 3, 4), 5, sent))
    assert len(frames_of(packet)) == frames
    again = packet_of(frames_of(packet), GRAPH).message
    assert isinstance(again, m.Delivery)
    assert again.bundle.sequences.tolist() == sequences
    assert records_of(again.bundle) == records_of(sent)


(HEAD,) = frames_of(Packet(ME, OTHER, 1, 1, None))
DELIVERED = [
    bytes(frame)
    for frame in frames_of(Packet(ME, OTHER, 3, 4, m.Delivery(m.ChannelId(1, 2, 3, 4), 5, bundle(("a" * SMALL, 1, 1)))))
]


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b""],
        [b"\x00"],
        [b"not a packet"],
        [bytes(HEAD)[:-1]],
        [HEAD, b"more"],
        DELIVERED[:1],
        [DELIVERED[0], b""],
        [DELIVERED[0], DELIVERED[1][: len(DELIVERED[1]) // 2]],
        [DELIVERED[0], b"\xff" * len(DELIVERED[1])],
        [*DELIVERED, b"more"],
    ],
)
def test_other_bytes_are_no_packet(frames):
    with pytest.raises(ValueError):  # noqa: PT011 - msgspec says what is wrong, or Arrow does
        packet_of(frames, GRAPH)


@pytest.mark.parametrize(("first", "rows"), [(2**63 - 1, 1), (1, 2**60), (0, 1), (-5, 1)])
def test_a_head_that_promises_the_absurd_is_not_believed(first, rows):
    """Nothing is made in the size that it names."""
    head = msgspec.msgpack.decode(DELIVERED[0])
    described = head[5][3]
    described[3], described[4] = first, rows
    with pytest.raises(ValueError, match=r"no record has the sequence|a bundle of"):
        packet_of([msgspec.msgpack.encode(head), *DELIVERED[1:]], GRAPH)


def test_a_range_that_is_none_is_not_read():
    (good,) = frames_of(Packet(FIRST, ME, 1, 0, m.Routes([], [Route(1, "count", KeyRange(5, 9), 1, None)], [])))
    assert isinstance(good, bytes)
    bad = good.replace(b"\xa3low\x05", b"\xa3low\x09")
    assert bad != good
    with pytest.raises(msgspec.ValidationError, match="not a range of the ring"):
        packet_of([bad], GRAPH)
