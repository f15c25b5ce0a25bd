"""Per-key state of a shard, and how it is saved without ever stopping.

User code mutates state in place, so what has changed is known by what was touched: the keys of a bundle are marked
before its records run. Three fragments share the live values:

    active    keys touched since the last freeze
    inactive  keys touched before it and not encoded yet
    master    everything else; whoever saves the pieces holds its bytes

`freeze` makes the active fragment the inactive one: O(1), whatever the size of the state. From then on `encode_slice`
takes a few keys at a time, between bundles. A key that is about to change before its turn is encoded first, so the
pieces together are the state at the moment of the freeze.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from tidemill.core.codec import StateCodec, decode_key, encode_key
from tidemill.core.graph import RowState
from tidemill.core.ids import Micros
from tidemill.core.timers import Timers

HOLD: Final = "hold"


class SavedRow(msgspec.Struct, frozen=True, array_like=True):
    """All that belongs to one key. With no state and no timers left, the key is forgotten."""

    key: bytes
    state: bytes | None
    event_timers: list[tuple[str, Micros, int]]
    wall_timers: list[tuple[str, Micros, int]]
    hold: Micros | None

    @property
    def empty(self) -> bool:
        return self.state is None and not self.event_timers and not self.wall_timers and self.hold is None


class Rows(dict[Any, Any]):
    """Key to live state; a key's first use makes its state."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def __missing__(self, key: Any) -> Any:
        value = self[key] = self.make()
        return value


class KeyTimes(NamedTuple):
    """What a shard remembers of time for its keys."""

    event: Timers
    wall: Timers
    holds: Timers

    def output_hold(self) -> tuple[Micros | None, Micros | None]:
        """The first pending event timer and the first hold."""
        return self.event.first(), self.holds.first()


def new_key_times() -> KeyTimes:
    return KeyTimes(Timers(), Timers(), Timers())


def _no_state() -> Any:
    raise AssertionError("a computation without state has no rows")


class KeyedState:
    def __init__(self, spec: RowState | None, times: KeyTimes) -> None:
        self.rows = Rows(spec.make if spec else _no_state)
        self._codec = StateCodec(spec.type) if spec else None
        self._times = times
        self._active: dict[Any, None] = {}
        self._inactive: dict[Any, None] = {}
        self._encoded_early: list[SavedRow] = []

    def touch(self, keys: Iterable[Any]) -> None:
        """Must be called before user code may change these keys' state, timers or holds."""
        touched = dict.fromkeys(keys)
        if self._inactive:
            for key in touched:
                if key in self._inactive:
                    del self._inactive[key]
                    self._encoded_early.append(self._encode(key))
        self._active.update(touched)

    def freeze(self) -> None:
        assert not self.encoding, "one checkpoint at a time"
        self._inactive, self._active = self._active, {}

    @property
    def encoding(self) -> bool:
        return bool(self._inactive or self._encoded_early)

    @property
    def changed(self) -> int:
        """How many keys the next freeze would have to save."""
        return len(self._active)

    def encode_slice(self, limit: int) -> list[SavedRow]:
        """The next rows of the frozen state; empty when it is complete."""
        rows, self._encoded_early = self._encoded_early[:limit], self._encoded_early[limit:]
        while self._inactive and len(rows) < limit:
            key = next(iter(self._inactive))
            del self._inactive[key]
            rows.append(self._encode(key))
        return rows

    def _encode(self, key: Any) -> SavedRow:
        state = self._codec.encode(self.rows[key]) if self._codec and key in self.rows else None
        holds = self._times.holds.of_key(key)
        return SavedRow(
            encode_key(key),
            state,
            self._times.event.of_key(key),
            self._times.wall.of_key(key),
            holds[0][1] if holds else None,
        )

    def restore(self, rows: Iterable[SavedRow]) -> None:
        """Puts saved rows in place; a later row of a key replaces an earlier one."""
        for row in rows:
            key = decode_key(row.key)
            self.rows.pop(key, None)
            for timers in self._times:
                timers.forget(key)
            if row.state is not None and self._codec is not None:
                self.rows[key] = self._codec.decode(row.state)
            self._times.event.put_back(key, row.event_timers)
            self._times.wall.put_back(key, row.wall_timers)
            if row.hold is not None:
                self._times.holds.set(key, HOLD, row.hold)

    def known_keys(self) -> list[Any]:
        """All keys of which anything is known."""
        found = dict.fromkeys(self.rows)
        for timers in self._times:
            found.update(dict.fromkeys(timers.keys()))
        return list(found)

    def absorb(self, other: KeyedState) -> None:
        """Takes over the rows of another shard, which has no key in common with this one."""
        self.touch(other.known_keys())
        self.rows.update(other.rows)

    def forget(self, keys: Iterable[Any]) -> None:
        """Keys that went to another owner: nothing of them is kept or saved here any more."""
        for key in keys:
            self.rows.pop(key, None)
            self._active.pop(key, None)
            self._inactive.pop(key, None)
            for timers in self._times:
                timers.forget(key)
