"""How many tasks Spark can run at the same time: every worker needs a slot of its own, for as long as the run lasts."""

from __future__ import annotations

import re
import socket
import time
from typing import Any, Final, NamedTuple

from tidemill.errors import RunError
from tidemill.hosts.spark.session import is_remote

PATIENCE: Final = 4.0
"""Seconds within which executors that are starting count."""

MASTERS: Final = re.compile(r"(local$|local\[|local-cluster\[|spark://|yarn|k8s://)")


class Slots(NamedTuple):
    all: int
    busy: int

    @property
    def free(self) -> int:
        return self.all - self.busy


def check_master(master: str, workers: int) -> None:
    """Raises if a session that is not there yet can't have enough: nothing needs to be started to see that."""
    if not MASTERS.match(master):
        raise RunError(
            f"There is no Spark master {master!r}. Masters are: local[4], spark://host:7077, yarn, k8s://..."
        )
    if master.startswith("spark://"):
        _check_answer(master)
    local = re.fullmatch(r"local(?:\[(\d+)(?:,\s*\d+)?\])?", master.strip())
    if local is not None and (there := int(local.group(1) or 1)) < workers:
        raise _too_few(workers, Slots(there, 0), master)


def _check_answer(master: str) -> None:
    """Spark itself tries for a minute, and ends this program's Java then."""
    tried = []
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE / 2).close()
        except (OSError, ValueError) as error:
            tried.append(f"{place}: {error}")
        else:
            return
    raise RunError(f"No Spark master answers at {master} ({'; '.join(tried)}). Is it running, and is this its address?")


def check_slots(session: Any, workers: int) -> None:
    """Raises if there will not be enough. Where Spark can't say, the workers that don't come will tell."""
    if is_remote(session) or session.conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        return
    until = time.monotonic() + PATIENCE
    slots = _slots(session)
    while slots is not None and slots.free < workers and time.monotonic() < until:
        if slots.all < workers and _is_final(session):
            break
        time.sleep(0.05)  # executors come, tasks end, and Spark counts with some delay
        slots = _slots(session)
    if slots is not None and slots.free < workers:
        raise _too_few(workers, slots, session.conf.get("spark.master", "?"))


def _too_few(workers: int, slots: Slots, master: str) -> RunError:
    return RunError(
        f"{workers} workers need {workers} free task slots, and Spark (master {master}) has {max(slots.free, 0)} free "
        f"of {slots.all}. Ask for fewer workers, end what else is running, or give Spark more: "
        f"{_remedy(master, workers + slots.busy)}."
    )


def _remedy(master: str, workers: int) -> str:
    if master == "local" or master.startswith("local["):
        return f"master local[{workers}]"
    if master.startswith("local-cluster"):
        return "more executors or more cores each in local-cluster[executors,cores,memory]"
    return "more executors, or more spark.executor.cores"


def _is_final(session: Any) -> bool:
    """Whether the number of slots can't grow any more."""
    return bool(re.fullmatch(r"local(\[.*\])?", session.conf.get("spark.master", "")))


def _slots(session: Any) -> Slots | None:
    """What all executors can take at once, and what they have in hand by the scheduler's own books: what Spark's pages
    show of that comes late.
    """
    from py4j.protocol import Py4JError

    context = session.sparkContext
    try:
        listed = context._jsc.sc().statusStore().executorList(True)  # noqa: FBT003, SLF001 - nothing else tells
        running = context._jsc.sc().taskScheduler().runningTasksByExecutors()  # noqa: SLF001 - the same
        busy = context._jvm.scala.jdk.javaapi.CollectionConverters.asJava(running)  # noqa: SLF001 - the same
        return Slots(sum(listed.apply(place).maxTasks() for place in range(listed.size())), sum(busy.values()))
    except Py4JError:
        return None
