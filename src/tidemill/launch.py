"""`tm.run`: checks everything that can be checked, puts a run together, and gives it back while it goes on.

What a run needs of the driver is settled here, in an order that leaves nothing behind if a step fails, and the cheapest
first: the pipeline, and whether it can be sent; the folder and the port; then the session and its slots; then the
processes.
"""

from __future__ import annotations

import contextlib
import secrets as entropy
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tidemill.api.durations import duration
from tidemill.api.pipeline import Pipeline
from tidemill.api.settling import settled
from tidemill.core.coordinator import Plan
from tidemill.core.graph import Graph
from tidemill.core.ids import Micros
from tidemill.core.limits import Limits
from tidemill.errors import PipelineError, RunError, StorageError
from tidemill.hosts.spark import attendance, datasource, feeding, initial, session, slots, tables
from tidemill.hosts.spark.jobs import Jobs
from tidemill.hosts.spark.orders import CoordinatorOrders, Orders, for_coordinator, for_workers
from tidemill.hosts.spark.run import Run, Watcher, Watchers
from tidemill.hosts.spark.secrets import Secrets, new_secrets
from tidemill.observe.journal import JOURNAL
from tidemill.ports import Expecting, Gathering
from tidemill.recovery.contract import NOTHING, Mechanism
from tidemill.recovery.nothing import Nothing
from tidemill.storage.folder import held

NEVER: Final = Micros(2**62)
HANGS_AFTER: Final = Micros(60_000_000)
"""A worker that is alive and says nothing for so long is taken for one that hangs."""

PATIENCE: Final = Micros(10_000_000)
"""So long a lost worker's replacement is waited for, before the others take over what it had."""


def run(  # noqa: PLR0913 - each is a choice of the user's, by name
    pipeline: Pipeline,
    spark: Any = None,
    *,
    workers: int = 2,
    recovery: Mechanism | None = None,
    initial_state: Mapping[str, Any] | None = None,
    storage: str | Path | None = None,
    master: str | None = None,
    max_skew: Any = None,
    metrics_port: int | None = None,
    display: bool = True,
    commit_every: Any = "1s",
    start_within: Any = "60s",
    seed: int = 0,
) -> Run:
    """Runs the pipeline live on Spark and gives back the run, which goes on in the background.

    `initial_state` gives computations the state that they begin with: what `pipeline.state_dataframe` gave, by name.
    With no session given the active one is taken, or a local one is made (`master` says which) and closed with the run.
    `storage` is a folder for what outlives the processes: the journal that `tidemill inspect` reads. `max_skew` pauses
    a source that is so far ahead of the slowest one. `display` shows the run's progress on standard error: live on a
    terminal, a quiet line now and then elsewhere. `metrics_port` serves Prometheus. `commit_every` is how often sinks
    with commits show what has come to them, where no recovery decides it. `seed` is what `ctx.random` follows from.
    """
    if type(workers) is not int or workers < 1:
        raise PipelineError(f"workers={workers!r}: a run needs at least one worker.")
    patience = duration(start_within, "start_within") / 1e6
    limits = Limits(max_skew=None if max_skew is None else duration(max_skew, "max_skew"))
    graph = pipeline.graph()
    mechanism = recovery or Nothing(_commit_every(graph, duration(commit_every, "commit_every")))
    session.check_pyspark()
    _check_sendable(graph)
    with contextlib.ExitStack() as undo:
        journal = _journal(storage, undo)
        graph, feeds = feeding.housed(graph, storage)
        watchers = _watchers(metrics_port, display=display, undo=undo)
        spark = _session(spark, master, workers, pipeline.name, undo)
        slots.check_slots(spark, workers)
        datasource.know(feeds)
        datasource.register(spark)
        graph = tables.evaluated(graph, spark, workers, storage, undo)
        graph = _beginning_with(_prepared(graph), initial_state or {}, storage, spark, undo)
        keys, host = new_secrets(), session.driver_host(spark)
        attending = attendance.Attendance(host, keys)
        undo.callback(attending.close, grace=0.0)
        orders = Orders(for_workers(graph), mechanism, limits, seed, keys, attending.address, attending.lifeline)
        shipped = attendance.pickled(orders)
        made = Run(pipeline.name, graph, workers, attending, watchers)
        command = _command(graph, mechanism, _plan(graph, workers, mechanism), keys, host, journal)
        attending.start(command, attendance.pickled, hear=made.hear, died=made.died)
        jobs = Jobs(spark, pipeline.name, entropy.token_hex(4), shipped, hopeless=made.hopeless)
        made.attend(jobs, undo.pop_all().close)
    try:
        jobs.start(workers)
        made.started(patience)
    except BaseException:  # Ctrl-C, say: nobody has the run in hand
        made.abandon()
        raise
    return made


