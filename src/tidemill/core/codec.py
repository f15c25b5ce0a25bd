"""How keys and state become bytes: msgpack by type, so that loading them executes nothing.

State is encoded and decoded by the type the user declared. A key's type is not always known beforehand (a key function
may return what it likes), so keys carry their type where msgpack does not keep it: dates, times, decimals and tuples.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any, Final

import msgspec

from tidemill.core.keys import normal_key

_DATETIME, _DATE, _DECIMAL = 1, 2, 3
_PLAIN: Final = (str, int, float, bytes, bool, type(None))

_encode = msgspec.msgpack.Encoder().encode


def _wrapped(key: Any) -> Any:
    if isinstance(key, tuple):
        return [_wrapped(part) for part in key]
    if type(key) in _PLAIN:
        return key
    if isinstance(key, dt.datetime):
        return msgspec.msgpack.Ext(_DATETIME, key.isoformat().encode())
    if isinstance(key, dt.date):
        return msgspec.msgpack.Ext(_DATE, key.isoformat().encode())
    if isinstance(key, Decimal):
        return msgspec.msgpack.Ext(_DECIMAL, str(key).encode())
    raise TypeError(f"a key of type {type(key).__name__} can't be encoded")


def _extension(code: int, data: memoryview) -> Any:
    text = bytes(data).decode()
    if code == _DATETIME:
        return dt.datetime.fromisoformat(text)
    if code == _DATE:
        return dt.date.fromisoformat(text)
    assert code == _DECIMAL
    return Decimal(text)


def _unwrapped(key: Any) -> Any:
    return tuple(_unwrapped(part) for part in key) if isinstance(key, list) else key


_decode = msgspec.msgpack.Decoder(Any, ext_hook=_extension).decode


def encode_key(key: Any) -> bytes:
    return _encode(_wrapped(key))


def decode_key(data: bytes) -> Any:
    return normal_key(_unwrapped(_decode(data)))


class StateCodec:
    """Encodes and decodes one type of state."""

    def __init__(self, type: Any) -> None:
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(type)

    def encode(self, value: Any) -> bytes:
        return _encode(value)

    def decode(self, data: bytes) -> Any:
        return self._decoder.decode(data)
