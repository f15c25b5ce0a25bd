"""What the processes of a live run say to each other beside the core's packets.

A process that comes says who it is and where it listens (`Join`), and is told who the coordinator is and where the
others are (`Welcome`, `Book`). The driver attaches to the coordinator and is told how the run is, what was gathered for
it, and how it ended. All of it is typed msgpack: reading it executes nothing.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidemill.core.ids import Incarnation, WorkerId
from tidemill.observe.progress import Progress, WorkerFacts

VERSION: Final = 1
"""Of all that travels between processes. Both ends of a run have the same one, or do not talk."""

Address = str
Entry = tuple[WorkerId, Incarnation, Address]


class Join(msgspec.Struct, frozen=True, array_like=True, tag="join"):
    version: int
    worker: WorkerId
    incarnation: Incarnation
    address: Address
    host: str
    pid: int


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag="welcome"):
    generation: int


class Book(msgspec.Struct, frozen=True, array_like=True, tag="book"):
    """Where everybody listens. What it does not name is gone."""

    entries: list[Entry]


class Unwelcome(msgspec.Struct, frozen=True, array_like=True, tag="unwelcome"):
    """The process can't be one of the run: it has another version."""

    why: str


class Facts(msgspec.Struct, frozen=True, array_like=True, tag="facts"):
    facts: WorkerFacts


class Noted(msgspec.Struct, frozen=True, array_like=True, tag="noted"):
    who: str
    what: str
    about: str


class Gathered(msgspec.Struct, frozen=True, array_like=True, tag="gathered"):
    """Records of a sink that is a place in the driver's memory; `data` is an Arrow stream. Numbered by its sender."""

    worker: WorkerId
    incarnation: Incarnation
    number: int
    node: str
    data: bytes


class Taken(msgspec.Struct, frozen=True, array_like=True, tag="taken"):
    """The driver has all that a worker gathered for it up to this number."""

    worker: WorkerId
    incarnation: Incarnation
    number: int


# Between the driver and the coordinator


class Attach(msgspec.Struct, frozen=True, array_like=True, tag="attach"):
    """The driver is here: what it is to know goes where this came from."""

    version: int


class StopRun(msgspec.Struct, frozen=True, array_like=True, tag="stop-run"):
    """`abandon`: at once, whatever is under way."""

    abandon: bool


class State(msgspec.Struct, frozen=True, array_like=True, tag="state"):
    progress: Progress


class Ended(msgspec.Struct, frozen=True, array_like=True, tag="ended"):
    """`status` is "finished", "stopped" or "failed"."""

    status: str
    error: str
    message: str
    trace: str
    progress: Progress


class Heard(msgspec.Struct, frozen=True, array_like=True, tag="heard"):
    """The driver knows how it ended. However long it slept until then, it has all that was said before."""


Control = (
    Join | Welcome | Book | Unwelcome | Facts | Noted | Gathered | Taken | Attach | StopRun | State | Ended | Heard
)

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Control).decode
