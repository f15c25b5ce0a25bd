"""Which records a shard has already taken: what makes a record that is sent again harmless.

A producer's records reach one key range in rising sequence, so the highest sequence for each origin and stream says it
all. A shard's range may have been put together from others whose senders had come to different points; then each piece
of the range keeps the table it came with. A split copies the table, a merge keeps the pieces (Law 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from tidemill.core.bundle import Bundle
from tidemill.core.ids import Sequence, ShardId, StreamName
from tidemill.core.keys import KeyRange

Table = dict[tuple[ShardId, StreamName], Sequence]
Positions = Callable[[Bundle], npt.NDArray[np.uint64]]


class SavedPiece(msgspec.Struct, frozen=True, array_like=True):
    range: KeyRange
    table: list[tuple[ShardId, StreamName, Sequence]]


class _Piece(NamedTuple):
    range: KeyRange
    table: Table


def _within(range: KeyRange, positions: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    within: npt.NDArray[np.bool_] = (positions >= np.uint64(range.low)) & (positions <= np.uint64(range.last))
    return within


class Identities:
    def __init__(self, range: KeyRange) -> None:
        self.pieces = [_Piece(range, {})]

    def admit(self, bundle: Bundle, positions: Positions) -> Bundle | None:
        """The records of the bundle that are new, which from now on count as known; `None` when none is."""
        identity = (bundle.origin, bundle.stream)
        if len(self.pieces) == 1:
            table = self.pieces[0].table
            known = table.get(identity)
            fresh = bundle if known is None else bundle.since(known)
            if fresh is not None:
                table[identity] = Sequence(int(fresh.sequences[-1]))
            return fresh
        return self._admit_in_pieces(bundle, positions(bundle))

    def _admit_in_pieces(self, bundle: Bundle, positions: npt.NDArray[np.uint64]) -> Bundle | None:
        identity = (bundle.origin, bundle.stream)
        fresh = np.zeros(bundle.rows, dtype=bool)
        for piece in self.pieces:
            known = piece.table.get(identity, 0)
            inside = _within(piece.range, positions) & (bundle.sequences > known)
            if inside.any():
                piece.table[identity] = Sequence(int(bundle.sequences[inside][-1]))
                fresh |= inside
        if fresh.all():
            return bundle
        return bundle.take(np.flatnonzero(fresh)) if fresh.any() else None

    def narrowed(self, range: KeyRange) -> Identities:
        """What a child of a split begins with."""
        child = Identities(range)
        child.pieces = [
            _Piece(common, dict(piece.table))
            for piece in self.pieces
            if (common := piece.range.intersect(range)) is not None
        ]
        return child

    @staticmethod
    def merged(parts: Iterable[Identities]) -> Identities:
        pieces = [piece for part in parts for piece in part.pieces]
        whole = Identities(pieces[0].range)
        whole.pieces = pieces
        return whole

    def save(self) -> list[SavedPiece]:
        return [
            SavedPiece(
                piece.range,
                [(origin, stream, known) for (origin, stream), known in piece.table.items()],
            )
            for piece in self.pieces
        ]

    @staticmethod
    def load(saved: Iterable[SavedPiece]) -> Identities:
        pieces = [
            _Piece(
                piece.range,
                {(origin, stream): known for origin, stream, known in piece.table},
            )
            for piece in saved
        ]
        whole = Identities(pieces[0].range)
        whole.pieces = pieces
        return whole
