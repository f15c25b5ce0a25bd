"""Every effect that a process can die of has been died of, before it, after it and in the middle: no cell is empty.

Each cell has a run with this one fault (two more where an effect has to be provoked first). The workloads take turns.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle

import pytest

from tests.trials import EXACT, IDLE, base_with, good
from tidemill.hosts.simulator.cluster import Crash
from tidemill.hosts.simulator.faults import REACH, CrashPoint, moments
from tidemill.hosts.simulator.trial import MECHANISMS, attempt
from tidemill.hosts.simulator.workloads import WORKLOADS


@pytest.mark.parametrize("mechanism", EXACT)
def test_matrix(mechanism):
    workloads = cycle(WORKLOADS)
    filled = set()
    for role, effects in REACH.items():
        for effect in effects:
            for moment in moments(effect):
                crash = _crash(next(workloads), mechanism, role, effect, moment)
                filled |= {crash} if crash else set()
    wanted = {
        Crash(role, effect, moment)
        for role, effects in REACH.items()
        for effect in effects
        for moment in moments(effect)
        if effect not in IDLE[mechanism]
    }
    assert filled == wanted


def _crash(workload, mechanism, role, effect, moment):
    """Lets a process die so, if it ever comes to it: not in all workloads, but always in the cyclic one."""
    for name in (workload, "cyclic"):
        base = base_with(name, mechanism, role, effect)
        count = base.effects(name, mechanism)[role, effect]
        if count:
            faults = replace(base.faults, crashes=(CrashPoint(role, effect, (count + 1) // 2, moment),))
            verdict = attempt(WORKLOADS[name], MECHANISMS[mechanism], 1, faults=faults, plan=base.plan)
            assert good(verdict).outcome.crashes == [Crash(role, effect, moment)]
            return verdict.outcome.crashes[0]
    return None
