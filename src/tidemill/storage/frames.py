"""Frames: stored entries that know when they are torn.

A frame is a header (magic, format version, length, checksum) and a payload. What was cut short or altered is found by
reading, never taken for data: `whole_frames` gives the entries up to the first frame that is not whole, and where
that is.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final, NamedTuple

MAGIC: Final = 0x71DE
VERSION: Final = 1
_HEADER: Final = struct.Struct("<HHII")


class Frames(NamedTuple):
    entries: list[bytes]
    end: int
    """Where the whole frames end: an append goes on from here."""

    torn: bool
    """Whether anything lies behind the end."""


def frame(entry: bytes) -> bytes:
    return _HEADER.pack(MAGIC, VERSION, len(entry), zlib.crc32(entry)) + entry


def whole_frames(data: bytes | bytearray | memoryview) -> Frames:
    view = memoryview(data)
    entries: list[bytes] = []
    at = 0
    while at + _HEADER.size <= len(view):
        magic, version, length, checksum = _HEADER.unpack_from(view, at)
        start = at + _HEADER.size
        payload = view[start : start + length]
        if magic != MAGIC or version != VERSION or len(payload) < length or zlib.crc32(payload) != checksum:
            break
        entries.append(bytes(payload))
        at = start + length
    return Frames(entries, at, torn=at < len(view))
