"""Workers as Spark jobs: one `mapInArrow` job of one task each, through the DataFrame API alone.

One job each, and not one stage for all: Spark restarts all tasks of a barrier stage when one of them dies. A job whose
task Spark has given up, or that ended before the run was over, is submitted again, under a higher incarnation. Each has
a tag and a description, so that Spark's own pages tell which is which.
"""

from __future__ import annotations

import contextlib
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from tidemill.hosts.spark import interrupts
from tidemill.hosts.spark.attendance import import_paths
from tidemill.hosts.spark.session import is_remote

PAUSE: Final = 0.2
"""Seconds from a worker's end to its next submission; twice as long after each failure."""

LONG_ENOUGH: Final = 10.0
"""Seconds. A worker that lived so long had not failed to start."""

MOST_FAILURES: Final = 5
"""In a row: then something is wrong that another try will not mend."""

RESULT: Final = "worker int, ended string"


@dataclass
class Job:
    """One worker's job, over all its submissions."""

    place: int
    submission: int = 0
    failures: int = 0
    last: str = ""
    thread: threading.Thread | None = field(default=None, repr=False)


class Jobs:
    def __init__(
        self,
        session: Any,
        name: str,
        run: str,
        orders: bytes,
        *,
        hopeless: Callable[[int, str], None],
    ) -> None:
        self.session = session
        self._name = name
        self._tag = f"tidemill-{run}"
        self._orders = orders
        self._hopeless = hopeless
        self._over = threading.Event()
        self._jobs: dict[int, Job] = {}

    def start(self, workers: int) -> None:
        if not is_remote(self.session):
            interrupts.spare(self._tag, self.session)
        for place in range(workers):
            job = self._jobs[place] = Job(place)
            job.thread = threading.Thread(target=self._keep_going, args=(job,), name=f"tidemill-{place}", daemon=True)
            job.thread.start()

    def _keep_going(self, job: Job) -> None:
        with _own_thread(self.session):
            self._label(job)
            while not self._over.is_set():
                began = time.monotonic()
                job.last = self._submit(job)
                lived = time.monotonic() - began
                if self._over.is_set():
                    return
                job.submission += 1
                job.failures = job.failures + 1 if lived < LONG_ENOUGH else 0
                if job.failures >= MOST_FAILURES or _is_hopeless(job.last):
                    self._hopeless(job.place, f"{job.last}{_remedy(job.last)}")
                    return
                self._over.wait(PAUSE * 2**job.failures)

    def _label(self, job: Job) -> None:
        """For this thread's jobs. One without is a worker all the same."""
        what = f"tidemill {self._name}: worker {job.place}"
        with contextlib.suppress(Exception):
            self.session.addTag(self._tag)
        with contextlib.suppress(Exception):
            if not is_remote(self.session):
                self.session.sparkContext.setJobGroup(self._tag, what, interruptOnCancel=True)

    def _submit(self, job: Job) -> str:
        """Runs it to its end; why it ended."""
        task = task_of(self._orders, job.place, job.submission)
        try:
            rows = self.session.range(0, 1, 1, 1).mapInArrow(task, RESULT).collect()
        except Exception as error:  # noqa: BLE001 - Spark raises what it likes, and the run goes on
            return readable(error)
        return str(rows[0]["ended"]) if rows else ""

    def cancel(self) -> None:
        """Whatever still runs is ended by Spark."""
        self._over.set()
        with contextlib.suppress(Exception):  # the session may be gone already
            self.session.interruptTag(self._tag)

    def over(self) -> None:
        """None is submitted again."""
        self._over.set()

    def join(self, seconds: float) -> bool:
        """Waits until all have ended; whether they have."""
        until = time.monotonic() + seconds
        for job in self._jobs.values():
            if job.thread is not None and job.thread is not threading.current_thread():
                job.thread.join(max(0.0, until - time.monotonic()))
        ended = not any(job.thread is not None and job.thread.is_alive() for job in self._jobs.values())
        if ended:
            interrupts.release(self._tag)
        return ended


def task_of(
    orders: bytes, place: int, submission: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What Spark runs: one row goes in, a worker lives, one row comes out."""
    paths = import_paths()

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        sys.path.extend(path for path in paths if path not in sys.path)
        from tidemill.hosts.spark.worker import work

        for _ in batches:
            pass
        context = TaskContext.get()
        ended = work(orders, place, submission, context.attemptNumber() if context is not None else 0)
        yield pa.RecordBatch.from_pydict({"worker": pa.array([place], pa.int32()), "ended": [ended]})

    return task


@contextlib.contextmanager
def _own_thread(session: Any) -> Iterator[None]:
    """Spark's labels belong to a thread; with Connect there is nothing to prepare."""
    try:
        yield
    finally:
        with contextlib.suppress(Exception):
            if not is_remote(session):
                _release_connection()


def _release_connection() -> None:
    """Else this thread's connection to Spark stays open."""
    from pyspark import InheritableThread

    release = getattr(InheritableThread, "_clean_py4j_conn_for_current_thread", None)
    if release is not None:
        release()


def readable(error: Exception) -> str:
    """Spark's exceptions hold the worker's whole traceback; the line that matters is the last of it."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line for line in lines if re.match(r"^[\w.]*(Error|Exception|Exit)\b.*:", line) and "at org." not in line]
    return said[-1] if said else (lines[0] if lines else type(error).__name__)


def _is_hopeless(last: str) -> bool:
    """What another try will not mend."""
    return "ModuleNotFoundError" in last or "can't reach the coordinator" in last or ": install one version" in last


def _remedy(last: str) -> str:
    if "ModuleNotFoundError" not in last:
        return ""
    return (
        ". The workers' Python is the one that Spark starts: PYSPARK_PYTHON, or else the python3 of the path. Set it "
        f"to one that has what the pipeline needs, such as this program's ({sys.executable}), before the session is "
        "made, and see that modules of your own are there too"
    )
