"""Messages that come twice, late or in another order; processes that stand still; disks that are full or torn."""

from __future__ import annotations

import pytest

from tests.trials import at, counted, kill, pause, several, when
from tidemill.hosts.simulator.faults import CrashPoint, Faults

MESSAGES = {
    "repeated": (Faults(duplication=0.5), "packets repeated"),
    "overtaken": (Faults(latency=5_000), "packets overtaken"),
    "lost": (Faults(loss=0.1), "packets lost"),
    "all of it": (Faults(duplication=0.3, latency=3_000, loss=0.1), "packets lost"),
}


@pytest.mark.parametrize(("faults", "what"), MESSAGES.values(), ids=MESSAGES)
def test_messages(suite, faults, what):
    assert suite(faults=faults).outcome.counts[what] > 20
    assert suite(at(80_000, kill(3)), faults=faults).outcome.counts[what] > 20


@pytest.mark.parametrize("pair", [(0, 1), (-1, 2), (1, 2)], ids=str)
def test_a_connection_is_lost(suite, pair):
    outcome = suite(at(50_000, lambda simulation: simulation.cut(*pair, 3_000_000))).outcome
    assert outcome.counts["packets lost"] > 0


@pytest.mark.parametrize("length", [100_000, 2_500_000, 12_000_000, 30_000_000], ids="{:_}".format)
@pytest.mark.parametrize("who", [-1, 0, 3], ids=["coordinator", "worker0", "worker3"])
def test_a_process_stands_still(lean_suite, who, length):
    outcome = lean_suite(at(60_000, pause(who, length))).outcome
    assert outcome.counts["paused"] == 1
    if who >= 0 and length > 10_000_000:
        assert outcome.counts["lost"] == 1


def test_all_stand_still(suite):
    outcome = suite(several(*(at(60_000, pause(who, 30_000_000)) for who in range(-1, 5)))).outcome
    assert outcome.counts["paused"] == 6


def test_one_that_was_given_up_wakes_up(suite):
    outcome = suite(at(60_000, pause(2, 12_000_000))).outcome
    assert outcome.counts["exit outdated"] == 1
    assert outcome.virtual_seconds > 10


def test_a_second_process_for_a_worker(suite):
    outcome = suite(at(60_000, lambda simulation: simulation.double(1))).outcome
    assert outcome.counts["second worker"] == 1
    assert outcome.counts["exit outdated"] == 1


@pytest.mark.parametrize("moment", [3_000, 30_000, 100_000, 190_000], ids="{:_}".format)
def test_a_second_coordinator(suite, moment):
    outcome = suite(at(moment, lambda simulation: simulation.doubt_coordinator())).outcome
    assert outcome.counts["second coordinator"] == 1
    assert outcome.counts["claimed"] == 2


def test_a_second_coordinator_during_recovery(suite):
    recovering = when(counted("recovering"), lambda s: s.doubt_coordinator(), 100)
    outcome = suite(several(at(80_000, kill(1)), recovering)).outcome
    assert outcome.counts["second coordinator"] == 1


def test_the_disk_is_full(suite):
    full = [at(moment, lambda simulation: simulation.fill_disk()) for moment in (1_000, 150_000)]
    outcome = suite(several(*full)).outcome
    assert outcome.counts["writes that found the disk full"] > 0


def test_the_disk_is_full_when_a_worker_dies(suite):
    outcome = suite(several(at(50_000, lambda s: s.fill_disk()), at(60_000, kill(0)))).outcome
    assert outcome.counts["killed"] == outcome.counts["disk full"] == 1


def test_torn_writes_are_found_and_stepped_over(suite):
    found = 0
    for seed in range(1, 7):
        points = [CrashPoint("coordinator", "Journal", 1, "torn")]
        if not suite.idle("Append"):
            points += [CrashPoint("worker", "Append", nth, "torn") for nth in (40, 90, 150)]
        counts = suite(faults=Faults(crashes=tuple(points)), seed=seed).outcome.counts
        found += counts["torn journals found"] + counts["torn logs found"]
    assert found >= (3 if suite.idle("Append") else 6)
