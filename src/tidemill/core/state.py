"""Per-key state of a shard, and how it is saved without ever stopping.

User code mutates state in place, so what has changed is known by what was looked up. There are three fragments:

    active    what was looked up since the last freeze; a look-up asks it first
    inactive  what was active before that freeze and is not encoded yet
    master    everything; whoever saves the pieces holds the bytes of it

`freeze` makes the active fragment the inactive one and begins an empty one: O(1), whatever the size of the state. From
then on `encode_slice` takes a few keys at a time, between bundles. A key that is looked up before its turn is encoded
first, so the pieces together are the state at the moment of the freeze.
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


class Active(dict[Any, Any]):
    """Key to live state, for the keys looked up since the last freeze. The first look-up of a key fetches it."""

    __slots__ = ("fetch",)

    def __init__(self, fetch: Callable[[Any], Any]) -> None:
        self.fetch = fetch

    def __missing__(self, key: Any) -> Any:
        value = self[key] = self.fetch(key)
        return value


class KeyedState:
    """Look a key up in `active` before user code may change anything of it: its state, its timers or its hold."""

    def __init__(self, spec: RowState | None, times: KeyTimes) -> None:
        self.rows: dict[Any, Any] = {}
        self._make = spec.make if spec else None
        self._codec = StateCodec(spec.type) if spec else None
        self._times = times
        self.active = Active(self._fetch)
        self._deleted: dict[Any, None] = {}  # since the last freeze; what was looked up again since is active too
        self._inactive: dict[Any, Any] = {}
        self._inactive_deleted: dict[Any, None] = {}
        self._encoded_early: list[SavedRow] = []

    def _fetch(self, key: Any) -> Any:
        if self.encoding and self._thaw(key):
            self._encoded_early.append(self._encode(key))
        if self._make is None:
            return None
        if key not in self.rows:
            self.rows[key] = self._make()
        return self.rows[key]

    def _thaw(self, key: Any) -> bool:
        """Takes a key out of the frozen fragment; whether it was in it."""
        found = key in self._inactive or key in self._inactive_deleted
        self._inactive.pop(key, None)
        self._inactive_deleted.pop(key, None)
        return found

    def replace(self, key: Any, value: Any) -> None:
        self.rows[key] = self.active[key] = value

    def delete(self, key: Any) -> None:
        """Forgets the key's state; the next checkpoint will say so. Another look-up makes it anew."""
        self.rows.pop(key, None)
        self.active.pop(key, None)
        self._deleted[key] = None

    def touch(self, key: Any) -> None:
        if key not in self.active:
            self.active[key] = self._fetch(key)

    def freeze(self) -> None:
        assert not self.encoding, "one checkpoint at a time"
        self._inactive, self.active = self.active, Active(self._fetch)
        self._inactive_deleted, self._deleted = self._deleted, {}

    @property
    def encoding(self) -> bool:
        return bool(self._inactive or self._inactive_deleted or self._encoded_early)

    @property
    def changed(self) -> int:
        """How many keys the next freeze would have to save."""
        return len(self.active) + sum(key not in self.active for key in self._deleted)

    def encode_slice(self, limit: int) -> list[SavedRow]:
        """The next rows of the frozen state; empty when it is complete."""
        rows, self._encoded_early = self._encoded_early[:limit], self._encoded_early[limit:]
        while len(rows) < limit and (frozen := self._inactive or self._inactive_deleted):
            key = next(iter(frozen))
            self._thaw(key)
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
        assert not self.active, "state is restored before anything runs"
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
        self.rows.update(other.rows)
        for key in other.known_keys():
            self.touch(key)

    def forget(self, keys: Iterable[Any]) -> None:
        """Keys that went to another owner: nothing of them is kept or saved here any more."""
        for key in keys:
            self.rows.pop(key, None)
            self.active.pop(key, None)
            self._deleted.pop(key, None)
            self._thaw(key)
            for timers in self._times:
                timers.forget(key)
