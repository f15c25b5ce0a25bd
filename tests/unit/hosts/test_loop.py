"""What happens to a core and when: packets, ticks, turns, what was told and posted; and what a performer raises."""

# mypy: disable-error-code="arg-type, has-type"

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tests.unit.hosts.spark.wires import eventually
from tidemill.core import effects, events
from tidemill.core.ids import Peer
from tidemill.core.messages import Packet
from tidemill.hosts.loop import Loop

TICK = 10_000
PACKET = Packet(Peer(0, 1), Peer(1, 1), 1, 0, None)


class Clock:
    def __init__(self):
        self.at = 1_000_000

    def now(self):
        return self.at


class Door:
    """Time passes while it is waited at, and only then; an end of the packets ends the test's run."""

    def __init__(self, clock, happenings):
        self.clock = clock
        self.happenings = list(happenings)  # for each look at the door: packets, or something to do
        self.waits: list[int] = []
        self.woken = threading.Event()
        self.really = False

    def receive(self):
        if not self.happenings:
            return []
        now = self.happenings.pop(0)
        return now if isinstance(now, list) else (now() or [])

    def wait(self, micros):
        self.waits.append(micros)
        self.clock.at += micros
        if self.really:
            self.woken.wait(0.1)
            self.woken.clear()

    def wake(self):
        self.woken.set()


class Core:
    """Keeps what it is told; answers with effects that a test names by the event's type."""

    def __init__(self):
        self.told: list = []
        self.answers: dict[type, list] = {}
        self.work = 0

    @property
    def busy(self):
        return self.work > 0

    def handle(self, event):
        self.told.append(event)
        if isinstance(event, events.Turn):
            self.work -= 1
        waiting = self.answers.get(type(event), [])
        return waiting.pop(0) if waiting else []

    @property
    def kinds(self):
        return [type(event).__name__ for event in self.told]

    def of(self, kind):
        return [event for event in self.told if isinstance(event, kind)]


class Looped:
    def __init__(self, *happenings):
        self.clock = Clock()
        self.core: Any = Core()
        self.door = Door(self.clock, happenings)
        self.loop: Any = Loop(self.core, self.door, self.clock, tick=TICK)

    def end(self):
        self.loop.over = True

    def run(self, *, rounds=None):
        """Until something ends it, or for so many waits, and no longer."""
        if rounds is not None:
            self.loop.idle.append(lambda: self.end() if len(self.door.waits) + 1 >= rounds else None)
        runner = threading.Thread(target=self.loop.run)
        runner.start()
        runner.join(10)
        assert not runner.is_alive(), "the loop does not end"


def test_it_begins_with_its_start_and_a_tick():
    looped = Looped()
    looped.run(rounds=1)
    assert looped.core.kinds == ["Started", "Ticked"]
    assert {event.now for event in looped.core.told} == {1_000_000}


def test_packets_come_before_turns_and_one_turn_at_a_time():
    """So that what comes in is never held up by more than a piece of work."""
    looped = Looped([], [PACKET, PACKET], [PACKET])
    looped.core.work = 3
    looped.run(rounds=1)
    assert looped.core.kinds == ["Started", "Ticked", "Turn", "Received", "Received", "Turn", "Received", "Turn"]
    assert looped.core.of(events.Received)[0].packet is PACKET


def test_ticks_come_at_their_pace():
    looped = Looped()
    looped.run(rounds=5)
    ticks = looped.core.of(events.Ticked)
    assert [tick.now for tick in ticks] == [1_000_000 + number * TICK for number in range(len(ticks))]
    assert set(looped.door.waits) == {TICK}


def test_a_tick_that_is_late_comes_once():
    """After a pause of the process there is one, not all that were missed."""
    looped = Looped([])
    looped.loop.idle.append(lambda: setattr(looped.clock, "at", looped.clock.at + 50 * TICK))
    looped.run(rounds=2)
    assert looped.door.waits == [0, 0]
    assert len(looped.core.of(events.Ticked)) == 2


