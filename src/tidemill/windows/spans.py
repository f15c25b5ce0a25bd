"""Kinds of windows, as users name them: `tm.tumbling("10s")`, `tm.sliding`, `tm.session`, `tm.count`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tidemill.api.durations import duration
from tidemill.core.ids import Micros
from tidemill.errors import PipelineError


@dataclass(frozen=True)
class Sliding:
    """Windows of one size, one beginning every so often. Where they begin is counted from 1970 and `offset`."""

    size: Micros
    every: Micros
    offset: Micros

    @property
    def pane(self) -> int:
        """The longest stretches of time that no window cuts: what lies in one lies in the same windows."""
        return math.gcd(self.size, self.every)

    def __str__(self) -> str:
        if self.size == self.every:
            return f"tumbling-{_short(self.size)}"
        return f"sliding-{_short(self.size)}-every-{_short(self.every)}"


@dataclass(frozen=True)
class Session:
    """Records of a key, each less than `gap` behind the one before it: [first, last + gap)."""

    gap: Micros

    def __str__(self) -> str:
        return f"session-{_short(self.gap)}"


@dataclass(frozen=True)
class Count:
    """Every `size` records of a key, in the order of their arrival."""

    size: int
    partial: bool

    def __str__(self) -> str:
        return f"count-{self.size}"


Span = Sliding | Session | Count


def tumbling(size: Any, *, offset: Any = 0) -> Sliding:
    """Windows of one size, one behind the other."""
    length = _positive(size, "The size of a tumbling window")
    return Sliding(length, length, _offset(offset, length))


def sliding(size: Any, *, every: Any, offset: Any = 0) -> Sliding:
    """Windows of one size that overlap, one beginning every so often."""
    length = _positive(size, "The size of a sliding window")
    step = _positive(every, "The step of a sliding window (every=)")
    if step > length:
        raise PipelineError(
            f"A sliding window of {size!r} can't begin every {every!r} only: records between two windows would be in "
            "none. Make every= at most the size, or filter the records first."
        )
    return Sliding(length, step, _offset(offset, step))


def session(gap: Any) -> Session:
    """Windows that end where a key has no record for so long."""
    return Session(_positive(gap, "The gap of a session window"))


def count(size: int, *, partial: bool = False) -> Count:
    """Windows of so many records of a key. With `partial`, those that the end of the input leaves unfilled count too.

    Their results are older than what may have left before them, so with `partial` the watermark behind the window is
    held back at the oldest unfilled window, for as long as there is one.
    """
    if type(size) is not int or size < 1:
        raise PipelineError(f"A count window can't be of {size!r} records: give a whole number from 1 on.")
    return Count(size, partial)


def _positive(given: Any, what: str) -> Micros:
    length = duration(given, what)
    if length == 0:
        raise PipelineError(f"{what} can't be {given!r}: it must be longer than nothing.")
    return length


def _offset(given: Any, step: int) -> Micros:
    return Micros(duration(given, "The offset of a window") % step)


def _short(length: int) -> str:
    for unit, micros in (
        ("d", 86_400_000_000),
        ("h", 3_600_000_000),
        ("m", 60_000_000),
        ("s", 1_000_000),
        ("ms", 1000),
    ):
        if length % micros == 0:
            return f"{length // micros}{unit}"
    return f"{length}us"
