"""A run, as the program that started it holds it: in the manner of Spark's own `StreamingQuery`."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidemill import errors
from tidemill.core.graph import Graph
from tidemill.core.ids import NodeName
from tidemill.errors import RunError, TidemillError, UserCodeError
from tidemill.hosts.spark import feeding, protocol, tables
from tidemill.hosts.spark.attendance import Attendance
from tidemill.hosts.spark.jobs import Jobs
from tidemill.hosts.spark.sinking import batches_of, rows_of
from tidemill.observe.progress import ENDED, Progress, Status, WorkerProgress

if TYPE_CHECKING:
    from typing_extensions import Self

RECENT: Final = 100
WORKERS_LEAVE: Final = 5.0
"""Seconds that the workers have to end by themselves before Spark ends them."""

Watcher = Callable[[Progress], None]


class Watchers(NamedTuple):
    """Who is shown every progress, and who is told what happened."""

    show: Sequence[Watcher]
    say: Callable[[str], None]


class Run:
    """Made by `tm.run`. It goes on in the background; `wait` for it, or `stop` it."""

    def __init__(
        self,
        name: str,
        graph: Graph,
        workers: int,
        attendance: Attendance,
        watchers: Watchers,
    ) -> None:
        self.name = name
        self._graph = graph
        self._expected = workers
        self._attendance = attendance
        self._watchers = watchers
        self._jobs: Jobs | None = None
        self._release: Callable[[], None] = lambda: None
        self._recent: deque[Progress] = deque(maxlen=RECENT)
        self._exception: TidemillError | None = None
        self._status: Status = "starting"
        self._over = threading.Event()
        self._closed = threading.Event()
        self._running = threading.Event()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Run of {self.name!r}: {self.status}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop() if error[0] is None else self.abandon()

    # What the user asks

    @property
    def status(self) -> Status:
        """ "starting", "running", "stopping", "finished" (its input ended), "stopped" (somebody asked) or "failed"."""
        return self._status

    @property
    def progress(self) -> Progress | None:
        """How far it is; None before the first word of it."""
        return self._recent[-1] if self._recent else None

    @property
    def recent_progress(self) -> list[Progress]:
        return list(self._recent)

    @property
    def exception(self) -> TidemillError | None:
        """Why it failed; None if it did not."""
        return self._exception

    @property
    def workers(self) -> tuple[WorkerProgress, ...]:
        """Each with its id, its incarnation, its host and its process."""
        return self.progress.workers if self.progress is not None else ()

    def watermarks(self) -> dict[str, int | None]:
        """By source, computation and sink: how complete it is, in microseconds since the epoch."""
        return {node.name: node.watermark for node in self.progress.nodes} if self.progress is not None else {}

    def table(self, stream: str) -> Any:
        """What is committed of the stream by now, as a Spark DataFrame, if it leaves by a Parquet or a Collect sink."""
        assert self._jobs is not None, "the run was given its jobs before anyone had it in hand"
        return tables.table_of(self._graph, self._jobs.session, stream)

    def end_feed(self, stream: str) -> None:
        """Says that no more rows will be fed to this stream: behind those that were, its `Feed` ends."""
        feeding.end(self._graph, stream)

    def wait(self, timeout: float | None = None) -> bool:
        """Until it is over, or so many seconds; whether it is over. Raises what it failed with.

        Ctrl-C stops the run: what was read is worked off first. A second one ends it at once.
        """
        try:
            return self._wait(timeout)
        except KeyboardInterrupt:
            self._watchers.say("stopping: what was read is worked off; Ctrl-C again ends the run at once")
            self.stop()
            raise

    def _wait(self, timeout: float | None) -> bool:
        ended = self._closed.wait(timeout)
        if ended and self._exception is not None:
            raise self._exception
        return ended

    def stop(self, timeout: float | None = None) -> bool:
        """Reads no more, works off what was read, commits, and ends; whether it did within so many seconds.

        Ctrl-C while it waits ends the run at once.
        """
        self._attendance.say(protocol.StopRun(abandon=False))
        try:
            return self._wait(timeout)
        except KeyboardInterrupt:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Ends it at once. What was read and not written is lost, as far as recovery goes."""
        self._attendance.say(protocol.StopRun(abandon=True))
        if not self._over.wait(2.0):
            self._end("stopped", None)
        self._closed.wait(2 * WORKERS_LEAVE)

    # What happens to it

    def attend(self, jobs: Jobs, release: Callable[[], None]) -> None:
        """The run has its workers' jobs, which are ended with it, and what is to be let go when it is over."""
        self._jobs = jobs
        self._release = release

    def started(self, timeout: float) -> None:
        """Waits until all workers are there and have begun. Raises if they don't come; what they do, `wait` tells."""
        until = time.monotonic() + timeout
        while not self._running.wait(0.05) and not self._over.is_set() and time.monotonic() < until:
            pass
        if self._exception is not None and len(self.workers) < self._expected:
            self._closed.wait(2 * WORKERS_LEAVE)
            raise self._exception
        if not self._running.is_set() and not self._over.is_set():
            came = len(self.workers)
            error = RunError(
                f"{came} of {self._expected} workers came within {timeout:.0f} s. Each needs a task slot of Spark's of "
                "its own: see its pages for what else is running, or ask for fewer workers."
            )
            self._attendance.say(protocol.StopRun(abandon=True))
            self._end("failed", error)
            self._closed.wait(2 * WORKERS_LEAVE)
            raise error

    def hear(self, message: protocol.Control) -> None:
        """What the coordinator says; called by the thread that listens."""
        match message:
            case protocol.State(progress):
                self._take(progress)
            case protocol.Gathered():
                self._gather(message)
            case protocol.Noted(who, what, about):
                if what in TOLD:
                    self._watchers.say(f"{who}: {what} {about}")
            case protocol.Ended(status, error, text, trace, progress):
                self._take(progress)
                self._end(status, _exception(error, text, trace))  # type: ignore[arg-type]
            case _:
                raise AssertionError(f"the driver is not told {message!r}")

    def _take(self, progress: Progress) -> None:
        if not self._over.is_set():
            self._status = progress.status
            self._recent.append(progress)
            if progress.status != "starting":
                self._running.set()
        for show in self._watchers.show:
            show(progress)

    def _gather(self, message: protocol.Gathered) -> None:
        sink = self._graph.nodes[NodeName(message.node)]
        try:
            sink.handle.extend(rows_of(batches_of(message.data)))
        except Exception as error:  # noqa: BLE001 - the user's own function
            where = f"{sink.name} (declared at {sink.declared_at})"
            failure = UserCodeError(f"{where} raised {type(error).__name__}: {error}")
            failure.__cause__ = error
            self._attendance.say(protocol.StopRun(abandon=True))
            self._end("failed", failure)
            return
        if message.number:
            self._attendance.say(protocol.Taken(message.worker, message.incarnation, message.number))

    def died(self, why: str) -> None:
        """The coordinator's process ended unasked."""
        self._end("failed", RunError(f"{why}; recovery=None keeps nothing to go on from, so the run is over"))

    def hopeless(self, place: int, why: str) -> None:
        """A worker's job fails again and again."""
        self._attendance.say(protocol.StopRun(abandon=True))
        self._end("failed", RunError(f"worker {place} can't be started: {why}"))

    def _end(self, status: Status, exception: TidemillError | None) -> None:
        with self._lock:
            if self._over.is_set():
                return
            self._status = status
            self._exception = exception
            self._over.set()
        threading.Thread(target=self._clean_up, name="tidemill-end", daemon=False).start()

    def _clean_up(self) -> None:
        assert self._status in ENDED
        try:
            if self._jobs is not None:
                self._jobs.over()
                if not self._jobs.join(WORKERS_LEAVE):
                    self._jobs.cancel()
                    self._jobs.join(WORKERS_LEAVE)
            self._attendance.close()
            self._release()
        finally:
            self._closed.set()  # whatever could not be let go: nobody waits for ever


TOLD: Final = ("lost", "refused", "failed", "trouble", "gone")
"""What happened that whoever looks on should know at once; the rest is in the journal."""


def _exception(kind: str, text: str, trace: str) -> TidemillError | None:
    """The error as it was where it happened, with the user's traceback."""
    if not kind:
        return None
    found = getattr(errors, kind, None)
    full = f"{text}\n\n{trace}" if trace else text
    if isinstance(found, type) and issubclass(found, TidemillError):
        return found(full)
    return RunError(f"{kind}: {full}")
