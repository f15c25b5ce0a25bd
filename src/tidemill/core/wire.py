"""Packets as frames: a head in typed msgpack, and behind it a bundle's identities and columns, which are not copied.

The head says all that a receiver must know before it looks at the rest, and holds the rest itself where that is small.
A bundle's columns are one Arrow IPC message without its schema, which both ends know from the graph. Its sequences
mostly lie close together: they travel as what they are beyond the first, in four bytes each, or not at all where none
is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from tidemill.core.bundle import Bundle, Int64s
from tidemill.core.graph import Graph
from tidemill.core.ids import Incarnation, Micros, Peer, ShardId, StreamName, WorkerId
from tidemill.core.messages import ChannelId, Delivery, Message, Packet

Frame = Any
"""Bytes, or what lends its own: a numpy array's, an Arrow message's, a received frame's."""

SMALL: Final = 16_384
"""Up to so many bytes are copied into the head: another frame costs more."""

_FIRST_NEVER: Final = 2**62

_DENSE: Final = 0
_NARROW: Final = 4
_WIDE: Final = 8


class _Bundle(msgspec.Struct, frozen=True, array_like=True):
    stream: StreamName
    origin: ShardId
    oldest: Micros
    first: int
    rows: int
    width: int  # of each sequence; none where they are consecutive
    inside: list[bytes]  # what would else be frames of its own


class _Delivery(msgspec.Struct, frozen=True, array_like=True):
    channel: ChannelId
    number: int
    back_edge: bool
    bundle: _Bundle


class _Head(msgspec.Struct, frozen=True, array_like=True):
    sender: tuple[WorkerId, Incarnation]
    to: tuple[WorkerId, Incarnation]
    number: int
    acked: int
    message: Message | None
    delivery: _Delivery | None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Head).decode


def frames_of(packet: Packet) -> list[Frame]:
    message = packet.message
    if not isinstance(message, Delivery):
        return [_encode(_Head(packet.sender, packet.to, packet.number, packet.acked, message, None))]
    bundle = message.bundle
    sequences = bundle.sequences
    first, rows = int(sequences[0]), len(sequences)
    width = _width(int(sequences[-1]) - first, rows)
    frames: list[Frame] = []
    if width != _DENSE:
        beyond = sequences - first
        frames.append(pa.py_buffer(beyond.astype(np.uint32) if width == _NARROW else beyond))
    frames.append(bundle.batch.serialize())
    inside: list[bytes] = []
    if sum(map(len, frames)) <= SMALL:
        inside, frames = [frame.to_pybytes() for frame in frames], []
    described = _Bundle(bundle.stream, bundle.origin, bundle.oldest, first, rows, width, inside)
    delivery = _Delivery(message.channel, message.number, message.back_edge, described)
    return [_encode(_Head(packet.sender, packet.to, packet.number, packet.acked, None, delivery)), *frames]


def _width(span: int, rows: int) -> int:
    if span == rows - 1:
        return _DENSE
    return _NARROW if span < 2**32 else _WIDE


def packet_of(frames: Sequence[Any], graph: Graph) -> Packet:
    """Raises `ValueError` for what is no packet (msgspec's errors are such), and executes nothing."""
    if not frames:
        raise ValueError("a packet has a head")
    head = _decode(frames[0])
    message: Message | Delivery | None = head.message
    if head.delivery is not None:
        sent = head.delivery
        parts = [*sent.bundle.inside, *frames[1:]]
        message = Delivery(sent.channel, sent.number, _bundle(sent.bundle, parts, graph), sent.back_edge)
    elif len(frames) != 1:
        raise ValueError(f"{len(frames) - 1} frames follow a head that announces none")
    return Packet(Peer(*head.sender), Peer(*head.to), head.number, head.acked, message)


def _bundle(described: _Bundle, frames: Sequence[Any], graph: Graph) -> Bundle:
    if len(frames) != (1 if described.width == _DENSE else 2):
        raise ValueError(f"{len(frames)} frames follow the head of a bundle")
    stream = graph.streams.get(described.stream)
    if stream is None:
        raise ValueError(f"there is no stream {described.stream!r}")
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(frames[-1]), stream.wire_schema)
    except (pa.ArrowException, EOFError, OSError) as error:
        raise ValueError(f"the columns of a bundle can't be read: {error}") from error
    if not 0 < described.first < _FIRST_NEVER:
        raise ValueError(f"no record has the sequence {described.first}")
    if not batch.num_rows == described.rows > 0:
        raise ValueError(f"a bundle of {described.rows} records came with {batch.num_rows}")
    sequences = _sequences(described, frames)
    if len(sequences) != described.rows:
        raise ValueError(f"a bundle of {described.rows} records came with {len(sequences)} sequences")
    return Bundle(described.stream, described.origin, sequences, batch, described.oldest)


def _sequences(described: _Bundle, frames: Sequence[Any]) -> Int64s:
    if described.width == _DENSE:
        return np.arange(described.first, described.first + described.rows, dtype=np.int64)
    beyond = np.frombuffer(frames[0], np.uint32 if described.width == _NARROW else np.int64)
    return beyond.astype(np.int64) + described.first
