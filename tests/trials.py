"""What tests of whole runs share: plans for a simulation that has not started, and a failure that tells its story."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

from tidemill.core.ids import WorkerId
from tidemill.hosts.simulator.cluster import Simulation
from tidemill.hosts.simulator.faults import Faults
from tidemill.hosts.simulator.story import story
from tidemill.hosts.simulator.trial import MECHANISMS, Plan, Verdict, attempt
from tidemill.hosts.simulator.workloads import WORKLOADS
from tidemill.recovery.contract import EXACTLY_ONCE

Act = Callable[[Any], Any]

EXACT: Final = [name for name, mechanism in MECHANISMS.items() if mechanism.promise == EXACTLY_ONCE]

IDLE: Final[dict[str, frozenset[str]]] = {
    "rewind": frozenset({"Append", "OpenLog"}),
    "none": frozenset({"Append", "OpenLog"}),
    "retrace": frozenset(),
}
"""The effects that a mechanism never asks for, so that nobody can die of them."""


def good(verdict: Verdict) -> Verdict:
    assert verdict.good, f"\n{story(verdict)}"
    return verdict


LOOK_EVERY: Final = 20
"""Virtual microseconds: a quick disk leaves a coordinator committing for less than a hundred."""


def at(moment: int, act: Act) -> Plan:
    """After so many virtual microseconds."""

    def plan(simulation: Simulation) -> None:
        simulation.world.after(moment, partial(act, simulation))

    return plan


def when(condition: Act, act: Act, delay: int = 0) -> Plan:
    """As soon as something is so, or a little later."""

    def plan(simulation: Simulation) -> None:
        def look() -> None:
            if condition(simulation):
                simulation.world.after(delay, partial(act, simulation))
            else:
                simulation.world.after(LOOK_EVERY, look)

        simulation.world.after(0, look)

    return plan


def counted(what: str, times: int = 1) -> Act:
    """Whether something has happened so often."""
    return lambda simulation: simulation.counts[what] >= times


def several(*plans: Plan) -> Plan:
    def plan(simulation: Simulation) -> None:
        for one in plans:
            one(simulation)

    return plan


def kill(worker: int) -> Act:
    return lambda simulation: simulation.kill(_workers(simulation)[worker])


def kill_coordinator(simulation: Simulation) -> None:
    assert simulation.coordinator is not None
    simulation.kill(simulation.coordinator)


def pause(worker: int, length: int) -> Act:
    """Worker -1 is the coordinator."""

    def act(simulation: Simulation) -> None:
        process = simulation.coordinator if worker < 0 else _workers(simulation)[worker]
        assert process is not None
        simulation.pause(process, length)

    return act


def _workers(simulation: Simulation):
    return [simulation.workers[place] for place in sorted(simulation.workers)]


def move_all(simulation: Simulation) -> None:
    """Asks for every shard of every computation to be moved, one after another."""
    assert simulation.coordinator is not None
    routes = simulation.coordinator.core.ownership.routing.all()
    moving = [route.shard for route in routes if simulation.graph.nodes[route.node].kind == "computation"]
    for turn, shard in enumerate(moving):
        to = WorkerId(turn % simulation.plan.workers)
        simulation.world.after(turn * 5_000, partial(simulation.reroute, "move", shard, to))


@dataclass(frozen=True)
class Base:
    """A run without the fault that a test is about: what can be planned is what happens here."""

    faults: Faults
    plan: Plan | None = None

    def effects(self, workload: str, mechanism: str) -> Counter[tuple[str, str]]:
        """How often each effect occurs in it."""
        return _effects(self, workload, mechanism)


@cache
def _effects(base: Base, workload: str, mechanism: str) -> Counter[tuple[str, str]]:
    return good(
        attempt(WORKLOADS[workload], MECHANISMS[mechanism], 1, faults=base.faults, plan=base.plan)
    ).outcome.effects


QUIET: Final = Base(Faults())

RESTLESS: Final = Base(
    Faults(window=32), several(at(25_000, move_all), at(90_000, pause(1, 12_000_000)), at(100_000, kill(2)))
)
"""A run in which every effect occurs: there is little room, one worker dies, another is given up, and learns of it."""


def base_with(workload: str, mechanism: str, role: str, effect: str) -> Base:
    """The quieter one in which the effect occurs."""
    return QUIET if QUIET.effects(workload, mechanism)[role, effect] else RESTLESS


def places(count: int) -> Iterator[int]:
    """One early, one in the middle, and the last."""
    yield from dict.fromkeys(((count + 3) // 4, (count + 1) // 2, count))
