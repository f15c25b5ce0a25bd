"""The whole state of a computation's shard as bytes, and a shard that begins with such a state.

A piece is what a slice of a checkpoint holds: a key's row, or rows of columns. Pieces of one part belong together: they
are what one shard held. A shard over any range may begin with the parts of others over the same ring, and keeps what is
its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from tidemill.core.codec import decode_key
from tidemill.core.columns import SavedColumns
from tidemill.core.computing import BundleShard, ComputationShard, RecordShard
from tidemill.core.graph import ColumnState, Graph
from tidemill.core.ids import Position
from tidemill.core.shard import Place, Shard
from tidemill.core.state import SavedRow
from tidemill.core.succession import new_shard
from tidemill.core.table import SavedTable

SLICE: Final = 1024

encode = msgspec.msgpack.Encoder().encode
_decode_row = msgspec.msgpack.Decoder(SavedRow).decode
_decode_columns = msgspec.msgpack.Decoder(SavedColumns).decode
_decode_table = msgspec.msgpack.Decoder(SavedTable).decode


def rows_of(shard: RecordShard) -> Iterator[tuple[Any, Position, SavedRow]]:
    """What a shard holds for each key, and where on the ring that lies."""
    shard.freeze()
    while rows := shard.encode_slice(SLICE):
        for row in rows:
            if not row.empty:
                key = decode_key(row.key)
                yield key, shard.key_position(key), row


def pieces_of(shard: BundleShard) -> Iterator[SavedColumns | SavedTable]:
    """What a vectorised computation's shard holds, some rows at a time."""
    shard.freeze()
    while pieces := shard.encode_slice(SLICE):
        yield from pieces


def begun(graph: Graph, place: Place, plan_seed: int, parts: Sequence[Sequence[bytes]]) -> Shard:
    """A shard in its first life: empty, or with the state that the run was given to begin with."""
    shard = new_shard(graph, place, plan_seed)
    if parts:
        assert isinstance(shard, ComputationShard), "only computations have state"
        for part in parts:
            other = new_shard(graph, place, plan_seed)
            assert isinstance(other, RecordShard | BundleShard)
            other.restore([_decoded(graph, place, piece) for piece in part])
            other.keep_range(place.range)
            shard.absorb(other)
    return shard


def _decoded(graph: Graph, place: Place, piece: bytes) -> Any:
    node = graph.nodes[place.node]
    if not node.vectorised:
        return _decode_row(piece)
    return _decode_columns(piece) if isinstance(node.state, ColumnState) else _decode_table(piece)
