"""An end of file is a death, at once, however the process died; silence is nothing; strangers hold no lifeline."""

# mypy: disable-error-code="arg-type, type-var, union-attr"

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from tests.unit.hosts.spark.wires import HOST, KEYS, eventually, knock, open_files
from tidemill.core.ids import Peer
from tidemill.errors import RunError
from tidemill.hosts.spark import lifeline
from tidemill.hosts.spark.lifeline import CHALLENGE, PATIENCE, PROOF, WHO, Lifelines, hold, is_cut
from tidemill.hosts.spark.secrets import Secrets, new_secrets
from tidemill.hosts.spark.sockets import bound_port

ME, OTHER = Peer(0, 1), Peer(1, 1)
LATE = int(PATIENCE * 1e6) + 1


class Waiting:
    """Who waits at the coordinator's ends."""

    def __init__(self):
        self.files: dict = {}
        self.gone: list[Peer] = []
        self.said: list[str] = []
        self.lines = Lifelines(
            bound_port(HOST),
            KEYS,
            watch=self.files.__setitem__,
            unwatch=lambda file: self.files.pop(file, None),
            gone=self.gone.append,
            say=self.said.append,
        )
        self.port = self.lines._door.getsockname()[1]
        self.address = HOST, self.port

    def turn(self):
        for file in select.select(list(self.files), [], [], 0.01)[0]:
            if file in self.files:
                self.files[file]()

    def until(self, what, seconds=5.0):
        return eventually(what, seconds, self.turn)

    def holds(self, peer):
        """Lets a process of this very program hold one."""
        line = Holding(self, peer).line
        self.until(lambda: peer in self.lines.held())
        return line

    def close(self):
        self.lines.close()


class Holding:
    """`hold` waits for an answer, so that somebody must answer meanwhile."""

    def __init__(self, waiting, peer, keys=KEYS):
        self.line = self.error = None
        thread = threading.Thread(target=self._hold, args=(waiting.address, peer, keys))
        thread.start()
        while thread.is_alive():
            waiting.turn()
        thread.join()

    def _hold(self, address, peer, keys):
        try:
            self.line = hold(address, peer, keys)
        except RunError as error:
            self.error = error


@pytest.fixture
def waiting(closing):
    return closing(Waiting())


def process(*arguments, **how):
    code = (
        "import sys, time\n"
        "from tidemill.core.ids import Peer\n"
        "from tidemill.hosts.spark.lifeline import hold\n"
        "from tidemill.hosts.spark.secrets import Secrets\n"
        "line = hold((sys.argv[1], int(sys.argv[2])), Peer(0, 1), Secrets(*map(str.encode, sys.argv[3:5])))\n"
        "print('held', flush=True)\n"
        "time.sleep(60)\n"
    )
    keys = [key.decode() for key in KEYS]
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments), *keys], stdout=subprocess.PIPE, **how)


@pytest.fixture
def worker(waiting):
    """A process that holds a lifeline."""
    with process(*waiting.address) as held:
        waiting.until(waiting.lines.held, 20)
        yield held
        held.kill()


def test_a_killed_process_is_known_to_be_gone_at_once(waiting, worker):
    assert waiting.lines.held() == [ME]
    worker.send_signal(signal.SIGKILL)
    began = time.monotonic()
    waiting.until(lambda: waiting.gone)
    assert time.monotonic() - began < 1
    assert waiting.gone == [ME]
    assert waiting.lines.held() == []
    assert list(waiting.files) == [waiting.lines._door], "nobody waits for it any more"


def test_a_stopped_process_is_not_taken_for_dead(waiting, worker):
    worker.send_signal(signal.SIGSTOP)
    until = time.monotonic() + 0.5
    now = 0
    while time.monotonic() < until:
        waiting.turn()
        now += LATE
        waiting.lines.look(now)
    assert waiting.gone == []
    assert waiting.lines.held() == [ME]
    worker.send_signal(signal.SIGCONT)
    worker.send_signal(signal.SIGKILL)
    waiting.until(lambda: waiting.gone == [ME])