def _commit_every(graph: Graph, every: Micros) -> Micros | None:
    """A sink that is only a place in this program is given rows as they come."""
    return every if any(not isinstance(node.handle, Gathering) for node in graph.of_kind("sink")) else None


def _beginning_with(
    graph: Graph, states: Mapping[str, Any], storage: str | Path | None, spark: Any, undo: contextlib.ExitStack
) -> Graph:
    """The initial state goes through files that the workers reach: under the storage, or for this machine alone."""

    def folder() -> Path:
        if storage is not None:
            return Path(storage).absolute() / "initial-state"
        if not session.is_local(spark):
            raise StorageError(
                "initial_state goes through files that all workers reach; give the run storage=, a folder that they do."
            )
        return Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="tidemill-")))

    return initial.beginning_with(graph, states, folder)


def _prepared(graph: Graph) -> Graph:
    """Sources are settled, and sinks hear what is to come."""
    nodes = dict(settled(graph, Micros(time.time_ns() // 1_000)).nodes)
    run = entropy.token_hex(4)
    for subscription in graph.subscriptions:
        node = nodes[subscription.consumer]
        if isinstance(node.handle, Expecting):
            handle = node.handle.expecting(graph.streams[subscription.stream].schema, run)
            nodes[node.name] = replace(node, handle=handle)
    return Graph(graph.name, graph.streams, nodes, graph.subscriptions)


def _session(given: Any, master: str | None, workers: int, name: str, undo: contextlib.ExitStack) -> Any:
    if given is not None and master is not None:
        raise PipelineError(f"spark= and master={master!r} were both given; a session has its master already.")
    if given is not None:
        return given
    active = session.active_session()
    if active is not None:
        there = active.conf.get("spark.master", "of another kind")
        if master not in (None, there):
            raise RunError(
                f"master={master!r} was given, and this program has a Spark session already, with master {there!r}. "
                "Leave master= out to use it, or stop it first."
            )
        return active
    chosen = master or f"local[{workers}]"
    slots.check_master(chosen, workers)
    made = session.new_session(chosen, f"tidemill {name}")
    undo.callback(made.close)
    return made.session


def _journal(storage: str | Path | None, undo: contextlib.ExitStack) -> str | None:
    """The file that tells what happened, in a folder that nobody else uses while the run lasts."""
    if storage is None:
        return None
    undo.enter_context(held(Path(storage)))
    return str(Path(storage) / JOURNAL)


def _watchers(metrics_port: int | None, *, display: bool, undo: contextlib.ExitStack) -> Watchers:
    """What is not wanted is not imported either."""
    show: list[Watcher] = []
    say: Callable[[str], None] = _unheard
    if display:
        from tidemill.observe.display import Display  # noqa: PLC0415 - as it says

        screen = Display()
        undo.callback(screen.close)
        show.append(screen.show)
        say = screen.say
    if metrics_port is not None:
        from tidemill.observe.metrics import MetricsServer  # noqa: PLC0415 - as it says

        server = MetricsServer(metrics_port)
        undo.callback(server.close)
        show.append(server.show)
    return Watchers(show, say)


def _unheard(_: str) -> None:
    """Nobody looks on."""


def _check_sendable(graph: Graph) -> None:
    """Whether all of it can travel; if not, an error that names the part."""
    sent = for_workers(graph)
    try:
        attendance.pickled(sent)
    except Exception as error:
        for node in sent.nodes.values():
            try:
                attendance.pickled(node)
            except Exception as part:
                why = f"{type(part).__name__}: {part}"
                raise PipelineError(
                    f"{node.name} (declared at {node.declared_at}) can't be sent to the workers: {why}. Keep "
                    "connections, locks and open files out of it; open them where they are used."
                ) from part
        raise PipelineError(f"the pipeline can't be sent to the workers: {error}") from error


def _plan(graph: Graph, workers: int, mechanism: Mechanism) -> Plan:
    splits = {node.name: len(node.handle.splits()) for node in graph.of_kind("source")}
    patience = Micros(0) if mechanism.promise == NOTHING else PATIENCE
    return Plan(workers, splits, workers, patience=patience, silence=HANGS_AFTER, gathering=NEVER)


def _command(
    graph: Graph, mechanism: Mechanism, plan: Plan, keys: Secrets, host: str, journal: str | None
) -> CoordinatorOrders:
    started = time.time_ns() // 1_000
    return CoordinatorOrders(for_coordinator(graph), mechanism, plan, keys, host, -1, -1, 1, started, journal)
