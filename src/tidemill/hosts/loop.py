"""The one interpreter of effects in real time: takes what happens to a core, performs what it answers, and waits.

    event -> core.handle(event) -> [effect, ...] -> performed here -> answers come back as events

One thread runs it. What takes long (a disk, a commit) is done elsewhere and posted back; what is to happen later
(a tick, a source's next record) is a deadline to wait for. Nothing here knows what an effect means: each kind has its
performer, given by the host.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from tidemill.core import events
from tidemill.core.effects import Effect
from tidemill.core.ids import Micros
from tidemill.core.messages import Packet
from tidemill.ports import Clock

Performer = Callable[[Any], None]
MakeEvent = Callable[[Micros], Any]
"""Makes an event when its turn has come, of the clock as it is then."""


class Core(Protocol):
    @property
    def busy(self) -> bool: ...

    def handle(self, event: Any) -> list[Effect]: ...


class Doorway(Protocol):
    """Where packets come in, and what is waited at."""

    def receive(self) -> list[Packet]:
        """What has arrived; never waits."""
        ...

    def wait(self, micros: Micros) -> None:
        """Until something arrives, `wake` is called, or so long."""
        ...

    def wake(self) -> None:
        """Ends a wait. From any thread."""
        ...


class Loop:
    """What a host may set: `every`, called with each tick, before the core; `idle`, called before a wait; `due`, which
    does what it is time for and says how long there is nothing else; `held`, which says that no more may be done now.
    """

    def __init__(self, core: Core, doorway: Doorway, clock: Clock, *, tick: Micros) -> None:
        self._core = core
        self._doorway = doorway
        self._clock = clock
        self._tick = tick
        self._ticked = Micros(0)
        self._inbox: deque[MakeEvent] = deque()
        self._posted: deque[Callable[[], None]] = deque()
        self._performers: Mapping[type, Performer] = {}
        self._helper: ThreadPoolExecutor | None = None
        self.idle: list[Callable[[], None]] = []
        self.every: list[Callable[[Micros], None]] = []
        self.held: Callable[[], bool] = lambda: False
        self.due: Callable[[Micros], Micros] = lambda _: tick
        self.over = False

    def performs(self, performers: Mapping[type, Performer]) -> None:
        self._performers = performers

    def tell(self, event: MakeEvent) -> None:
        """An event of this thread's own making, to be handled when what is in hand is done."""
        self._inbox.append(event)

    def post(self, action: Callable[[], None]) -> None:
        """Has something done by the loop's thread. From any thread."""
        self._posted.append(action)
        self._doorway.wake()

    def aside(self, work: Callable[[], Any], then: Callable[[Any], MakeEvent]) -> None:
        """Does something that takes long in another thread, one after the other, and tells of it what `then` says."""
        if self._helper is None:
            self._helper = ThreadPoolExecutor(1, thread_name_prefix="tidemill-aside")

        def run() -> None:
            try:
                event = then(work())
            except Exception as error:  # noqa: BLE001 - whatever a disk or a user's sink may raise ends the run
                event = broken(error)
            self.post(lambda: self.tell(event))

        self._helper.submit(run)

    def perform(self, performed: list[Effect]) -> None:
        for effect in performed:
            try:
                self._performers[type(effect)](effect)
            except Exception as error:  # noqa: BLE001 - a user's source or sink may raise anything; the run ends with it
                self.tell(broken(error))

    def handle(self, event: Any) -> None:
        self.perform(self._core.handle(event))

    def run(self) -> None:
        """Until `over`."""
        try:
            self._run()
        finally:
            if self._helper is not None:
                self._helper.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        handle, clock = self.handle, self._clock
        handle(events.Started(clock.now()))
        while not self.over:
            now = clock.now()
            if now - self._ticked >= self._tick or now < self._ticked:
                self._ticked = now
                for action in self.every:
                    action(now)
                handle(events.Ticked(now))
            for packet in self._doorway.receive():
                handle(events.Received(clock.now(), packet))
            while self._posted:
                self._posted.popleft()()
            self._work()

    def _work(self) -> None:
        """One turn, and what was told; or a wait, if there is neither."""
        for _ in range(len(self._inbox)):
            self.handle(self._inbox.popleft()(self._clock.now()))
        if self._core.busy and not self.held():
            self.handle(events.Turn(self._clock.now()))
        elif not self._inbox and not self._posted and not self.over:
            for action in self.idle:
                action()
            now = self._clock.now()
            to_tick = self._ticked + self._tick - now
            until = Micros(max(0, min(to_tick, self._due(now))))
            if not self._inbox:
                self._doorway.wait(until)

    def _due(self, now: Micros) -> Micros:
        try:
            return self.due(now)
        except Exception as error:  # noqa: BLE001 - as in `perform`: what is due may be a user's source
            self.tell(broken(error))
            return self._tick


def broken(error: Exception) -> MakeEvent:
    return lambda now: events.Broken(now, error)
