"""What user code sees of a record: its columns as attributes, its event time and its stream.

A record is a tuple with names, made in bulk from Arrow columns; that is the cheapest thing Python offers that still
reads well. `record.timestamp` and `record.stream` always mean the event time and the stream. A column of one of these
names, or with a name that is no Python identifier, is read as `record["name"]`, which works for every column.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from tidemill.core.graph import Stream

MakeRecord = Callable[[Iterable[Any]], Any]


def record_type(stream: Stream) -> type:
    """The class of a stream's records; instances are made from the columns' values followed by the event time."""
    columns = stream.schema.names
    reserved = ("timestamp", "stream")
    fields = [f"column_{place}" if name in reserved else name for place, name in enumerate(columns)]
    base: Any = namedtuple("Record", [*fields, "timestamp"], rename=True)  # type: ignore[misc]  # noqa: PYI024
    places = {name: place for place, name in enumerate(columns)}

    def getitem(self: Any, name: Any) -> Any:
        return tuple.__getitem__(self, places[name] if isinstance(name, str) else name)

    return type("Record", (base,), {"__slots__": (), "stream": stream.name, "__getitem__": getitem})


def record_maker(stream: Stream) -> MakeRecord:
    return partial(tuple.__new__, record_type(stream))
