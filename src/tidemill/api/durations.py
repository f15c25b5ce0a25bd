"""Lengths of time as people write them: "3s", "500 ms", "1 minute 30 seconds", a timedelta, or microseconds."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from typing import Final

from tidemill.core.ids import LAST, Micros
from tidemill.errors import PipelineError

_SECOND: Final = 1_000_000

_UNITS: Final = {
    unit: micros
    for names, micros in (
        ("us micro micros microsecond microseconds", 1),
        ("ms milli millis millisecond milliseconds", 1_000),
        ("s sec secs second seconds", _SECOND),
        ("m min mins minute minutes", 60 * _SECOND),
        ("h hour hours", 3_600 * _SECOND),
        ("d day days", 86_400 * _SECOND),
        ("w week weeks", 7 * 86_400 * _SECOND),
    )
    for unit in names.split()
}

_PART: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE | re.ASCII)


def duration(given: str | timedelta | int, what: str = "A duration") -> Micros:
    """The length of time in microseconds. Not negative; a plain number is microseconds."""
    if isinstance(given, timedelta):
        length = given // timedelta(microseconds=1)
    elif isinstance(given, str):
        length = _read(given, what)
    elif type(given) is int:
        length = given
    else:
        raise PipelineError(f"{what} can't be {given!r}. {_REMEDY}")
    if not 0 <= length <= LAST:
        raise PipelineError(
            f"{what} can't be {given!r}: it must not be negative, nor longer than time lasts. {_REMEDY}"
        )
    return Micros(length)


_REMEDY: Final = 'Write it as "3s", "500ms" or "2 min", as a timedelta, or as a whole number of microseconds.'


def _read(text: str, what: str) -> int:
    total, position = Decimal(0), 0
    while position < len(text) or position == 0:
        part = _PART.match(text, position)
        if part is None:
            raise PipelineError(f"{what} can't be read: {text!r} at position {position}. {_REMEDY}")
        number, unit = part.groups()
        if unit.lower() not in _UNITS:
            units = "us, ms, s, min, h, d, w"
            raise PipelineError(f"{what} can't be read: {text!r} has the unit {unit!r}; units are {units}. {_REMEDY}")
        total += Decimal(number) * _UNITS[unit.lower()]
        position = part.end()
    if total != total.to_integral_value():
        raise PipelineError(f"{what} can't be {text!r}: it is no whole number of microseconds. {_REMEDY}")
    return int(total)
