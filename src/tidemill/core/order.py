"""The order log: what a shard handled, in order.

A shard is a function of these entries and of nothing else, so that handling them again, in order, gives the same state,
the same timers and the same records with the same identities (Law 2). A mechanism that replays without rolling back the
receivers writes them down before an output leaves.
"""

from __future__ import annotations

import msgspec
import numpy as np

from tidemill.core.bundle import Bundle, decode_batch, encode_batch
from tidemill.core.graph import Graph
from tidemill.core.ids import Micros, ShardId, StreamName


class BundleEntry(msgspec.Struct, frozen=True):
    """Records were handled; all of them were new."""

    bundle: Bundle
    now: Micros


class MarkEntry(msgspec.Struct, frozen=True):
    """The input mark rose, and event timers fired."""

    mark: Micros
    outside: Micros  # what the senders outside the shard's cycle say; the same as `mark` where there is no cycle
    now: Micros


class WakeEntry(msgspec.Struct, frozen=True):
    """Wall timers fired."""

    now: Micros


class ReadEntry(msgspec.Struct, frozen=True):
    """A source's shard read on."""

    bundle: Bundle | None
    position: int
    mark: Micros
    idle: bool
    now: Micros
    malformed: Bundle | None = None


Entry = BundleEntry | MarkEntry | WakeEntry | ReadEntry


class _SavedBundle(msgspec.Struct, frozen=True, array_like=True):
    stream: StreamName
    origin: ShardId
    sequences: bytes
    batch: bytes
    oldest: Micros


class _SavedBundleEntry(msgspec.Struct, frozen=True, array_like=True, tag="bundle"):
    bundle: _SavedBundle
    now: Micros


class _SavedMark(msgspec.Struct, frozen=True, array_like=True, tag="mark"):
    mark: Micros
    outside: Micros
    now: Micros


class _SavedWake(msgspec.Struct, frozen=True, array_like=True, tag="wake"):
    now: Micros


class _SavedRead(msgspec.Struct, frozen=True, array_like=True, tag="read"):
    bundle: _SavedBundle | None
    position: int
    mark: Micros
    idle: bool
    now: Micros
    malformed: _SavedBundle | None


_Saved = _SavedBundleEntry | _SavedMark | _SavedWake | _SavedRead

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Saved).decode
_encode_bundle = msgspec.msgpack.Encoder().encode
_decode_bundle = msgspec.msgpack.Decoder(_SavedBundle).decode


def _saved_bundle(bundle: Bundle) -> _SavedBundle:
    return _SavedBundle(
        bundle.stream, bundle.origin, bundle.sequences.tobytes(), encode_batch(bundle.batch), bundle.oldest
    )


def _loaded_bundle(saved: _SavedBundle, graph: Graph) -> Bundle:
    return Bundle(
        saved.stream,
        saved.origin,
        np.frombuffer(saved.sequences, np.int64),
        decode_batch(saved.batch, graph.streams[saved.stream].wire_schema),
        saved.oldest,
    )


def encode_bundle(bundle: Bundle) -> bytes:
    return _encode_bundle(_saved_bundle(bundle))


def decode_bundle(data: bytes, graph: Graph) -> Bundle:
    return _loaded_bundle(_decode_bundle(data), graph)


def encode_entry(entry: Entry) -> bytes:
    match entry:
        case BundleEntry(bundle, now):
            return _encode(_SavedBundleEntry(_saved_bundle(bundle), now))
        case MarkEntry(mark, outside, now):
            return _encode(_SavedMark(mark, outside, now))
        case WakeEntry(now):
            return _encode(_SavedWake(now))
        case ReadEntry(read, position, mark, idle, now, malformed):
            saved = _saved_bundle(read) if read is not None else None
            diverted = _saved_bundle(malformed) if malformed is not None else None
            return _encode(_SavedRead(saved, position, mark, idle, now, diverted))
        case _:
            raise AssertionError(f"no entry: {entry!r}")


def decode_entry(data: bytes, graph: Graph) -> Entry:
    match _decode(data):
        case _SavedBundleEntry(bundle, now):
            return BundleEntry(_loaded_bundle(bundle, graph), now)
        case _SavedMark(mark, outside, now):
            return MarkEntry(mark, outside, now)
        case _SavedWake(now):
            return WakeEntry(now)
        case _SavedRead(read, position, mark, idle, now, malformed):
            loaded = _loaded_bundle(read, graph) if read is not None else None
            diverted = _loaded_bundle(malformed, graph) if malformed is not None else None
            return ReadEntry(loaded, position, mark, idle, now, diverted)
        case other:
            raise AssertionError(f"no entry: {other!r}")