def test_a_worker_knows_at_once_that_the_coordinator_was_killed(closing):
    code = (
        "import sys\n"
        "sys.path.insert(0, '.')\n"
        "from tests.unit.hosts.spark import wires\n"
        "from tidemill.hosts.spark.secrets import Secrets\n"
        "wires.KEYS = Secrets(*map(str.encode, sys.argv[1:3]))\n"
        "from tests.unit.hosts.spark.test_lifeline import Waiting\n"
        "waiting = Waiting()\n"
        "print(waiting.port, flush=True)\n"
        "while True: waiting.turn()\n"
    )
    keys = [key.decode() for key in KEYS]
    with subprocess.Popen([sys.executable, "-c", code, *keys], stdout=subprocess.PIPE) as coordinator:
        assert coordinator.stdout is not None
        line = closing(hold((HOST, int(coordinator.stdout.readline())), ME, KEYS))
        assert not select.select([line], [], [], 0.1)[0]
        coordinator.send_signal(signal.SIGSTOP)
        assert not select.select([line], [], [], 0.3)[0], "one that is stopped is alive"
        coordinator.send_signal(signal.SIGKILL)
        assert select.select([line], [], [], 1)[0]
        assert is_cut(line)


def test_each_process_has_its_own(waiting, closing):
    first, second = closing(waiting.holds(ME)), closing(waiting.holds(OTHER))
    assert sorted(waiting.lines.held()) == [ME, OTHER]
    first.close()
    waiting.until(lambda: waiting.gone)
    assert waiting.gone == [ME]
    assert waiting.lines.held() == [OTHER]
    assert not select.select([second], [], [], 0)[0]


def test_another_incarnation_is_another_process(waiting, closing):
    closing(waiting.holds(ME)).close()
    again = Peer(ME.worker, 2)
    closing(waiting.holds(again))
    waiting.until(lambda: waiting.gone)
    assert waiting.gone == [ME]
    assert waiting.lines.held() == [again]


def test_a_process_has_one(waiting, closing):
    """A second one in its name is refused, and the first goes on to tell of its end."""
    first = closing(waiting.holds(ME))
    second = closing(Holding(waiting, ME).line)
    waiting.until(lambda: waiting.lines.refused)
    assert select.select([second], [], [], 1)[0]
    assert is_cut(second)
    assert waiting.lines.held() == [ME]
    assert waiting.gone == []
    first.close()
    waiting.until(lambda: waiting.gone == [ME])


def test_what_is_readable_and_not_at_its_end_is_not_cut(closing):
    mine, theirs = map(closing, socket.socketpair())
    mine.settimeout(0)
    assert not is_cut(mine)
    theirs.send(b"x")
    assert not is_cut(mine)
    theirs.close()
    assert is_cut(mine)


# Strangers


def test_a_stranger_without_the_key_is_refused(waiting):
    line = Holding(waiting, ME, new_secrets()).line
    waiting.until(lambda: waiting.lines.refused)
    assert waiting.lines.held() == []
    assert waiting.said == ["a lifeline without the run's keys was refused"]
    assert select.select([line], [], [], 1)[0]
    line.close()


def test_the_public_key_alone_is_no_key(waiting, closing):
    closing(Holding(waiting, ME, Secrets(KEYS.public, b"")).line)
    waiting.until(lambda: waiting.lines.refused)
    assert waiting.lines.held() == []


def test_an_answer_that_was_overheard_is_no_answer(waiting, closing):
    """Each is asked something else."""
    first, second = (closing(knock(waiting.port)) for _ in range(2))
    waiting.until(lambda: len(waiting.lines._strangers) == 2)
    overheard = first.recv(CHALLENGE)
    assert len(overheard) == CHALLENGE
    assert second.recv(CHALLENGE) != overheard
    second.send(WHO.pack(*ME) + KEYS.proof(overheard + WHO.pack(*ME)))
    waiting.until(lambda: waiting.lines.refused)
    assert waiting.lines.held() == []


