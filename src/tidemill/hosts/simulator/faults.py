"""Which faults a seed has. Chosen by swarm: each seed turns some on and leaves others off, and sets their strength.

A cluster in which everything fails all the time exercises little: it never gets far. Many clusters, each with a few
faults of its own, reach the rare combinations.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

Role = Literal["worker", "coordinator"]
Moment = Literal["before", "after", "torn"]

REACH: Final[dict[Role, dict[str, int]]] = {
    "worker": {"Send": 1_500, "Read": 60, "Append": 400, "OpenLog": 40, "Spill": 40, "ReadBack": 20}
    | {"DropSpill": 3, "Stage": 80, "CloseStage": 12, "Exit": 4},
    "coordinator": {"Send": 300, "Claim": 2, "Journal": 2, "Note": 14, "Forget": 2, "Exit": 1},
}
"""The effects that a process may die of, and up to the how-manieth of all of its role's: most runs have so many."""

TEARABLE: Final = ("Append", "Journal", "CloseStage")
"""Writes, of which a part may arrive."""


@dataclass(frozen=True)
class CrashPoint:
    """A process of a role dies at its role's n-th effect of a kind."""

    role: Role
    effect: str
    nth: int
    moment: Moment


@dataclass(frozen=True)
class Faults:
    """All off unless said otherwise. Times are in microseconds."""

    crashes: tuple[CrashPoint, ...] = ()
    latency: int = 200  # of a packet, on average
    loss: float = 0.0
    duplication: float = 0.0
    cuts: int = 0  # lost connections: how many, each between one pair of processes
    cut_length: int = 500_000
    pauses: int = 0
    pause_length: int = 1_000_000
    slow_workers: int = 0  # ten times slower
    reading: int = 4_000  # how long a source takes to find some records, on average
    disk_latency: int = 300
    full_disks: int = 0
    full_length: int = 1_000_000
    clock_offset: int = 0  # wall clocks disagree by up to this much
    reroutings: int = 0  # moves, splits and merges asked for
    second_coordinators: int = 0  # one is started while the old one is only paused
    second_workers: int = 0  # one is started although the old one lives
    window: int = 0  # the weight that a channel may hold, a loop in memory, a bundle; 0: more than any run needs
    wire: bool = False  # packets are really made bytes and back

    @property
    def names(self) -> list[str]:
        """For the story: what is on."""
        quiet = Faults()
        return [name for name in self.__dataclass_fields__ if getattr(self, name) != getattr(quiet, name)]


@dataclass
class Budget:
    """How hard a swarm may be. Tests of single faults narrow it."""

    crashes: int = 3
    allowed: frozenset[str] = field(default_factory=lambda: frozenset(Faults.__dataclass_fields__))
    certain: bool = False  # whatever is allowed happens


def swarm(seed: int, budget: Budget | None = None) -> Faults:
    """The faults of a seed."""
    limits = budget or Budget()
    chance = random.Random(f"faults {seed}")

    def some(name: str, probability: float, value: object, otherwise: object) -> object:
        chosen = chance.random() < probability or limits.certain
        return value if chosen and name in limits.allowed else otherwise

    quiet = Faults()
    values: dict[str, object] = {"crashes": _crashes(chance, limits.crashes) if "crashes" in limits.allowed else ()}
    for name, probability, value in (
        ("latency", 0.5, chance.choice((50, 1_000, 5_000))),
        ("loss", 0.4, chance.choice((0.001, 0.01, 0.05))),
        ("duplication", 0.3, chance.choice((0.01, 0.1))),
        ("cuts", 0.3, chance.randint(1, 3)),
        ("cut_length", 0.5, chance.randint(50_000, 3_000_000)),
        ("pauses", 0.35, chance.randint(1, 3)),
        ("pause_length", 0.6, chance.choice((100_000, 2_500_000, 12_000_000, 30_000_000))),
        ("slow_workers", 0.2, 1),
        ("reading", 0.4, chance.choice((500, 40_000))),
        ("disk_latency", 0.5, chance.choice((20, 2_000, 20_000))),
        ("full_disks", 0.2, 1),
        ("clock_offset", 0.4, chance.choice((1_000, 60_000_000, 3_600_000_000))),
        ("reroutings", 0.4, chance.randint(1, 4)),
        ("second_coordinators", 0.15, 1),
        ("second_workers", 0.15, 1),
        ("window", 0.4, chance.choice((24, 100, 600))),
        ("wire", 0.2, True),
    ):
        values[name] = some(name, probability, value, getattr(quiet, name))
    return Faults(**values)  # type: ignore[arg-type]


def _crashes(chance: random.Random, most: int) -> tuple[CrashPoint, ...]:
    """The first lands early in almost any run; the others are aimed at one kind of effect each."""
    points = [CrashPoint("worker", "Send", chance.randint(1, chance.choice((50, 500))), _moment(chance, "Send"))]
    for _ in range(chance.randint(0, most - 1)):
        role: Role = chance.choice(("worker", "worker", "coordinator"))
        effect = chance.choice(list(REACH[role]))
        points.append(CrashPoint(role, effect, chance.randint(1, REACH[role][effect]), _moment(chance, effect)))
    return tuple(points)


def _moment(chance: random.Random, effect: str) -> Moment:
    return chance.choice(moments(effect))


def moments(effect: str) -> tuple[Moment, ...]:
    """The moments at which a process may die of it."""
    return ("before", "after", "torn") if effect in TEARABLE else ("before", "after")


def only(names: Iterable[str], seed: int) -> Faults:
    """These faults and no others, as strong as the seed says."""
    wanted = list(names)
    lengths = [f"{name.removesuffix('s').removesuffix('_disk')}_length" for name in wanted]
    allowed = frozenset(name for name in [*wanted, *lengths] if name in Faults.__dataclass_fields__)
    return swarm(seed, Budget(allowed=allowed, certain=True))
