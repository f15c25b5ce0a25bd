"""Each workload under each mechanism that promises exactly once, from a fixed set of seeds that choose the faults.

A seed that fails here is replayed, with its story, by `tidemill simulate --seed N --workload NAME --recovery NAME`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from tests.trials import EXACT, good
from tidemill.hosts.simulator.checkers import shown
from tidemill.hosts.simulator.faults import swarm
from tidemill.hosts.simulator.trial import MECHANISMS, attempt
from tidemill.hosts.simulator.workloads import WORKLOADS

SEEDS = range(10)
"""For each workload ten of its own: the seed alone chooses the faults."""

HAPPEN = {
    "lost",
    "recovering",
    "paused",
    "cut",
    "disk full",
    "second coordinator",
    "rerouting",
    "superseded",
    "packets lost",
    "packets repeated",
    "packets overtaken",
    "second worker",
    "exit outdated",
    "writes that found the disk full",
}
"""What a few seeds of all workloads together must have been through."""


@cache
def campaign(workload, mechanism):
    """What happened how often over all seeds, each of them good."""
    counts: Counter[str] = Counter()
    first = 100 * list(WORKLOADS).index(workload)
    for seed in (first + n for n in SEEDS):
        outcome = good(attempt(WORKLOADS[workload], MECHANISMS[mechanism], seed)).outcome
        assert outcome.events >= 2_000
        counts += outcome.counts + Counter(crashed=bool(outcome.crashes))
    return counts


@pytest.mark.parametrize("mechanism", EXACT)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_seeds(workload, mechanism):
    assert campaign(workload, mechanism)["crashed"] >= 0.9 * len(SEEDS)


@pytest.mark.parametrize("mechanism", EXACT)
def test_what_was_planned_happened(mechanism):
    counts = sum((campaign(workload, mechanism) for workload in WORKLOADS), Counter[str]())
    assert HAPPEN - counts.keys() == set()


@pytest.mark.parametrize("workload", WORKLOADS)
def test_without_recovery_a_quiet_run_is_right(workload):
    quiet = replace(swarm(0), crashes=(), cuts=0, pauses=0, reroutings=0, second_coordinators=0)
    verdict = good(attempt(WORKLOADS[workload], MECHANISMS["none"], 1, faults=quiet))
    assert verdict.outcome.finished


@pytest.mark.parametrize("workload", WORKLOADS)
def test_bytes_on_the_wire_change_nothing(workload):
    for seed in (1, 2):
        faults = swarm(seed)
        rows = []
        for wire in (False, True):
            chosen = replace(faults, wire=wire)
            verdict = good(attempt(WORKLOADS[workload], MECHANISMS["retrace"], seed, faults=chosen))
            rows.append({sink: shown(verdict.outcome).pieces(sink[5:]) for sink in verdict.outcome.pieces})
        assert rows[0] == rows[1]
