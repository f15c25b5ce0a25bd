"""Every message comes back as it was; what is none is refused by its type, and loading it executes nothing."""

# mypy: disable-error-code="arg-type, call-arg, list-item"

from __future__ import annotations

import msgspec
import pytest

from tests.unit.observe.invented import progress, worker
from tidemill.hosts.spark import protocol
from tidemill.observe.progress import ShardFacts, WorkerFacts

MESSAGES = [
    protocol.Join(1, 2, 3, "tcp://10.0.0.1:4711", "host", 99),
    protocol.Welcome(1),
    protocol.Book([(0, 1, "tcp://10.0.0.1:4711"), (1, 1001, "tcp://10.0.0.2:4712")]),
    protocol.Unwelcome("another version"),
    protocol.Facts(WorkerFacts(0, 1, "host", 99, 2**30, 1.5, 0, [ShardFacts("count", 3, 1, 2, 3, 4, 5)])),
    protocol.Noted("worker0.1", "said", "Grüße \ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16")),
    protocol.Gathered(0, 1, 7, "counts", bytes(range(256))),
    protocol.Taken(0, 1, 7),
    protocol.Attach(1),
    protocol.StopRun(abandon=True),
    protocol.State(progress(1, workers=[worker(0)])),
    protocol.Ended("failed", "UserCodeError", "count raised", "Traceback", progress(2, "failed")),
    protocol.Heard(),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_comes_back_as_it_was(message):
    assert protocol.decode(protocol.encode(message)) == message


def test_all_messages_are_tried_here():
    assert {type(message) for message in MESSAGES} == set(protocol.Control.__args__)


def test_no_two_have_one_tag():
    tags = [kind.__struct_config__.tag for kind in protocol.Control.__args__]
    assert len(set(tags)) == len(tags)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode(["no-such-thing", 1]),
        msgspec.msgpack.encode(["welcome"]),
        msgspec.msgpack.encode(["welcome", "one"]),
        msgspec.msgpack.encode(["join", 1, 2, 3, None, "host", 99]),
        msgspec.msgpack.encode({"type": "welcome"}),
        protocol.encode(protocol.Welcome(1))[:-1],
        protocol.encode(protocol.Welcome(1)) + b"x",
    ],
)
def test_what_is_no_message_is_a_value_error(data):
    with pytest.raises(ValueError):  # noqa: PT011 - msgspec says it in its own words
        protocol.decode(data)