def test_a_busy_core_is_ticked_too():
    looped = Looped(*[lambda: setattr(looped.clock, "at", looped.clock.at + TICK // 2)] * 10)
    looped.core.work = 10
    looped.run(rounds=1)
    assert len(looped.core.of(events.Ticked)) == 6
    assert len(looped.door.waits) == 1, "when all was done"


def test_a_clock_that_goes_back_does_not_stop_the_ticks():
    looped = Looped([], lambda: setattr(looped.clock, "at", 0))
    looped.run(rounds=4)
    assert [tick.now for tick in looped.core.of(events.Ticked)][-1] < 1_000_000


def test_each_tick_is_told_to_the_host_before_the_core():
    looped = Looped()
    order: list = []
    looped.loop.every.append(lambda now: order.append((now, len(looped.core.of(events.Ticked)))))
    looped.run(rounds=3)
    assert order == [(1_000_000, 0), (1_000_000 + TICK, 1), (1_000_000 + 2 * TICK, 2)]


# What is told and posted


def test_what_is_told_is_handled_after_what_is_in_hand_with_the_time_that_it_is_then():
    looped = Looped([PACKET])
    ask = effects.Note("ask", "")
    looped.core.answers[events.Started] = [[ask, effects.Note("other", "")]]
    performed: list = []

    def perform(effect):
        performed.append(effect)
        if effect is ask:
            looped.loop.tell(lambda now: events.Persisted(now, 7))
            looped.clock.at += 5

    looped.loop.performs({effects.Note: perform})
    looped.run(rounds=1)
    assert len(performed) == 2, "all effects of an event are performed before the next event"
    assert looped.core.kinds == ["Started", "Ticked", "Received", "Persisted"]
    assert looped.core.told[-1] == events.Persisted(1_000_005, 7)


def test_what_comes_of_what_was_told_waits_for_packets():
    """A loop that talks to itself still listens."""
    looped = Looped([], [PACKET], [PACKET])
    looped.loop.tell(lambda now: events.Persisted(now, 1))
    looped.core.answers[events.Persisted] = [[effects.Note("again", "")], [effects.Note("again", "")]]
    looped.loop.performs({effects.Note: lambda _: looped.loop.tell(lambda now: events.Persisted(now, 2))})
    looped.run(rounds=1)
    assert looped.core.kinds == ["Started", "Ticked", "Persisted", "Received", "Persisted", "Received", "Persisted"]
    assert len(looped.door.waits) == 1, "when all was done"


def test_another_thread_has_something_done_and_ends_a_wait():
    looped = Looped()
    looped.door.really = True
    by: list = []

    def end():
        by.append(threading.current_thread())
        looped.end()

    def post():
        eventually(lambda: looped.door.waits)
        looped.loop.post(end)

    poster = threading.Thread(target=post)
    poster.start()
    looped.run()
    poster.join()
    assert by
    assert by[0] is not poster


def test_what_was_posted_keeps_its_order():
    looped = Looped()
    done: list = []
    for number in range(5):
        looped.loop.post(lambda number=number: done.append(number))
    looped.run(rounds=1)
    assert done == list(range(5))


# What takes long


def test_what_takes_long_is_done_elsewhere_in_order_and_told():
    looped = Looped()
    looped.door.really = True
    done: list = []

    def work(number):
        time.sleep(0.02 * (3 - number))
        done.append((number, threading.current_thread().name))
        return number

    for number in (1, 2, 3):
        looped.loop.aside(lambda number=number: work(number), lambda n: lambda now: events.Persisted(now, n))
    looped.loop.idle.append(lambda: looped.end() if len(looped.core.of(events.Persisted)) == 3 else None)
    looped.run()
    assert [number for number, _ in done] == [1, 2, 3]
    assert all(name.startswith("tidemill-aside") for _, name in done)
    assert [event.ticket for event in looped.core.of(events.Persisted)] == [1, 2, 3]


def test_what_goes_wrong_there_breaks_the_run():
    looped = Looped()
    looped.door.really = True
    disk = OSError("the disk is gone")

    def fail():
        raise disk

    looped.loop.aside(fail, lambda _: lambda now: events.Persisted(now, 1))
    looped.loop.idle.append(lambda: looped.end() if looped.core.of(events.Broken) else None)
    looped.run()
    assert [event.error for event in looped.core.of(events.Broken)] == [disk]
    assert looped.core.of(events.Persisted) == []


def test_what_goes_wrong_in_the_telling_breaks_it_too():
    looped = Looped()
    looped.door.really = True
    looped.loop.aside(lambda: 1, lambda _: 1 / 0)
    looped.loop.idle.append(lambda: looped.end() if looped.core.of(events.Broken) else None)
    looped.run()
    assert isinstance(looped.core.of(events.Broken)[0].error, ZeroDivisionError)


@pytest.mark.parametrize("ends", ["over", "raises"])
def test_no_thread_is_left(ends):
    looped = Looped()
    before = threading.active_count()
    looped.loop.aside(lambda: None, lambda _: lambda now: events.Persisted(now, 1))
    if ends == "raises":

        def handle(_):
            raise RuntimeError("a fault of ours")

        looped.core.handle = handle
        with pytest.raises(RuntimeError):
            looped.loop.run()
    else:
        looped.run(rounds=1)
    eventually(lambda: threading.active_count() == before)


# What a performer raises


def test_what_a_performer_raises_breaks_the_run_and_the_others_are_performed():
    looped = Looped()
    looped.core.answers[events.Started] = [[effects.Note("a", ""), effects.Exit("b"), effects.Note("c", "")]]
    performed: list = []

    def fail(_):
        raise KeyError("a user's sink")

    looped.loop.performs({effects.Note: performed.append, effects.Exit: fail})
    looped.run(rounds=1)
    assert [effect.what for effect in performed] == ["a", "c"]
    assert isinstance(looped.core.of(events.Broken)[0].error, KeyError)


def test_an_effect_that_nobody_performs_breaks_the_run():
    looped = Looped()
    looped.core.answers[events.Started] = [[effects.Claim()]]
    looped.run(rounds=1)
    assert isinstance(looped.core.of(events.Broken)[0].error, KeyError)


def test_what_is_due_and_raises_breaks_the_run():
    """It may be a user's source, which is read when its time has come."""
    looped = Looped()
    problem = OSError("the file is gone")

    def due(_):
        looped.loop.due = lambda _: TICK
        raise problem

    looped.loop.due = due
    looped.run(rounds=2)
    assert [event.error for event in looped.core.of(events.Broken)] == [problem]


def test_a_fault_of_the_core_ends_the_loop():
    looped = Looped()

    def handle(_):
        raise AssertionError("a fault of ours")

    looped.core.handle = handle
    with pytest.raises(AssertionError, match="a fault of ours"):
        looped.loop.run()


# Waiting


def test_it_waits_until_something_is_due_or_for_the_tick():
    looped = Looped()
    asked: list = []

    def due(now):
        asked.append(now)
        return 300 if len(asked) < 3 else 10**9

    looped.loop.due = due
    looped.run(rounds=5)
    assert looped.door.waits == [300, 300, TICK - 600, TICK, TICK]
    assert asked[:3] == [1_000_000, 1_000_300, 1_000_600]


def test_what_was_due_and_told_something_is_not_waited_for():
    looped = Looped()

    def due(_):
        looped.loop.due = lambda _: TICK
        looped.loop.tell(lambda now: events.Persisted(now, 1))
        return TICK

    looped.loop.due = due
    looped.run(rounds=2)
    assert looped.core.kinds == ["Started", "Ticked", "Persisted", "Ticked"]


def test_one_that_is_idle_does_what_is_left_before_it_waits():
    looped = Looped()
    waits: list = []
    looped.loop.idle.append(lambda: waits.append(len(looped.door.waits)))
    looped.core.work = 2
    looped.run(rounds=3)
    assert waits == [0, 1, 2]
    assert looped.core.kinds[:4] == ["Started", "Ticked", "Turn", "Turn"]


def test_one_that_is_held_takes_no_turn_but_listens_and_is_ticked():
    held = [True]
    looped = Looped([PACKET], [PACKET])
    looped.core.work = 1
    looped.loop.held = lambda: held[0]
    looped.loop.every.append(lambda _: held.__setitem__(0, len(looped.core.of(events.Ticked)) < 3))
    looped.run(rounds=5)
    kinds = looped.core.kinds
    assert kinds.count("Received") == 2
    assert kinds.index("Turn") > kinds.index("Ticked", kinds.index("Ticked") + 1)
    assert looped.core.work == 0
