"""Ranges that move, split and merge while records flow, alone and while something else goes wrong."""

from __future__ import annotations

from typing import Any

import pytest

from tests.trials import at, counted, kill, kill_coordinator, several, when
from tidemill.hosts.simulator.workloads import WORKLOADS

MOMENTS = (30_000, 120_000, 180_000)


def routes(simulation, kind):
    graph = simulation.graph
    found = simulation.coordinator.core.ownership.routing.all()
    return [route for route in found if kind in ("any", graph.nodes[route.node].kind)]


def change(kind, place=0, of="computation") -> Any:
    """Asks for it, and remembers of which shard under which epoch."""
    asked: list[Any] = []

    def act(simulation: Any) -> None:
        known = routes(simulation, of)
        route = known[place % len(known)]
        owner = route.owner.worker if route.owner else 0
        to = None if kind != "move" else (owner + 1) % simulation.plan.workers
        asked[:] = simulation, route
        simulation.reroute(kind, route.shard, to)

    act.asked = asked  # type: ignore[attr-defined]
    return act


@pytest.mark.parametrize("moment", MOMENTS, ids="{:_}".format)
@pytest.mark.parametrize("of", ["source", "computation", "sink"])
def test_a_move(suite, of, moment):
    act = change("move", 1, of)
    outcome = suite(at(moment, act)).outcome
    assert outcome.counts["rerouting"] == 1
    simulation, route = act.asked
    assert simulation.coordinator.core.ownership.routing[route.shard].epoch > route.epoch


@pytest.mark.parametrize("moment", MOMENTS, ids="{:_}".format)
@pytest.mark.parametrize("kind", ["split", "merge"])
def test_a_split_or_a_merge(suite, kind, moment):
    outcome = suite(at(moment, change(kind))).outcome
    assert outcome.counts["rerouting"] + outcome.counts["refused"] == 1
    assert outcome.counts["superseded"] == outcome.counts["rerouting"]


@pytest.mark.parametrize("kind", ["move", "split", "merge"])
def test_of_every_computation(suite, kind):
    count = len(WORKLOADS[suite.workload].build(1)[0].graph().of_kind("computation"))
    shards = WORKLOADS[suite.workload].shards or 5
    for place in range(count):
        outcome = suite(at(100_000, change(kind, place * shards))).outcome
        assert outcome.counts["rerouting"] + outcome.counts["refused"] == 1


def test_one_after_another(suite):
    """Halves are split again, and all is merged in the end."""
    kinds = ("split", "split", "merge", "move", "merge", "split", "merge", "merge")
    plans = [at(30_000 + 25_000 * n, change(kind, n)) for n, kind in enumerate(kinds)]
    outcome = suite(several(*plans)).outcome
    assert outcome.counts["rerouting"] >= 3


@pytest.mark.parametrize("delay", [0, 1_000, 10_000])
@pytest.mark.parametrize("kind", ["move", "split", "merge"])
@pytest.mark.parametrize("who", [0, 1, -1], ids=["owner", "next", "coordinator"])
def test_while_somebody_dies(lean_suite, kind, who, delay):
    die = kill_coordinator if who < 0 else kill(who)
    asked = when(lambda simulation: simulation.counts["rerouting"] + simulation.counts["refused"], die, delay)
    outcome = lean_suite(several(at(100_000, change(kind)), asked)).outcome
    assert outcome.counts["killed"] == 1
    assert outcome.counts["rerouting"] + outcome.counts["refused"] >= 1


def test_just_after_a_loss(suite):
    for delay in (0, 300, 1_000, 3_000):
        recovering = [when(counted("recovering"), change(kind, 1), delay) for kind in ("merge", "split", "move")]
        outcome = suite(several(at(80_000, kill(1)), *recovering)).outcome
        assert outcome.counts["rerouting"] + outcome.counts["refused"] >= 3
