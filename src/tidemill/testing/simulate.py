"""The user's own pipeline on a simulated cluster that fails."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from tidemill.api.pipeline import Pipeline
from tidemill.core.bundle import times_of, without_times
from tidemill.core.graph import Graph, Key, Late, Node, Subscription
from tidemill.core.ids import NodeName
from tidemill.errors import RunError, UserCodeError
from tidemill.hosts.simulator.cluster import TOO_LONG, Outcome, Simulation
from tidemill.hosts.simulator.faults import Faults, swarm
from tidemill.recovery.contract import Mechanism
from tidemill.recovery.retrace import Retrace
from tidemill.recovery.rewind import Rewind
from tidemill.testing.inputs import Inputs, produced_streams, with_inputs
from tidemill.testing.stage import Row


@dataclass(frozen=True)
class Simulated:
    """How it ended. `outputs` holds what was committed, in no particular order across keys."""

    outputs: dict[str, list[Row]]
    seed: int
    recovery: str
    crashes: int
    events: int
    virtual_seconds: float
    story: list[str]

    def __str__(self) -> str:
        return "\n".join(self.story)


def simulate(
    pipeline: Pipeline,
    inputs: Inputs,
    *,
    seed: int,
    faults: Faults | Literal["swarm", "none"] = "swarm",
    workers: int = 5,
    splits: int = 3,
    delay: Any = None,
    recovery: Mechanism | None = None,
) -> Simulated:
    """Runs the pipeline over these rows on `workers` simulated workers, in virtual time, from one seed.

    By default the seed also chooses the faults: crashes, lost and reordered messages, pauses, slow and full disks,
    moved ranges. The same seed gives the same run. Without a `delay`, rows are read in the order of their event times
    and none is late. Compare the outputs with those of `replay`: if they differ, the
    pipeline depends on an order that nothing promises, or reads something that is not its input.
    """
    graph = _with_all_sinks(with_inputs(pipeline.graph(), inputs, splits=splits, delay=delay))
    chosen = recovery or (Rewind() if seed % 2 else Retrace())
    given = swarm(seed) if faults == "swarm" else Faults() if faults == "none" else faults
    outcome = Simulation(graph, chosen, seed=seed, workers=workers, faults=given).run()
    _check(outcome)
    return Simulated(
        {stream: _rows(outcome, stream) for stream in produced_streams(graph)},
        seed,
        chosen.name,
        len(outcome.crashes),
        outcome.events,
        outcome.virtual_seconds,
        outcome.story,
    )


def _with_all_sinks(graph: Graph) -> Graph:
    """A sink of its own for every stream that a computation produces; the pipeline's own sinks stay untouched."""
    nodes: dict[NodeName, Node] = {name: node for name, node in graph.nodes.items() if node.kind != "sink"}
    kept = tuple(s for s in graph.subscriptions if s.consumer in nodes)
    added = []
    for stream in produced_streams(graph):
        name = _sink_name(stream)
        nodes[name] = Node(name, "sink")
        added.append(Subscription(stream, name, Key(), Late("process")))
    return replace(graph, nodes=nodes, subscriptions=(*kept, *added))


def _sink_name(stream: str) -> NodeName:
    return NodeName(f"outputs of {stream}")


def _rows(outcome: Outcome, stream: str) -> list[Row]:
    return [
        Row(columns, at)
        for batch in outcome.committed[_sink_name(stream)]
        for columns, at in zip(without_times(batch).to_pylist(), times_of(batch).tolist(), strict=True)
    ]


def _check(outcome: Outcome) -> None:
    again = f"Replay it with seed={outcome.seed}."
    if outcome.error is not None:
        kind, message = outcome.error
        raise (UserCodeError if kind == "UserCodeError" else RunError)(f"{message}. {again}")
    if not outcome.finished:
        last = "\n".join(outcome.story[-20:])
        raise RunError(
            f"the run did not end within {TOO_LONG / 1e6:.0f} virtual seconds. {again} It last said:\n{last}"
        )
