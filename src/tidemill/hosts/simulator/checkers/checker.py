"""A checker: watches one run for one kind of broken promise, and says in sentences what it saw.

Checkers share no code with what they check. They import nothing of the core: they know messages by their names and
attributes, write their own constants down, and count for themselves. A test holds them to it, and another feeds each of
them a history that must make it speak.
"""

from __future__ import annotations

from typing import Any, Final

from tidemill.hosts.simulator.watching import Watch

BEGINNING: Final = -(2**63)
COORDINATOR: Final = -1

MOST: Final = 5
"""How many complaints of one checker are worth reading."""


class Checker(Watch):
    name: str
    """What is promised, in two or three words."""

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self.more = 0  # complaints beyond those

    def complain(self, what: str) -> None:
        if len(self.complaints) < MOST:
            self.complaints.append(what)
        else:
            self.more += 1

    def ended(self, outcome: Any) -> None:
        """The run is over, or stuck."""


class Links:
    """Tells messages that are new on a link from those that are sent again."""

    def __init__(self) -> None:
        self._newest: dict[tuple[Any, Any], int] = {}

    def new(self, packet: Any) -> bool:
        link = packet.sender, packet.to
        if packet.message is None or packet.number <= self._newest.get(link, 0):
            return False
        self._newest[link] = packet.number
        return True


def kind(message: Any) -> str:
    return type(message).__name__
