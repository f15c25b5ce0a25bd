"""Whoever watches a simulation sees everything and changes nothing."""

from __future__ import annotations

from typing import Any


class Watch:
    """Told of what happens, as it happens, by `Simulation(watch=...)`. Overrides what it wants to know."""

    def sent(self, packet: Any) -> None:
        """A process put a packet on its way: also one that will be lost, and one that was sent before."""

    def handled(self, process: Any) -> None:
        """A process has handled an event and done all that followed from it, or died of it."""
