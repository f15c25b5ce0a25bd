"""Ctrl-C while a run goes on.

PySpark cancels all jobs of its context on Ctrl-C, and a run's workers are jobs: they would be killed before they could
work off what was read. While there is a run, all jobs but its workers' are cancelled; what becomes of the run is said
by whoever waits for it.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

Handler = Callable[[int, FrameType | None], Any]

_groups: dict[str, Any] = {}
"""The groups of jobs that are spared, and each one's session."""


def spare(group: str, session: Any) -> None:
    """Ctrl-C does not cancel the jobs of this group, until `release`."""
    _groups[group] = session
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is threading.main_thread() and _is_pysparks(before):
        signal.signal(signal.SIGINT, _Sparing(before))  # type: ignore[arg-type]


def release(group: str) -> None:
    _groups.pop(group, None)


def _is_pysparks(handler: Any) -> bool:
    return callable(handler) and str(getattr(handler, "__module__", "")).startswith("pyspark.")


class _Sparing:
    """Stays when the run is over: only the main thread could put back what was there before."""

    def __init__(self, before: Handler) -> None:
        self._before = before

    def __call__(self, number: int, frame: FrameType | None) -> NoReturn:
        if not _groups:
            self._before(number, frame)
        for session in {id(session): session for session in _groups.values()}.values():
            with contextlib.suppress(Exception):  # Spark may be gone
                _cancel_others(session.sparkContext)
        raise KeyboardInterrupt


def _cancel_others(context: Any) -> None:
    tracker = context.statusTracker()
    spared = {job for group in _groups for job in tracker.getJobIdsForGroup(group)}
    for job in set(tracker.getActiveJobsIds()) - spared:
        context._jsc.sc().cancelJob(job)  # noqa: SLF001 - Spark's own has no Python
