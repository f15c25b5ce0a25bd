"""One trial: a workload under a mechanism and a seed, run to its end and judged."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tidemill.hosts.simulator.checkers import judges
from tidemill.hosts.simulator.cluster import Outcome, Simulation
from tidemill.hosts.simulator.faults import Faults, swarm
from tidemill.hosts.simulator.workloads import Workload
from tidemill.recovery.contract import Mechanism
from tidemill.recovery.nothing import Nothing
from tidemill.recovery.retrace import Retrace
from tidemill.recovery.rewind import Rewind

MECHANISMS: Final[dict[str, Mechanism]] = {"rewind": Rewind(), "retrace": Retrace(), "none": Nothing()}
"""By the names that the command line knows them by."""


Plan = Callable[[Simulation], None]


@dataclass(frozen=True)
class Verdict:
    workload: str
    mechanism: str
    outcome: Outcome
    complaints: dict[str, list[str]]  # of every checker, most without any
    broken: str = ""  # what the run died of, if it came to no end

    @property
    def good(self) -> bool:
        return not self.broken and not any(self.complaints.values())

    @property
    def violations(self) -> list[str]:
        said = [f"{checker}: {what}" for checker, complaints in self.complaints.items() for what in complaints]
        return [*said, self.broken.strip().splitlines()[-1]] if self.broken else said

    def __str__(self) -> str:
        how = "good" if self.good else "; ".join(self.violations)
        return f"{self.workload} {self.mechanism} seed {self.outcome.seed}: {how}"


def attempt(
    workload: Workload,
    mechanism: Mechanism,
    seed: int,
    *,
    workers: int = 5,
    faults: Faults | None = None,
    plan: Plan | None = None,
) -> Verdict:
    """Runs it. Without `faults`, the seed chooses them; `plan` may plan more before the cluster starts."""
    pipeline, oracle = workload.build(seed)
    watch = judges(oracle, mechanism.promise, late=workload.late)
    simulation = Simulation(
        pipeline.graph(),
        mechanism,
        seed=seed,
        workers=workers,
        faults=workload.bearable(swarm(seed) if faults is None else faults),
        shards=workload.shards,
        watch=watch,
    )
    if plan is not None:
        plan(simulation)
    broken = ""
    try:
        outcome = simulation.run()
        watch.ended(outcome)
    except Exception:  # noqa: BLE001 - whatever breaks in there is what was looked for
        broken = traceback.format_exc()
        outcome = simulation.outcome()
    complaints = {checker.name: checker.complaints for checker in watch.checkers}
    return Verdict(workload.name, mechanism.name, outcome, complaints, broken)
