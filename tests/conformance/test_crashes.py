"""Crashes: at every effect and every moment of it, during recovery, of the coordinator in each of its phases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.trials import at, counted, kill, kill_coordinator, places, several, when
from tidemill.hosts.simulator.cluster import Crash
from tidemill.hosts.simulator.faults import REACH, CrashPoint, moments

EFFECTS = [
    pytest.param(role, effect, moment, id=f"{role} {moment} {effect}")
    for role, effects in REACH.items()
    for effect in effects
    for moment in moments(effect)
]


@pytest.mark.parametrize(("role", "effect", "moment"), EFFECTS)
def test_at_every_effect(lean_suite, role, effect, moment):
    base = lean_suite.base(role, effect)
    count = base.effects(lean_suite.workload, lean_suite.name)[role, effect]
    assert (count == 0) == lean_suite.idle(effect)
    for nth in places(count) if count else ():
        faults = replace(base.faults, crashes=(CrashPoint(role, effect, nth, moment),))
        verdict = lean_suite(base.plan, faults=faults)
        assert verdict.outcome.crashes == [Crash(role, effect, moment)]


@pytest.mark.parametrize("delay", [0, 200, 1_000, 5_000, 50_000])
@pytest.mark.parametrize("second", [1, 2], ids=["of its replacement", "of another"])
def test_during_recovery(lean_suite, second, delay):
    recovering = when(lambda s: s.counts["recovering"] and s.workers[second].alive, kill(second), delay)
    outcome = lean_suite(several(at(80_000, kill(1)), recovering)).outcome
    assert outcome.counts["killed"] == 2
    assert outcome.counts["recovering"] >= 1


def test_of_all_workers_at_once(suite):
    outcome = suite(at(100_000, lambda simulation: [kill(worker)(simulation) for worker in range(5)])).outcome
    assert outcome.counts["killed"] == 5


def test_of_all_workers_and_the_coordinator_at_once(suite):
    def everything(simulation):
        kill_coordinator(simulation)
        for worker in range(5):
            kill(worker)(simulation)

    assert suite(at(100_000, everything)).outcome.counts["killed"] == 6


@pytest.mark.parametrize("phase", ["claiming", "gathering", "running", "sealing", "committing", "over"])
def test_of_the_coordinator(suite, phase):
    outcome = suite(when(lambda s: s.coordinator.core.phase == phase, kill_coordinator)).outcome
    assert outcome.counts["killed"] == (phase != "over")  # then the run is over too


@pytest.mark.parametrize("delay", [0, 1_000, 20_000])
def test_of_the_coordinator_during_recovery(suite, delay):
    recovering = when(counted("recovering"), kill_coordinator, delay)
    outcome = suite(several(at(80_000, kill(1)), recovering)).outcome
    assert outcome.counts["killed"] == 2
    assert outcome.counts["claimed"] == 2


def test_of_one_coordinator_after_another(suite):
    crashes = [when(counted("claimed", times), kill_coordinator, 30_000) for times in (1, 2, 3)]
    assert suite(several(*crashes)).outcome.counts["claimed"] == 4


def test_of_a_worker_and_its_replacements(suite):
    def started(times):
        return lambda simulation: simulation.workers[1].peer.incarnation == times

    killed = 0
    for seed in (1, 2, 3):  # a run may be over before the replacement is there
        crashes = [when(started(times), kill(1), 40_000) for times in (1, 2)]
        killed += suite(several(*crashes), seed=seed).outcome.counts["killed"]
    assert killed >= 4
