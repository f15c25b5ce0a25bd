"""Checkers: independent judges of a simulated run, one for each thing that is promised."""

from __future__ import annotations

from typing import Any

from tidemill.hosts.simulator.checkers.checker import Checker
from tidemill.hosts.simulator.checkers.ending import InTime, Results, shown
from tidemill.hosts.simulator.checkers.memory import BoundedMemory
from tidemill.hosts.simulator.checkers.owners import OneCoordinator, OneOwner, OneWriter, WholeCommit
from tidemill.hosts.simulator.checkers.time import MarksKept, MarksRise, NobodyLate
from tidemill.hosts.simulator.watching import Watch
from tidemill.hosts.simulator.workloads import Oracle

__all__ = ["Checker", "Judges", "judges", "shown"]


class Judges(Watch):
    """All of them as one watcher."""

    def __init__(self, checkers: list[Checker]) -> None:
        self.checkers = checkers
        # Most care for few of the things that happen, and a run is made of tens of thousands.
        self._of_packets = [c.sent for c in checkers if type(c).sent is not Watch.sent]
        self._of_events = [c.handled for c in checkers if type(c).handled is not Watch.handled]

    def sent(self, packet: Any) -> None:
        if packet.message is not None:
            for sent in self._of_packets:
                sent(packet)

    def handled(self, process: Any) -> None:
        for handled in self._of_events:
            handled(process)

    def ended(self, outcome: Any) -> None:
        for checker in self.checkers:
            checker.ended(outcome)


def judges(oracle: Oracle, promise: str, *, late: bool) -> Judges:
    """Those that judge a run. Where records are late on purpose, two have nothing to say."""
    checkers: list[Checker] = [
        Results(oracle, promise),
        InTime(),
        OneOwner(),
        OneWriter(),
        OneCoordinator(),
        WholeCommit(),
        MarksRise(),
        BoundedMemory(),
    ]
    return Judges(checkers if late else [*checkers, MarksKept(), NobodyLate()])
