"""One suite for all mechanisms that streams may choose. A mechanism is left out of a test by its promise only."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.trials import EXACT, IDLE, Base, base_with, good
from tidemill.hosts.simulator.faults import Faults
from tidemill.hosts.simulator.trial import MECHANISMS, Plan, Verdict, attempt
from tidemill.hosts.simulator.workloads import WORKLOADS
from tidemill.recovery.contract import Mechanism

SUITE = ("windows", "cyclic")
"""State, time and cycles: what a mechanism can break. The seeds of tests/simulation try it with all workloads."""


@dataclass(frozen=True)
class Suite:
    """A mechanism with a workload, ready to be put through something."""

    mechanism: Mechanism
    name: str
    workload: str

    def __call__(self, plan: Plan | None = None, *, faults: Faults | None = None, seed: int = 1) -> Verdict:
        given = faults or Faults()
        return good(attempt(WORKLOADS[self.workload], self.mechanism, seed, faults=given, plan=plan))

    def base(self, role: str, effect: str) -> Base:
        return base_with(self.workload, self.name, role, effect)

    def idle(self, effect: str) -> bool:
        return effect in IDLE[self.name]


@pytest.fixture(params=MECHANISMS)
def any_suite(request):
    return Suite(MECHANISMS[request.param], request.param, "counting")


@pytest.fixture(params=EXACT)
def lean_suite(request):
    """The same with one workload, where there is much to try."""
    return Suite(MECHANISMS[request.param], request.param, "cyclic")


@pytest.fixture(params=[(name, workload) for name in EXACT for workload in SUITE], ids="-".join)
def suite(request):
    """Of those that promise exactly once."""
    name, workload = request.param
    return Suite(MECHANISMS[name], name, workload)
