"""How numbers and foreign words are written for people: on one line, and to be read at a glance."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Final

UNKNOWN: Final = "-"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_UNITS: Final = ("KiB", "MiB", "GiB", "TiB")


def one_line(text: str) -> str:
    """Without line breaks, and without what would move a terminal's cursor or change its colours."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def clock(seconds: float, digits: int = 0) -> str:
    """`0:05`, `12:40`, `3:00:59.125`."""
    sign, ticks = "-" if seconds < 0 else "", round(abs(seconds) * 10**digits)
    whole, part = divmod(ticks, 10**digits)
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    first = f"{hours}:{minutes:02}" if hours else f"{minutes}"
    return f"{sign}{first}:{rest:02}" + (f".{part:0{digits}}" if digits else "")


def moment(micros: int) -> str:
    """A time since the epoch as a date; one that no calendar has, as it is."""
    try:
        at = _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return f"{micros} µs after 1970 began"
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03} UTC"


def seconds(value: float | None) -> str:
    """A lag: exact while it is short."""
    if value is None:
        return UNKNOWN
    if abs(value) < 10:
        return f"{value:.2f} s"
    return f"{value:.1f} s" if abs(value) < 60 else clock(value)


def whole(value: float) -> str:
    return f"{value:,.0f}"


def size(count: int) -> str:
    value, unit = float(count), "B"
    for larger in _UNITS:
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.1f} {unit}" if value < 10 and unit != "B" else f"{value:,.0f} {unit}"


def counted(count: int, thing: str) -> str:
    """`1 worker`, `2 workers`, `no workers`."""
    return f"{count or 'no'} {thing}{'' if count == 1 else 's'}" if count < 1000 else f"{count:,} {thing}s"
