"""Randomness as an input: numbers that follow from a seed alone, the same in every replay.

SplitMix64. User code gets one generator for each event its shard handles, seeded by the plan's seed, the shard's
lineage and the event's number, so that replaying the event replays the numbers.
"""

from __future__ import annotations

from typing import Final

_MASK: Final = 2**64 - 1
_STEP: Final = 0x9E3779B97F4A7C15


class Chance:
    __slots__ = ("_state",)

    def __init__(self, *seeds: int) -> None:
        self._state = 0
        for seed in seeds:
            self._state = (self._state ^ (seed & _MASK)) & _MASK
            self._state = self.bits()

    def bits(self) -> int:
        """64 of them."""
        self._state = (self._state + _STEP) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return mixed ^ (mixed >> 31)

    def random(self) -> float:
        """At least 0, less than 1."""
        return (self.bits() >> 11) / 2**53

    def below(self, limit: int) -> int:
        """A whole number from 0 to `limit` - 1."""
        assert limit > 0
        return self.bits() % limit
