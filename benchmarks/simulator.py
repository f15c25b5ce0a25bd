"""How much does the simulator try, and how fast?

Every seed is one run of five workers: a workload, a mechanism, the faults that the seed chooses, and one more crash
that is aimed at a cell of the matrix of effects against moments, in turns, so that no cell stays empty by chance. All
checkers judge every run. Two processes share the seeds.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from dataclasses import replace
from typing import Any, NamedTuple

from tidemill.hosts.simulator.faults import REACH, CrashPoint, Faults, Moment, Role, moments, swarm
from tidemill.hosts.simulator.trial import MECHANISMS, attempt
from tidemill.hosts.simulator.workloads import WORKLOADS

SEEDS, QUICK_SEEDS = 1_200, 60
PROCESSES = 2
EXACT = ("retrace", "rewind")
LOOP_EFFECTS = ("Spill", "ReadBack", "DropSpill")  # only a loop with little room comes to these
NEVER = {"rewind": ("Append", "OpenLog")}  # a mechanism never asks for these

Cell = tuple[Role, str, Moment]
CELLS: list[Cell] = [
    (role, effect, moment) for role, effects in REACH.items() for effect in effects for moment in moments(effect)
]


class Ran(NamedTuple):
    seed: int
    events: int
    virtual_seconds: float
    crashes: list[tuple[str, str, str]]
    complaint: str


def run(*, quick: bool) -> dict[str, Any]:
    seeds = QUICK_SEEDS if quick else SEEDS
    began = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        runs = list(pool.imap_unordered(one, range(seeds), chunksize=5))
    seconds = time.perf_counter() - began
    crashed = sum(bool(ran.crashes) for ran in runs)
    bad = sorted(ran.complaint for ran in runs if ran.complaint)
    matrix = Counter(crash for ran in runs for crash in ran.crashes)
    print_matrix(matrix)
    print(f"{seeds:,} seeds of 5 workers, {len(EXACT)} mechanisms, {len(WORKLOADS)} workloads")
    print(f"{sum(ran.events for ran in runs):,} events, at least {min(ran.events for ran in runs):,} in a seed")
    print(f"{sum(ran.virtual_seconds for ran in runs):,.0f} virtual seconds in {seconds:.0f} s")
    print(f"{crashed / seeds:.1%} of the seeds had a crash that landed; {len(bad)} violations")
    for complaint in bad[:10]:
        print(f"  {complaint}")
    return {
        "seeds": seeds,
        "events": sum(ran.events for ran in runs),
        "events_min": min(ran.events for ran in runs),
        "crashed_share": crashed / seeds,
        "seconds": seconds,
        "violations": len(bad),
        "empty_cells": [cell for cell in CELLS if not matrix[cell]],
        "matrix": {" ".join(cell): matrix[cell] for cell in CELLS},
    }


def one(seed: int) -> Ran:
    cell = CELLS[seed // len(EXACT) % len(CELLS)]
    mechanism = EXACT[seed % len(EXACT)]
    names = list(WORKLOADS)
    workload = WORKLOADS["cyclic" if cell[1] in LOOP_EFFECTS else names[seed // 3 % len(names)]]
    verdict = attempt(workload, MECHANISMS[mechanism], seed, faults=workload.bearable(aimed(seed, mechanism, cell)))
    outcome = verdict.outcome
    return Ran(
        seed,
        outcome.events,
        outcome.virtual_seconds,
        [(crash.role, crash.effect, crash.moment) for crash in outcome.crashes],
        "" if verdict.good else str(verdict),
    )


def aimed(seed: int, mechanism: str, cell: Cell) -> Faults:
    """The seed's own faults, and one crash in the cell, early enough to land in most runs."""
    role, effect, moment = cell
    faults = swarm(seed)
    if effect in NEVER.get(mechanism, ()):
        return faults
    point = CrashPoint(role, effect, 1 + seed % max(REACH[role][effect] // 4, 1), moment)
    window = 24 if effect in LOOP_EFFECTS else faults.window
    return replace(faults, crashes=(*faults.crashes, point), window=window)


def print_matrix(matrix: Counter[tuple[str, str, str]]) -> None:
    """How many processes died of each effect, and when; `-` where a part of it can't arrive."""
    print(f"{'died of':24}{'before':>9}{'after':>9}{'torn':>9}")
    for role, effects in REACH.items():
        for effect in effects:
            cells = [
                str(matrix[role, effect, moment]) if moment in moments(effect) else "-"
                for moment in ("before", "after", "torn")
            ]
            print(f"{role + ' ' + effect:24}{cells[0]:>9}{cells[1]:>9}{cells[2]:>9}")
