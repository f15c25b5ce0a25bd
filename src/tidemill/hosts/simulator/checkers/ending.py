"""The end: the run comes to one, in time, and what it shows is what the workload's own model says."""

from __future__ import annotations

from typing import Any

from tidemill.hosts.simulator.checkers.checker import Checker
from tidemill.hosts.simulator.workloads import Oracle, Shown

SOON = 20.0
"""Virtual seconds in which a run must end once nothing new goes wrong: the longest silence and patience, and some."""


class Results(Checker):
    """Nothing is lost, nothing is there twice, all is in its order. A mechanism that promises nothing may give up."""

    name = "results"

    def __init__(self, oracle: Oracle, promise: str) -> None:
        super().__init__()
        self._oracle = oracle
        self._promises = promise != "nothing"

    def ended(self, outcome: Any) -> None:
        if outcome.error is not None:
            gave_up = outcome.error[0] == "RunError" and outcome.crashes + list(outcome.counts)
            if self._promises or not gave_up:
                self.complain("the run failed: " + ": ".join(outcome.error))
        elif outcome.finished:
            for complaint in self._oracle(shown(outcome)):
                self.complain(complaint)


class InTime(Checker):
    """Whatever went wrong, the run ends soon after it."""

    name = "ends in time"

    def ended(self, outcome: Any) -> None:
        waited = outcome.virtual_seconds - outcome.calm_after
        if not outcome.finished and outcome.error is None:
            self.complain(f"the run was stuck after {outcome.virtual_seconds:.1f} virtual seconds")
        elif waited > SOON:
            self.complain(f"the run ended {waited:.1f} virtual seconds after the last trouble was over")


def shown(outcome: Any) -> Shown:
    """What the sinks show, as plain rows."""
    return Shown(
        {
            sink.removeprefix("sink:"): [[row for batch in piece for row in batch.to_pylist()] for piece in pieces]
            for sink, pieces in outcome.pieces.items()
        }
    )
