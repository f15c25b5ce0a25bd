"""Which workers there are, and which are thought dead.

Only the newest incarnation of a worker is a member. One that was given up stays given up: it may wake and speak, but it
is told that it is outdated. Suspicion by silence is the slower judgement; it is forgiven as a whole when the one who
suspects was away itself.
"""

from __future__ import annotations

from tidemill.core.ids import Incarnation, Micros, Peer, WorkerId

AWAY = Micros(2_000_000)
"""A gap between two ticks after which the coordinator doubts itself before it doubts others."""


class Members:
    def __init__(self, expected: int, patience: Micros, silence: Micros) -> None:
        self._expected = expected
        self._patience = patience
        self._silence = silence
        self._newest: dict[WorkerId, Incarnation] = {}
        self._heard: dict[Peer, Micros] = {}
        self._gone: dict[Peer, None] = {}
        self._short_since: Micros | None = None
        self._ticked = Micros(0)

    def alive(self) -> list[Peer]:
        return sorted(self._heard)

    def gone(self) -> list[Peer]:
        """All that were ever given up."""
        return list(self._gone)

    @property
    def complete(self) -> bool:
        return len(self._heard) >= self._expected

    def is_member(self, peer: Peer) -> bool:
        return peer in self._heard

    def gave_up(self, peer: Peer) -> bool:
        """Whether this incarnation was lost, or replaced by a newer one."""
        newest = self._newest.get(peer.worker, 0)
        return peer.incarnation < newest or (peer.incarnation == newest and peer not in self._heard)

    def join(self, peer: Peer, now: Micros) -> Peer | None:
        """A new member; gives back the older incarnation that it replaces, if that was one."""
        previous = next((known for known in self._heard if known.worker == peer.worker), None)
        self._newest[peer.worker] = peer.incarnation
        self._heard[peer] = now
        if self._short_since is None:
            self._short_since = now
        return previous if previous != peer else None

    def heard(self, peer: Peer, now: Micros) -> None:
        if peer in self._heard:
            self._heard[peer] = now

    def lose(self, peer: Peer, now: Micros) -> None:
        self._heard.pop(peer, None)
        self._newest[peer.worker] = max(self._newest.get(peer.worker, peer.incarnation), peer.incarnation)
        self._gone[peer] = None
        self._short_since = now

    def tick(self, now: Micros) -> list[Peer]:
        """Who has been silent for too long."""
        away = now - self._ticked >= AWAY or now < self._ticked
        self._ticked = now
        if away:
            self._heard = dict.fromkeys(self._heard, now)
            return []
        return [peer for peer, heard in self._heard.items() if now - heard >= self._silence]

    def worth_recovering(self, now: Micros) -> bool:
        """Whether to go on with those who are here: all of them, or those after waiting long enough for the rest.

        Without any patience nobody is waited for, not even the first.
        """
        return self.complete or not self._patience or self.waited(now, self._patience)

    def waited(self, now: Micros, patience: Micros) -> bool:
        """Whether somebody is here, and the rest were waited for so long."""
        return bool(self._heard) and self._short_since is not None and now - self._short_since >= patience
