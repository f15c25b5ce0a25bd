"""The shard of a computation: where user code runs.

The loop over records is the hottest code of the system, so it does per bundle what can be done per bundle: columns
become lists, records are made by one `map`, touched keys are marked in one update. What is left for each record is two
assignments, one look-up and the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import length_hint
from typing import Any, Final

import numpy as np

from tidemill.core.bundle import Bundle, times_of, without_times
from tidemill.core.columns import ColumnarState, SavedColumns
from tidemill.core.context import BundleContext, Context
from tidemill.core.graph import ColumnState, Graph, Late, RowState, TableState
from tidemill.core.ids import LAST, Micros, Position, StreamName
from tidemill.core.keying import columns_of
from tidemill.core.keys import KeyRange, ring_positions
from tidemill.core.order import BundleEntry, Entry, MarkEntry, WakeEntry
from tidemill.core.shard import Head, Place, Shard, held
from tidemill.core.state import KeyedState, SavedRow, new_key_times
from tidemill.core.table import SavedTable, Table
from tidemill.core.timers import NOBODY, Clock, Timer, Timers
from tidemill.errors import TidemillError, UserCodeError

TIMER_SLICE: Final = 4096
"""How many timers one event fires at most; the rest come with the next, so that records get their turn."""


class ComputationShard(Shard):
    """What both forms of user code share: late records, marks, the wrapping of errors."""

    def __init__(self, graph: Graph, place: Place) -> None:
        super().__init__(graph, place)
        assert self.node.make is not None
        self.program = self.node.make()
        self.ports = {port: self.boxes[stream] for port, stream in zip(self.node.ports, self.node.outputs, strict=True)}
        self._late: dict[StreamName, Late] = {
            s.stream: s.late for s in graph.subscriptions if s.consumer == self.node.name
        }

    def handle(self, entry: Entry) -> Entry | None:
        match entry:
            case BundleEntry(bundle, now):
                fresh = self.admit(bundle)
                if fresh is None:
                    return None
                self.events += 1
                kept = fresh if fresh.oldest >= self.mark else self._judged(fresh)
                if kept is not None:
                    self._run(kept, now)
                return entry if fresh is bundle else BundleEntry(fresh, now)
            case MarkEntry(mark, outside, now):
                self.events += 1
                self.mark = Micros(max(self.mark, mark))
                self.outside = Micros(max(self.outside, outside))
                self._advance(now)
                return entry
            case WakeEntry(now):
                self.events += 1
                self._wake(now)
                return entry
            case _:
                raise AssertionError(f"a computation does not handle {entry!r}")

    def _run(self, bundle: Bundle, now: Micros) -> None:
        raise NotImplementedError

    def _advance(self, now: Micros) -> None:
        raise NotImplementedError

    def _wake(self, now: Micros) -> None:
        raise NotImplementedError

    def absorb(self, other: Shard) -> None:
        """Takes over a parent after a split or a merge; parents have no key in common."""
        raise NotImplementedError

    def keep_range(self, range: KeyRange) -> None:
        """Forgets the keys outside the range, which went to another owner."""
        raise NotImplementedError

    def key_position(self, key: Any) -> Position:
        """Where on the ring a key lies."""
        return next(iter(self.keyings.values())).position(key)

    def _judged(self, bundle: Bundle) -> Bundle | None:
        """Some records are behind the mark: drops, keeps or diverts each of them as the pipeline says."""
        late = self._late[bundle.stream]
        if late.choice == "self":
            return bundle
        behind = times_of(bundle.batch) < self.mark
        self.late += int(behind.sum())
        choices = self._choices(late, bundle, behind)
        if late.stream is not None:
            diverted = behind & (choices == "divert")
            if diverted.any():
                batch = bundle.take(np.flatnonzero(diverted)).batch
                self.boxes[late.stream].add_batch(without_times(batch), times_of(batch))
        kept = ~behind | (choices == "process")
        if kept.all():
            return bundle
        return bundle.take(np.flatnonzero(kept)) if kept.any() else None

    def _choices(self, late: Late, bundle: Bundle, behind: Any) -> Any:
        if late.choose is None:
            return np.full(bundle.rows, late.choice)
        make = self.keyings[bundle.stream].make_record
        choices = np.full(bundle.rows, "process", dtype="U7")
        rows = list(zip(*columns_of(bundle.batch), strict=True))
        for place in np.flatnonzero(behind).tolist():
            try:
                choice = late.choose(make(rows[place]), self.mark)
            except Exception as error:
                raise self._failed(error, "late=", None, bundle, place) from error
            if choice not in ("drop", "process", "divert") or (choice == "divert" and late.stream is None):
                raise TidemillError(
                    f"{self.node.name}: the function given as late= returned {choice!r}; it must return "
                    '"drop", "process" or, where an output to divert to was given, "divert"'
                )
            choices[place] = choice
        return choices

    def _failed(self, error: Exception, hook: str, key: Any, bundle: Bundle | None, place: int) -> Exception:
        """The user's exception, with where it happened; the original stays chained to it."""
        where = f"{self.node.name}.{hook} (declared at {self.node.declared_at})"
        about = "" if bundle is None else f", stream {bundle.stream!r}"
        if bundle is not None and place >= 0:
            about += f", record {bundle.origin}:{bundle.sequences[place]}"
        if isinstance(error, AttributeError) and error.name == "state" and isinstance(error.obj, Context):
            about += "; the computation declares no state, or this key's was deleted before"
        of_key = "" if key is None else f" for key {key!r}"
        if isinstance(error, TidemillError):  # our own word to the user: it stays what it is, and learns where
            return type(error)(f"{error} [in {where}{of_key}{about}]")
        return UserCodeError(f"{where} raised {type(error).__name__}: {error}{of_key}{about}")


