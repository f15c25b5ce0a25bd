"""How much and how often: the numbers that bound a worker. The same for all workers of a run."""

from __future__ import annotations

from typing import NamedTuple

from tidemill.core.flow import WINDOW
from tidemill.core.ids import Micros


class Limits(NamedTuple):
    full_bundle: int = 8_192  # records
    read: int = 4_096  # records of one read of a source
    report_every: Micros = Micros(10_000)
    sign_of_life_every: Micros = Micros(1_000_000)
    max_skew: Micros | None = None
    window: int = WINDOW  # the weight that may be under way on a channel
    loop_memory: int = 4 * WINDOW  # the weight of what came round a loop that a shard keeps in memory
