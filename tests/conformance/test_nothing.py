"""What all mechanisms owe, whatever they promise: a quiet run is right, and a loss is never passed over in silence."""

from __future__ import annotations

from tests.trials import at, kill, kill_coordinator
from tidemill.recovery.contract import EXACTLY_ONCE


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