class RecordShard(ComputationShard):
    """Runs `process_record` and `process_timer`, one key at a time."""

    def __init__(self, graph: Graph, place: Place, plan_seed: int) -> None:
        super().__init__(graph, place)
        assert self.node.state is None or isinstance(self.node.state, RowState)
        self.times = new_key_times()
        self.state = KeyedState(self.node.state, self.times)
        self.ctx = Context(self.ports, plan_seed, place.shard, self.times, self.state.touch)

    def _run(self, bundle: Bundle, now: Micros) -> None:
        keying = self.keyings[bundle.stream]
        columns = columns_of(bundle.batch)
        keys = keying.keys(columns)
        keys = keys if isinstance(keys, list) else list(keys)
        self.ctx.begin_event(self.events, now, self.mark)
        turns = iter(keys)
        paced = self._paced(turns, columns[-1], now)
        try:
            records = map(keying.make_record, zip(*columns, strict=True))
            if self.node.state is None:
                self._run_stateless(paced, columns[-1], records)
            else:
                self._run_stateful(paced, columns[-1], records)
        except UserCodeError:
            raise  # of a timer in between; it says where
        except Exception as error:
            place = bundle.rows - length_hint(turns) - 1
            raise self._failed(error, "process_record", self.ctx.key, bundle, place) from error

    def _paced(self, keys: Iterator[Any], times: list[Micros], now: Micros) -> Iterator[Any]:  # noqa: ARG002
        """What goes through the records, one key at a time; a shard may do something in between."""
        return keys

    def _run_stateful(self, keys: Iterable[Any], times: list[Micros], records: Iterable[Any]) -> None:
        ctx, active, process = self.ctx, self.state.active, self.program.process_record
        for key, at, record in zip(keys, times, records, strict=True):
            ctx.key = key
            ctx.at = at
            ctx.state = state = active[key]
            process(ctx, record)
            try:
                if ctx.state is not state:
                    self.state.replace(key, ctx.state)
            except AttributeError:  # `del ctx.state` forgets the key
                self.state.delete(key)

    def _run_stateless(self, keys: Iterable[Any], times: list[Micros], records: Iterable[Any]) -> None:
        ctx, process = self.ctx, self.program.process_record
        for key, at, record in zip(keys, times, records, strict=True):
            ctx.key = key
            ctx.at = at
            process(ctx, record)

    def _advance(self, now: Micros) -> None:
        self._fire(self.times.event, "event", self.mark, now)

    def _wake(self, now: Micros) -> None:
        self._fire(self.times.wall, "wall", now, now)

    def _fire(self, timers: Timers, clock: Clock, until: Micros, now: Micros) -> None:
        self.ctx.begin_event(self.events, now, self.mark)
        for _ in range(TIMER_SLICE):
            key = timers.due_key(until)
            if key is NOBODY:
                return
            self.state.touch(key)  # before the timer is taken out: a checkpoint under way must still see it
            due = timers.pop()
            # What a wall timer produces must not be behind the mark that the receivers were told.
            at = due.at if clock == "event" else Micros(min(self.output_mark(), LAST))
            self._process_timer(due.key, Timer(due.tag, due.at, clock), at)

    def _process_timer(self, key: Any, timer: Timer, at: Micros) -> None:
        ctx = self.ctx
        ctx.key = key
        ctx.at = at
        stateful = self.node.state is not None
        if stateful:
            ctx.state = self.state.active[key]
        try:
            self.program.process_timer(ctx, timer)
        except Exception as error:
            raise self._failed(error, f"process_timer({timer.tag!r})", key, None, -1) from error
        if stateful:
            try:
                self.state.replace(key, ctx.state)
            except AttributeError:
                self.state.delete(key)

    def output_mark(self) -> Micros:
        return held(
            self.outside,
            self.times.event.first(),
            self.times.holds.first(),
            wall_pending=self.times.wall.first() is not None,
        )

    def next_wake(self) -> Micros | None:
        return self.times.wall.first()

    def pending_timer(self) -> bool:
        first = self.times.event.first()
        return first is not None and first <= self.mark

    def freeze(self) -> None:
        self.state.freeze()

    def encode_slice(self, limit: int) -> list[SavedRow]:
        return self.state.encode_slice(limit)

    def restore(self, rows: Iterable[SavedRow]) -> None:
        self.state.restore(rows)

    def keep_range(self, range: KeyRange) -> None:
        self.state.forget([key for key in self.state.known_keys() if not range.contains(self.key_position(key))])

    def absorb(self, other: Shard) -> None:
        assert isinstance(other, RecordShard)
        self.state.absorb(other.state)
        for mine, theirs in zip(self.times, other.times, strict=True):
            mine.absorb(theirs)


