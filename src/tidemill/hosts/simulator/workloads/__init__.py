"""The workloads that every mechanism is tried with: each one is about one thing that recovery can break."""

from __future__ import annotations

from typing import Final

from tidemill.hosts.simulator.workloads.arriving import arriving
from tidemill.hosts.simulator.workloads.counting import counting
from tidemill.hosts.simulator.workloads.cyclic import cyclic
from tidemill.hosts.simulator.workloads.fanout import fanout
from tidemill.hosts.simulator.workloads.holding import holding
from tidemill.hosts.simulator.workloads.joining import joining
from tidemill.hosts.simulator.workloads.vectorised import vectorised
from tidemill.hosts.simulator.workloads.windows import windows
from tidemill.hosts.simulator.workloads.workload import AT, Oracle, Row, Shown, Workload

WORKLOADS: Final[dict[str, Workload]] = {
    workload.name: workload for workload in (counting, windows, joining, cyclic, fanout, vectorised, holding, arriving)
}

__all__ = ["AT", "WORKLOADS", "Oracle", "Row", "Shown", "Workload"]
