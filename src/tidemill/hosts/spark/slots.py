"""How many tasks Spark can run at the same time: every worker needs a slot of its own, for as long as the run lasts."""

from __future__ import annotations

import re
import time
from typing import Any, Final, NamedTuple

from tidemill.errors import RunError
from tidemill.hosts.spark.session import is_remote

PATIENCE: Final = 4.0
"""Seconds within which executors that are starting count."""


class Slots(NamedTuple):
    all: int
    busy: int

    @property
    def free(self) -> int:
        return self.all - self.busy


def check_slots(session: Any, workers: int) -> None:
    """Raises if there will not be enough. Where Spark can't say, the workers that don't come will tell."""
    if is_remote(session) or session.conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        return
    until = time.monotonic() + PATIENCE
    slots = _slots(session)
    while slots is not None and slots.free < workers and not _is_final(session) and time.monotonic() < until:
        time.sleep(0.1)
        slots = _slots(session)
    if slots is not None and slots.free < workers:
        master = session.conf.get("spark.master", "?")
        raise RunError(
            f"{workers} workers need {workers} free task slots, and Spark (master {master}) has {max(slots.free, 0)} "
            f"free of {slots.all}. Ask for fewer workers, end what else is running, or give Spark more: "
            f"{_remedy(master, workers)}."
        )


def _remedy(master: str, workers: int) -> str:
    if master.startswith("local["):
        return f"master local[{workers}]"
    if master.startswith("local-cluster"):
        return "more executors or more cores each in local-cluster[executors,cores,memory]"
    return "more executors, or more spark.executor.cores"


def _is_final(session: Any) -> bool:
    """Whether the number of slots can't grow any more, and none will be free soon."""
    return bool(re.fullmatch(r"local(\[.*\])?", session.conf.get("spark.master", "")))


def _slots(session: Any) -> Slots | None:
    from py4j.protocol import Py4JError

    try:
        context = session.sparkContext
        per_task = int(session.conf.get("spark.task.cpus", "1"))
        executors = list(context._jsc.sc().statusTracker().getExecutorInfos())  # noqa: SLF001 - Spark's own has no Python
        busy = sum(executor.numRunningTasks() for executor in executors)
        local = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\d+)?\])?", context.master)
        if local:
            return Slots(context.defaultParallelism if local.group(1) else 1, busy)
        cores = int(session.conf.get("spark.executor.cores", "0"))
        clustered = re.fullmatch(r"local-cluster\[\d+,\s*(\d+),\s*\d+\]", context.master)
        if clustered:
            cores = int(clustered.group(1))
        others = len(executors) - 1  # the driver is one of them
        total = others * (cores // per_task) if cores else context.defaultParallelism
    except Py4JError:
        return None
    return Slots(total, busy)