class BundleShard(ComputationShard):
    """Runs `process_bundle` and `process_watermark`, a whole bundle at a time."""

    def __init__(self, graph: Graph, place: Place, plan_seed: int) -> None:
        super().__init__(graph, place)
        self.state = _bulk_state(self.node.state)
        self.ctx = BundleContext(self.ports, plan_seed, place.shard, self.state)

    def _run(self, bundle: Bundle, now: Micros) -> None:
        self.ctx.begin_event(self.events, now, self.mark)
        self.ctx.begin_bundle(bundle.stream, times_of(bundle.batch))
        try:
            self.program.process_bundle(self.ctx, without_times(bundle.batch))
        except Exception as error:
            raise self._failed(error, "process_bundle", None, bundle, 0) from error
        self.late += self.ctx.take_late()

    def _advance(self, now: Micros) -> None:
        self.ctx.begin_event(self.events, now, self.mark)
        self.ctx.begin_bundle("", None)
        try:
            self.program.process_watermark(self.ctx)
        except Exception as error:
            raise self._failed(error, "process_watermark", None, None, -1) from error

    def _wake(self, now: Micros) -> None:
        raise AssertionError(f"a vectorised computation has no wall timers to fire at {now}")

    def output_mark(self) -> Micros:
        return held(self.outside, None, self.hold(), wall_pending=False)

    def hold(self) -> Micros | None:
        return self.ctx.shard_hold

    def restore_head(self, head: Head) -> None:
        super().restore_head(head)
        self.ctx.hold_watermark(head.hold)

    def freeze(self) -> None:
        if self.state is not None:
            self.state.freeze()

    def encode_slice(self, limit: int) -> list[SavedColumns] | list[SavedTable]:
        return self.state.encode_slice(limit) if self.state is not None else []

    def restore(self, pieces: Iterable[Any]) -> None:
        if self.state is not None:
            self.state.restore(pieces)

    def absorb(self, other: Shard) -> None:
        assert isinstance(other, BundleShard)
        mine: Any = self.state  # both are of one kind, for both are of one computation
        if mine is not None:
            mine.absorb(other.state)
        holds = [hold for hold in (self.hold(), other.hold()) if hold is not None]
        self.ctx.hold_watermark(min(holds, default=None))

    def keep_range(self, range: KeyRange) -> None:
        if isinstance(self.state, ColumnarState):
            self.state.keep([range.contains(self.key_position(key)) for key in self.state.keys])
        elif self.state is not None:
            assert isinstance(self.node.state, TableState)
            places = [self.node.state.schema.get_field_index(name) for name in self.node.state.keys]
            types = [self.node.state.schema.field(place).type for place in places]
            self.state.keep(lambda batch: range.covers(ring_positions([batch.column(p) for p in places], types)))


def _bulk_state(spec: RowState | ColumnState | TableState | None) -> ColumnarState | Table | None:
    """The state of a computation that works on whole bundles."""
    assert not isinstance(spec, RowState)
    if isinstance(spec, TableState):
        return Table(spec)
    return None if spec is None else ColumnarState(spec)
