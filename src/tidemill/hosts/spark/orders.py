"""What a run's processes are started with: made once by the driver, as plain values that can be sent.

The workers' orders hold the user's code and travel in Spark's own closure. The coordinator's hold the pipeline without
it: it routes, judges and commits, and never runs a computation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tidemill.core.coordinator import Plan
from tidemill.core.graph import Graph, Key, Late, Subscription
from tidemill.core.ids import Incarnation, Peer, WorkerId
from tidemill.core.limits import Limits
from tidemill.hosts.spark.secrets import Secrets
from tidemill.ports import Gathering
from tidemill.recovery.contract import Mechanism

ATTEMPTS: Final = 1_000
"""Of one submission of a worker's job, at most: the rest of an incarnation is the submission."""


def incarnation(submission: int, attempt: int) -> Incarnation:
    """Rises with every submission of the driver, and within one with every attempt that Spark makes."""
    return Incarnation(submission * ATTEMPTS + attempt + 1)


def submission_of(peer: Peer) -> int:
    return (peer.incarnation - 1) // ATTEMPTS


@dataclass(frozen=True)
class Orders:
    """For a worker."""

    graph: Graph
    mechanism: Mechanism
    limits: Limits
    plan_seed: int
    secrets: Secrets
    coordinator: str  # where it listens
    lifeline: tuple[str, int]

    def me(self, place: int, submission: int, attempt: int) -> Peer:
        return Peer(WorkerId(place), incarnation(submission, attempt))


@dataclass(frozen=True)
class CoordinatorOrders:
    graph: Graph
    mechanism: Mechanism
    plan: Plan
    secrets: Secrets
    host: str
    door: int  # the descriptor that it listens on
    lifelines: int  # the same for lifelines
    generation: int  # how many coordinators this run has had
    started: int  # when the run began, in microseconds since the epoch
    journal: str | None  # the file that tells what happened


@dataclass(frozen=True)
class Gathered:
    """Stands on a worker for a sink whose place is in the driver's memory."""


def for_workers(graph: Graph) -> Graph:
    """Without the driver's own objects."""
    nodes = {
        name: replace(node, handle=Gathered()) if isinstance(node.handle, Gathering) else node
        for name, node in graph.nodes.items()
    }
    return Graph(graph.name, graph.streams, nodes, graph.subscriptions)


def for_coordinator(graph: Graph) -> Graph:
    """Without any of the user's code but the sinks that it commits to."""
    nodes = {
        name: replace(node, make=None, ports=(), state=None, handle=node.handle if node.kind == "sink" else None)
        for name, node in for_workers(graph).nodes.items()
    }
    subscriptions = tuple(
        Subscription(s.stream, s.consumer, _key_without_code(s.key), Late()) for s in graph.subscriptions
    )
    return Graph(graph.name, graph.streams, nodes, subscriptions)


def _key_without_code(key: Key) -> Key:
    """Whether there is one is all that matters to the coordinator."""
    return Key(key.columns or ("by function",)) if key.columns or key.function is not None else Key()
