"""What all mechanisms owe, whatever they promise: a quiet run is right, and a loss is never passed over in silence."""

from __future__ import annotations

import pytest

from tests.trials import at, good, kill, kill_coordinator
from tidemill.core.coordinator import decode_commit, decode_entry
from tidemill.core.ids import Micros
from tidemill.hosts.simulator.faults import Faults
from tidemill.hosts.simulator.trial import attempt
from tidemill.hosts.simulator.workloads import WORKLOADS
from tidemill.recovery.contract import EXACTLY_ONCE
from tidemill.recovery.nothing import Nothing


def test_a_quiet_run(any_suite):
    assert any_suite().outcome.finished


def test_messages_that_are_delayed(any_suite):
    def cut(simulation):
        simulation.cut(-1, 2, 1_000_000)
        simulation.cut(0, 1, 1_000_000)

    assert any_suite(at(50_000, cut)).outcome.finished


def test_a_loss(any_suite):
    outcome = any_suite(at(80_000, kill(2))).outcome
    assert outcome.counts["killed"] == 1
    promised = any_suite.mechanism.promise == EXACTLY_ONCE
    assert outcome.finished == promised
    assert (outcome.error is None) == promised


def test_the_loss_of_the_coordinator(any_suite):
    outcome = any_suite(at(80_000, kill_coordinator)).outcome
    assert outcome.counts["claimed"] == 2
    assert outcome.finished == (any_suite.mechanism.promise == EXACTLY_ONCE)


@pytest.mark.parametrize("seed", range(6))
def test_commits_on_the_way(seed):
    """What it never takes back it may show as it comes: all of it, and nothing twice."""
    delays = Faults(latency=5_000, loss=0.02, duplication=0.05, disk_latency=20_000)
    verdict = good(attempt(WORKLOADS["windows"], Nothing(Micros(10_000)), seed, faults=delays))
    commits = [entry for entry in map(decode_entry, verdict.outcome.disk.journal()) if entry.kind == "commit"]
    assert len(commits) > 1
    assert [decode_commit(entry.payload).final for entry in commits] == [False] * (len(commits) - 1) + [True]
