"""What user code is given beside a record: one key's state, timers, time and outputs.

There is one context for each shard, filled anew for every record, because making one for each would cost more than most
user code does. `state` is a plain slot: the shard puts the key's state there and looks afterwards whether it was
replaced or deleted. The class has no `__getattr__`, for with one the interpreter would look every attribute up slowly.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.core.bundle import Int64s
from tidemill.core.chance import Chance
from tidemill.core.columns import ColumnarState
from tidemill.core.graph import OutputPort
from tidemill.core.ids import BEGINNING, LAST, Micros
from tidemill.core.outbox import Outbox
from tidemill.core.state import HOLD, KeyTimes
from tidemill.core.table import Table
from tidemill.core.timers import Clock
from tidemill.errors import DataError, TidemillError


def micros(at: Any) -> Micros:
    """A time as user code gives it: microseconds since the epoch, or a datetime (UTC where it names no zone)."""
    if type(at) is int:
        if not BEGINNING <= at <= LAST:
            raise TidemillError(f"{at} is no time: microseconds since the epoch lie between {BEGINNING} and {LAST}")
        return Micros(at)
    if isinstance(at, dt.datetime):
        aware = at if at.tzinfo else at.replace(tzinfo=dt.timezone.utc)
        since = aware - dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
        return Micros(since // dt.timedelta(microseconds=1))
    if isinstance(at, np.integer):
        return micros(int(at))
    raise TidemillError(f"{at!r} is no time: give microseconds since the epoch or a datetime")


def _all_of(array: pa.Array) -> pa.Array:
    return pa.array(np.arange(len(array)))


class _Seeds:
    """Where a shard's randomness comes from: the same event gets the same numbers in every replay."""

    __slots__ = ("event", "lineage", "plan")

    def __init__(self, plan: int, lineage: int) -> None:
        self.plan, self.lineage, self.event = plan, lineage, 0


class Common:
    """What both forms of user code can do."""

    __slots__ = ("_boxes", "_chance", "_seeds", "now", "watermark")

    now: Micros
    """Wall time, as the shard was told it; the same in a replay."""

    watermark: Micros
    """No on-time record older than this is still to come."""

    def __init__(self, boxes: dict[OutputPort, Outbox], plan_seed: int, lineage: int) -> None:
        self._boxes = boxes
        self._seeds = _Seeds(plan_seed, lineage)
        self._chance: Chance | None = None
        self.now = Micros(0)
        self.watermark = BEGINNING

    def begin_event(self, number: int, now: Micros, watermark: Micros) -> None:
        self._seeds.event = number
        self._chance = None
        self.now = now
        self.watermark = watermark

    @property
    def random(self) -> Chance:
        if self._chance is None:
            self._chance = Chance(self._seeds.plan, self._seeds.lineage, self._seeds.event)
        return self._chance

    def _box(self, output: Any) -> Outbox:
        try:
            return self._boxes[output]
        except (KeyError, TypeError):
            mine = ", ".join(sorted(port.stream for port in self._boxes)) or "none"
            raise DataError(
                f"produce() was given {output!r}, which is no output of this computation; its outputs are: {mine}"
            ) from None


class Context(Common):
    """For code that runs record by record: sees one key only."""

    __slots__ = ("_times", "_touch", "at", "key", "state")

    key: Any
    state: Any
    at: Micros
    """The time that productions bear unless they are given one."""

    def __init__(
        self,
        boxes: dict[OutputPort, Outbox],
        plan_seed: int,
        lineage: int,
        times: KeyTimes,
        touch: Callable[[Any], None],
    ) -> None:
        super().__init__(boxes, plan_seed, lineage)
        self._touch = touch
        self._times = times
        self.at = BEGINNING
        self.key = None

    def produce(self, output: OutputPort, /, timestamp: Any = None, **columns: Any) -> None:
        """Sends a record to a stream. It bears the time of the record or timer being processed unless given one."""
        try:
            box = self._boxes[output]
        except (KeyError, TypeError):
            box = self._box(output)
        box.rows.append(columns)
        box.times.append(self.at if timestamp is None else micros(timestamp))

    def set_timer(self, tag: str, at: Any, clock: Clock = "event") -> None:
        """`process_timer` is called for this key when the clock reaches `at`. The same tag again moves the timer."""
        self._touch(self.key)
        self._timers(clock).set(self.key, tag, micros(at))

    def cancel_timer(self, tag: str, clock: Clock = "event") -> None:
        self._touch(self.key)
        self._timers(clock).cancel(self.key, tag)

    def _timers(self, clock: Clock) -> Any:
        if clock not in ("event", "wall"):
            raise TidemillError(f'clock={clock!r} is unknown; a timer\'s clock is "event" or "wall"')
        return self._times.event if clock == "event" else self._times.wall

    def hold_watermark(self, at: Any) -> None:
        """Keeps the output mark at `at` on behalf of this key, until moved or released with `None`."""
        self._touch(self.key)
        if at is None:
            self._times.holds.cancel(self.key, HOLD)
        else:
            self._times.holds.set(self.key, HOLD, micros(at))


class BundleContext(Common):
    """For code that works on whole bundles, with state in columns."""

    __slots__ = ("_input_times", "_late", "_shard_hold", "state", "stream")

    state: ColumnarState | Table | None
    stream: str

    def __init__(
        self, boxes: dict[OutputPort, Outbox], plan_seed: int, lineage: int, state: ColumnarState | Table | None
    ) -> None:
        super().__init__(boxes, plan_seed, lineage)
        self.state = state
        self.stream = ""
        self._input_times: Int64s | None = None
        self._shard_hold: Micros | None = None
        self._late = 0

    def begin_bundle(self, stream: str, times: Int64s | None) -> None:
        self.stream = stream
        self._input_times = times

    @property
    def timestamps(self) -> Int64s:
        """The event time of each record of the bundle."""
        if self._input_times is None:
            raise TidemillError("timestamps belong to a bundle; process_watermark() has none")
        return self._input_times

    def produce_batch(
        self, output: OutputPort, columns: pa.RecordBatch | dict[str, Any], timestamps: Any = None
    ) -> None:
        """Sends a batch (or a dict of arrays) to a stream, with the input's times if it has one record for each."""
        if timestamps is None:
            timestamps = self.timestamps
        elif isinstance(timestamps, pa.Array):
            timestamps = timestamps.cast(pa.int64()).to_numpy()
        self._box(output).add_batch(self._detached(columns), np.asarray(timestamps, np.int64))

    def _detached(self, columns: pa.RecordBatch | dict[str, Any]) -> pa.RecordBatch | dict[str, Any]:
        """What was made of the state's own memory is copied: it is to hold what the state holds now."""
        by_name = (
            columns if isinstance(columns, dict) else dict(zip(columns.schema.names, columns.columns, strict=True))
        )
        arrays = [values for values in by_name.values() if isinstance(values, pa.Array)]
        if not isinstance(self.state, ColumnarState) or not self.state.shares_memory(arrays):
            return columns
        return {name: v.take(_all_of(v)) if isinstance(v, pa.Array) else v for name, v in by_name.items()}

    def count_late(self, records: int) -> None:
        """So many records came too late, by the computation's own measure: its Input has `late="self"`."""
        self._late += records

    def take_late(self) -> int:
        late, self._late = self._late, 0
        return late

    def hold_watermark(self, at: Any) -> None:
        """Keeps the output mark at `at` on behalf of the whole shard, until moved or released with `None`."""
        self._shard_hold = None if at is None else micros(at)

    @property
    def shard_hold(self) -> Micros | None:
        return self._shard_hold
