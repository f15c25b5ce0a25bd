"""Who is not of the run gets no word in: refused, counted, told once, and the result is what it would have been."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from pathlib import Path

import pytest
import zmq

import tidemill as tm
from tests.spark.processes import eventually, listening_ports
from tests.spark.programs import assert_counted, first_words, some_words, word_count
from tidemill.core.ids import Incarnation, Peer, WorkerId
from tidemill.hosts.spark import lifeline, protocol
from tidemill.hosts.spark.secrets import new_secrets
from tidemill.hosts.spark.sockets import authenticator, connected, listening
from tidemill.hosts.spark.transport import CONTROL, PACKET
from tidemill.observe.journal import JOURNAL, read_journal


@pytest.fixture
def context():
    with zmq.Context() as made:
        yield made


@pytest.fixture
def plain(context):
    """Makes sockets that lead somewhere and have no keys."""
    made = []

    def connect(address):
        made.append(context.socket(zmq.DEALER))
        made[-1].linger = 0
        made[-1].connect(address)
        return made[-1]

    yield connect
    for one in made:
        one.close(0)


@pytest.fixture
def keyed(context, going):
    """A socket with the run's keys, which leads to its coordinator."""
    with connected(context, going._attendance._secrets, going._attendance.address) as made:
        yield made


@pytest.fixture(scope="module")
def storage(tmp_path_factory):
    return tmp_path_factory.mktemp("storage")


@pytest.fixture(scope="module")
def going(spark, storage):
    """One run for all strangers, and at its end the proof that nobody disturbed it."""
    counts = tm.sinks.Collect()
    run = tm.run(word_count(some_words(None, 500, splits=1), counts), spark, storage=storage, display=False)
    yield run
    assert run.status == "running"
    assert run.stop(20.0)
    assert run.progress is not None
    assert_counted(counts.rows, first_words(run.progress.node("source:words").records_out))


@pytest.fixture
def refused(going):
    """Waits until at least so many more were counted."""
    before = going.progress.refused

    def more(count, within=5.0):
        eventually(lambda: going.progress.refused >= before + count, within, f"{count} were counted")

    return more


def told(storage: Path) -> list[str]:
    return [happening.about for happening in read_journal(storage / JOURNAL) if happening.what == "refused"]


def door_of(run):
    host, port = run._attendance.address.removeprefix("tcp://").split(":")
    return host, int(port)


def test_a_peer_without_keys(going, refused, plain, storage):
    for _ in range(3):
        plain(going._attendance.address).send(CONTROL + protocol.encode(protocol.StopRun(abandon=True)))
    refused(3)
    assert len(told(storage)) > 0
    assert len(set(told(storage))) == len(told(storage)), "each kind is told once"


def test_a_peer_with_other_keys(going, refused, context):
    stranger = context.socket(zmq.DEALER)
    stranger.curve_serverkey = going._attendance._secrets.public
    stranger.curve_publickey, stranger.curve_secretkey = new_secrets()
    stranger.connect(going._attendance.address)
    stranger.send(CONTROL + protocol.encode(protocol.StopRun(abandon=True)))
    refused(1)
    stranger.close(0)


def test_random_bytes(going, refused):
    with contextlib.ExitStack() as lines:
        for _ in range(3):
            lines.enter_context(socket.create_connection(door_of(going))).sendall(os.urandom(4_096))
        refused(3)


def test_a_huge_frame(going, refused):
    """In the middle of a handshake, a command of 2^60 bytes."""
    greeting = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"CURVE".ljust(20, b"\0") + b"\0" + bytes(31)
    with socket.create_connection(door_of(going)) as line:
        line.sendall(greeting + b"\x06" + struct.pack("!Q", 2**60) + bytes(4_096))
        refused(1)


def test_lifelines_without_keys(going, refused):
    """One that lies, at once; those that don't say who they are, after a while."""
    with contextlib.ExitStack() as lines:
        for said in (bytes(lifeline.WHO.size + lifeline.PROOF), b"", b"GET / HTTP/1.1\r\n\r\n"):
            line = lines.enter_context(socket.create_connection(going._attendance.lifeline))
            line.sendall(said)
        refused(1, within=2.0)
        refused(3, within=lifeline.PATIENCE + 3.0)


def test_one_of_another_version_is_sent_away(going, refused, context, keyed, storage):
    """It has the keys, and so is of the run; it is told why it can't be one of its workers."""
    secrets = going._attendance._secrets
    guard = authenticator(context, secrets)
    with listening(context, secrets, "127.0.0.1") as door:
        me = Peer(WorkerId(0), Incarnation(1))  # the very name of one that is there
        address = door.get_string(zmq.LAST_ENDPOINT)
        for _ in range(2):
            keyed.send(CONTROL + protocol.encode(protocol.Join(protocol.VERSION + 1, *me, address, "here", 1)))
        assert door.poll(5_000)
        said = protocol.decode(memoryview(door.recv_multipart()[1])[1:])
        assert said == protocol.Unwelcome(f"{me} speaks version 2 and the driver 1: install one version of tidemill")
        refused(1)
    guard.stop()
    assert told(storage).count(said.why) == 1


def test_what_can_not_be_read(refused, keyed, storage):
    for kind in (CONTROL, PACKET, b"?"):
        keyed.send(kind + os.urandom(100))
        keyed.send_multipart([kind, b"", b"and more"])
    refused(6)
    assert len([text for text in told(storage) if "can't be read" in text]) == 1


def test_the_ports_of_workers_are_guarded_as_well(going, refused, plain):
    for port in listening_ports([worker.pid for worker in going.workers]):
        plain(f"tcp://127.0.0.1:{port}").send(b"hello")
    refused(2)