def test_nobody_takes_the_name_of_another(waiting, closing):
    """Who it is belongs to what is proved."""
    line = closing(knock(waiting.port))
    waiting.until(lambda: waiting.lines._strangers)
    proof = KEYS.proof(line.recv(CHALLENGE) + WHO.pack(*ME))
    line.send(WHO.pack(*OTHER) + proof)
    waiting.until(lambda: waiting.lines.refused)
    assert waiting.lines.held() == []


@pytest.mark.parametrize("said", [b"", b"half an answer"])
def test_a_slow_stranger_is_refused(waiting, closing, said):
    line = closing(knock(waiting.port, said))
    waiting.until(lambda: waiting.lines._strangers)
    waiting.lines.look(10 * LATE)  # its time begins when it is first looked at
    waiting.lines.look(11 * LATE - 2)
    assert waiting.lines.refused == 0
    waiting.lines.look(11 * LATE)
    assert waiting.lines.refused == 1
    assert line.recv(CHALLENGE)
    assert line.recv(1) == b"" if not said else True
    assert list(waiting.files) == [waiting.lines._door]


def test_half_an_answer_and_an_end_is_refused(waiting):
    knock(waiting.port, b"half an answer").close()
    waiting.until(lambda: waiting.lines.refused)
    assert list(waiting.files) == [waiting.lines._door]


def test_an_answer_may_come_in_pieces(waiting, closing):
    line = closing(knock(waiting.port))
    waiting.until(lambda: waiting.lines._strangers)
    answer = WHO.pack(*ME) + KEYS.proof(line.recv(CHALLENGE) + WHO.pack(*ME))
    assert len(answer) == WHO.size + PROOF
    for place in range(0, len(answer), 7):
        line.send(answer[place : place + 7])
        waiting.turn()
    waiting.until(lambda: waiting.lines.held() == [ME])


def test_who_answered_while_the_coordinator_was_away_is_let_in(waiting, closing):
    """It was the coordinator that was stopped: what lies there is heard before anybody is judged."""
    line = closing(knock(waiting.port))
    waiting.until(lambda: waiting.lines._strangers)
    line.send(WHO.pack(*ME) + KEYS.proof(line.recv(CHALLENGE) + WHO.pack(*ME)))
    time.sleep(0.02)
    waiting.lines.look(0)
    waiting.lines.look(LATE)
    assert waiting.lines.held() == [ME]
    assert waiting.lines.refused == 0


def test_each_is_counted_and_it_is_said_once(waiting):
    for _ in range(3):
        knock(waiting.port, os.urandom(WHO.size + PROOF)).close()
    waiting.until(lambda: waiting.lines.refused == 3)
    assert len(waiting.said) == 1


# Who can't hold one


def test_where_nobody_listens_the_remedy_is_named(waiting):
    waiting.close()
    with pytest.raises(RunError, match=rf"worker0\.1 can't reach .* {HOST}:{waiting.port}: .* set spark\.driver\.host"):
        hold(waiting.address, ME, KEYS)


def test_one_that_is_sent_away_before_it_was_asked_keeps_nothing_open(monkeypatch):
    door = bound_port(HOST)
    monkeypatch.setattr(lifeline, "PATIENCE", 0.1)
    before = open_files()
    with pytest.raises(RunError, match="timed out"):
        hold((HOST, door.getsockname()[1]), ME, KEYS)
    assert open_files() == before
    door.close()


def test_nothing_is_left_of_lifelines_that_are_closed():
    before = open_files()
    waiting = Waiting()
    line = waiting.holds(ME)
    stranger = knock(waiting.port)
    waiting.until(lambda: waiting.lines._strangers)
    waiting.close()
    line.close()
    stranger.close()
    assert open_files() == before
