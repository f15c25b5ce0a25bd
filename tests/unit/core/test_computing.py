"""A shard runs user code, and is a function of its order log: the same entries make the same shard and records."""

# mypy: disable-error-code="arg-type, dict-item, no-untyped-call"

import re
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.pipes import (
    COUNTS,
    LATE,
    NUMBER,
    Count,
    Pass,
    advance,
    bundle,
    picture,
    pipeline,
    records_of,
    rows_of,
    shard_of,
    take,
    wake,
)
from tidemill.core.computing import TIMER_SLICE
from tidemill.core.graph import ColumnState, Key, Late
from tidemill.core.ids import BEGINNING, END, LAST
from tidemill.core.order import BundleEntry, MarkEntry, WakeEntry, decode_entry, encode_entry
from tidemill.errors import DataError, TidemillError, UserCodeError

# A function of its order log


class Deeds:
    """Uses all that a replay must repeat: state, both clocks, holds, the time, randomness, two outputs, deletion."""

    def process_record(self, ctx, record):
        ctx.state += ctx.random.below(100)
        deed = record.n % 7
        if deed == 0:
            ctx.set_timer("bell", record.timestamp + 4)
        elif deed == 1:
            ctx.set_timer("clock", ctx.now + 3, clock="wall")
        elif deed == 2:
            ctx.hold_watermark(record.timestamp)
        elif deed == 3:
            ctx.hold_watermark(None)
        elif deed == 4:
            del ctx.state
            return
        elif deed == 5:
            ctx.produce(LATE, word=record.word, n=-1)
        ctx.produce(COUNTS, word=f"{ctx.now} {ctx.watermark}", n=ctx.state)

    def process_timer(self, ctx, timer):
        ctx.produce(COUNTS, word=timer.tag, n=ctx.random.bits() % 1000)
        ctx.state = (ctx.state + timer.at) % 1000
        if timer.clock == "event":
            ctx.set_timer("clock", ctx.now + 2, clock="wall")


TOTALS = ColumnState((("n", "int64"),))


class Columns:
    """The same for whole bundles."""

    def process_bundle(self, ctx, batch):
        rows = ctx.state.rows(batch.column("word"))
        np.add.at(ctx.state.n, rows, batch.column("n").to_numpy())
        numbers = ctx.state.n[rows] + ctx.random.below(10) + ctx.now
        ctx.produce_batch(COUNTS, {"word": batch.column("word"), "n": numbers})
        ctx.hold_watermark(int(ctx.timestamps.min()))

    def process_watermark(self, ctx):
        ctx.produce_batch(COUNTS, {"word": ctx.state.keys, "n": ctx.state.n}, [ctx.watermark] * len(ctx.state.keys))
        ctx.hold_watermark(None)


DIVERT = Late("divert", "late")
GRAPHS = {
    "record by record": pipeline(Deeds, state=NUMBER, late=DIVERT, sinks=("counts", "late")),
    "bundle by bundle": pipeline(Columns, state=TOTALS, late=DIVERT, sinks=("counts", "late"), vectorised=True),
}
WORDS = st.sampled_from(["a", "b", None])
ROWS = st.lists(st.tuples(WORDS, st.integers(0, 6), st.integers(0, 40)), min_size=1, max_size=4)
EVENTS = st.one_of(
    st.tuples(st.just("records"), ROWS, st.integers(0, 3)),
    st.tuples(st.just("mark"), st.integers(0, 40), st.integers(0, 40)),
    st.tuples(st.just("wake"), st.integers(0, 40), st.just(0)),
    st.tuples(st.just("flush"), st.just(0), st.just(0)),
)


def lived(graph, events):
    """A shard to which all this happened, the entries that it handled, and what left it."""
    shard, entries, left = shard_of(graph), [], []
    sent = [("first", 0, 0)]
    for now, (what, one, other) in enumerate(events):
        entry: Any
        if what == "records":
            known = max(0, len(sent) - other)  # some that were sent before come again
            sent += one
            entry = BundleEntry(bundle(*sent).part(known, len(sent)), now)
        elif what == "mark":
            entry = MarkEntry(one, other, now)
        elif what == "wake" and not shard.node.vectorised:
            entry = WakeEntry(one)
        else:
            left += shard.flush()
            continue
        handled = shard.handle(entry)
        if handled is not None:
            entries.append(encode_entry(handled))
    return shard, entries, [*left, *shard.flush()]


def in_order(timers):
    live = [(at, count, key, tag) for key in list(timers.keys()) for tag, at, count in timers.of_key(key)]
    return [(at, key, tag) for at, _, key, tag in sorted(live, key=lambda timer: timer[:2])]


def kept(shard):
    """All that a shard knows. Of timers, the order in which they will fire: a restored shard counts them anew."""
    head = shard.head()
    rows: Any = (
        {key: int(n) for key, n in zip(shard.state.keys, shard.state.n, strict=True)}
        if shard.node.vectorised
        else {key: (state, hold) for key, (state, _, _, hold) in picture(shard).items()}
    )
    timers = () if shard.node.vectorised else (shard.times.event, shard.times.wall)
    rows["timers"] = [in_order(each) for each in timers]
    return msgspec.to_builtins(head), rows, shard.output_mark(), shard.next_wake(), shard.pending_timer()


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
@settings(max_examples=60)
@given(events=st.lists(EVENTS, max_size=14), data=st.data())
def test_handling_the_same_entries_again_gives_the_same_shard_and_the_same_records(graph, events, data):
    shard, entries, left = lived(graph, events)
    again, left_again = shard_of(graph), []
    for data_of_entry in entries:
        entry = decode_entry(data_of_entry, graph)
        assert again.handle(entry) is entry, "all that was written down takes effect"
        if data.draw(st.booleans()):
            left_again += again.flush()
    left_again += again.flush()
    by_stream = {stream: [r for r in records_of(*left) if r[0] == stream] for stream in ("counts", "late")}
    assert by_stream == {s: [r for r in records_of(*left_again) if r[0] == s] for s in by_stream}
    assert kept(again) == kept(shard)


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
@settings(max_examples=40)
@given(events=st.lists(EVENTS, max_size=10), later=st.lists(EVENTS, max_size=4))
def test_a_shard_from_a_checkpoint_goes_on_as_the_one_that_lived_it(graph, events, later):
    shard, _, _ = lived(graph, events)
    head = shard.head()
    shard.freeze()
    pieces = []
    while more := shard.encode_slice(2):
        pieces += more
    again = shard_of(graph)
    again.restore_head(head)
    again.restore(pieces)
    assert kept(again) == kept(shard)
    first = 1_000
    for now, (what, one, other) in enumerate(later):
        entries = {
            "records": lambda: BundleEntry(bundle(*one, first=first), now),  # noqa: B023 - called at once
            "mark": lambda: MarkEntry(one, other, now),  # noqa: B023
        }
        if what in entries:
            entry = entries[what]()
            shard.handle(entry)
            again.handle(entry)
        first += 10
    assert records_of(*again.flush()) == records_of(*shard.flush())
    assert kept(again) == kept(shard)


# State, as user code sees it


def ran(program, *rows, state=NUMBER, **more):
    """A shard whose code is a function of the context and the record, and which has handled some rows."""

    class Program:
        def process_record(self, ctx, record):
            program(ctx, record)

        def process_timer(self, ctx, timer):
            ctx.produce(COUNTS, word=f"{timer.tag} {timer.clock}", n=timer.at)

    shard = shard_of(pipeline(Program, state=state, **more))
    take(shard, *rows)
    return shard


def test_each_key_has_state_of_its_own():
    shard = shard_of(pipeline(Count))
    take(shard, ("a", 0, 1), ("b", 0, 1), ("a", 0, 1), (None, 0, 1), (None, 0, 1))
    assert rows_of(*shard.flush()) == [("a", 1, 1), ("b", 1, 1), ("a", 2, 1), (None, 1, 1), (None, 2, 1)]


def test_state_that_is_replaced_is_kept_also_when_it_is_none():
    seen = []

    def program(ctx, record):
        seen.append(ctx.state)
        ctx.state = None if record.n else 5

    ran(program, ("a", 0, 1), ("a", 1, 1), ("a", 0, 1))
    assert seen == [0, 5, None]


def test_deleted_state_is_made_anew():
    seen = []

    def program(ctx, record):
        seen.append(ctx.state)
        ctx.state = 7
        if record.n:
            del ctx.state

    shard = ran(program, ("a", 0, 1), ("a", 1, 1), ("a", 0, 1), ("b", 1, 1))
    assert seen == [0, 7, 0, 0]
    assert shard.state.rows == {"a": 7}


def test_state_that_was_deleted_is_not_there_for_the_rest_of_the_call():
    def program(ctx, _):
        del ctx.state
        ctx.state += 1

    with pytest.raises(UserCodeError, match="declares no state, or this key's was deleted before"):
        ran(program, ("a", 0, 1))


def test_without_state_there_is_none():
    with pytest.raises(UserCodeError, match="the computation declares no state"):
        ran(lambda ctx, _: ctx.state, ("a", 0, 1), state=None)


# Timers and holds


def test_timers_fire_for_their_key_in_order_when_the_mark_has_come_to_them():
    class Bells(Pass):
        def process_record(self, ctx, record):
            ctx.set_timer("bell", record.n)

        def process_timer(self, ctx, timer):
            ctx.produce(COUNTS, word=ctx.key, n=timer.at)

    shard = shard_of(pipeline(Bells, state=None))
    take(shard, ("a", 30, 1), ("b", 20, 1), ("c", 40, 1))
    advance(shard, 30)
    assert rows_of(*shard.flush()) == [("b", 20, 20), ("a", 30, 30)]
    assert (shard.output_mark(), shard.pending_timer()) == (30, False)
    advance(shard, 100)
    assert rows_of(*shard.flush()) == [("c", 40, 40)]


def test_a_pending_timer_holds_the_output_mark():
    shard = ran(lambda ctx, _: ctx.set_timer("bell", 20), ("a", 0, 1))
    advance(shard, 10)
    assert shard.output_mark() == 10
    advance(shard, 20, outside=50)
    assert shard.output_mark() == 50
    take(shard, ("a", 0, 30), first=2)
    assert (shard.output_mark(), shard.pending_timer()) == (20, True)


def test_a_timer_may_set_the_next_one():
    class Chain(Pass):
        def process_record(self, ctx, record):
            ctx.set_timer("next", record.timestamp)

        def process_timer(self, ctx, timer):
            ctx.produce(COUNTS, word=timer.tag, n=timer.at)
            ctx.set_timer("next", timer.at + 10)

    shard = shard_of(pipeline(Chain, state=None))
    take(shard, ("a", 0, 5))
    advance(shard, 30)
    assert [at for _, at, _ in rows_of(*shard.flush())] == [5, 15, 25]
    assert shard.output_mark() == 30


def test_one_event_fires_a_slice_of_timers_and_the_next_the_rest():
    def program(ctx, record):
        ctx.set_timer(str(record.n), 5)

    shard = ran(program, *(("a", n, 1) for n in range(TIMER_SLICE + 3)))
    advance(shard, 10)
    assert shard.produced == TIMER_SLICE
    assert shard.pending_timer()
    assert shard.output_mark() == 5
    advance(shard, 10)
    assert shard.produced == TIMER_SLICE + 3
    assert not shard.pending_timer()


def test_a_wall_timer_fires_by_the_clock_on_the_wall_and_produces_nothing_behind_the_mark():
    shard = ran(lambda ctx, _: ctx.set_timer("clock", 500, clock="wall"), ("a", 0, 1))
    assert shard.next_wake() == 500
    advance(shard, 90)
    assert (shard.produced, shard.output_mark()) == (0, 90)
    wake(shard, 499)
    assert shard.produced == 0
    wake(shard, 500)
    assert rows_of(*shard.flush()) == [("clock wall", 500, 90)]
    assert shard.next_wake() is None


def test_a_wall_timer_holds_back_the_end_and_nothing_else():
    shard = ran(lambda ctx, _: ctx.set_timer("clock", 500, clock="wall"), ("a", 0, 1))
    advance(shard, END)
    assert shard.output_mark() == LAST
    wake(shard, 500)
    assert rows_of(*shard.flush()) == [("clock wall", 500, LAST)]
    assert shard.output_mark() == END


def test_the_least_hold_of_all_keys_holds_the_output_mark_until_it_is_let_go():
    holds = {"a": 20, "b": 10}
    shard = ran(
        lambda ctx, record: ctx.hold_watermark(record.n or None), *((word, at, 30) for word, at in holds.items())
    )
    advance(shard, 30)
    assert shard.output_mark() == 10
    take(shard, ("b", 0, 30), first=3)
    assert shard.output_mark() == 20
    take(shard, ("a", 25, 30), first=4)
    assert shard.output_mark() == 25


def test_inside_a_cycle_the_output_mark_follows_the_senders_outside():
    shard = shard_of(pipeline(Count))
    advance(shard, 10, outside=40)
    assert (shard.mark, shard.output_mark()) == (10, 40)


# Late records


def late(shard, *, mark=50):
    """A record on time, the mark, then one on the mark, one behind it, and one before it."""
    take(shard, ("early", 0, 10))
    advance(shard, mark)
    shard.flush()
    entry = BundleEntry(bundle(("on", 0, 50), ("behind", 1, 49), ("after", 2, 51), first=2), 0)
    assert shard.handle(entry) is entry
    left = shard.flush()
    return {stream: rows_of(*(each for each in left if each.stream == stream)) for stream in ("counts", "late")}


def lates(how, vectorised=False):
    if vectorised:
        return shard_of(pipeline(Echo, state=None, late=how, vectorised=True))
    return shard_of(pipeline(Pass, state=None, late=how))


class Echo:
    def process_bundle(self, ctx, batch):
        ctx.produce_batch(COUNTS, batch)

    def process_watermark(self, ctx):
        pass


ON, BEHIND, AFTER = ("on", 0, 50), ("behind", 1, 49), ("after", 2, 51)


@pytest.mark.parametrize("vectorised", [False, True])
def test_late_records_are_dropped_and_counted(vectorised):
    shard = lates(Late("drop"), vectorised)
    assert late(shard) == {"counts": [ON, AFTER], "late": []}
    assert shard.late == 1


@pytest.mark.parametrize("vectorised", [False, True])
def test_late_records_may_be_processed_all_the_same(vectorised):
    shard = lates(Late("process"), vectorised)
    assert late(shard) == {"counts": [ON, BEHIND, AFTER], "late": []}
    assert shard.late == 1


@pytest.mark.parametrize("vectorised", [False, True])
def test_late_records_may_be_diverted_as_they_came(vectorised):
    shard = lates(Late("divert", "late"), vectorised)
    assert late(shard) == {"counts": [ON, AFTER], "late": [BEHIND]}
    assert shard.late == 1


@pytest.mark.parametrize(
    ("choice", "counts", "diverted"),
    [("drop", [ON, AFTER], []), ("process", [ON, BEHIND, AFTER], []), ("divert", [ON, AFTER], [BEHIND])],
)
def test_a_function_chooses_for_each_late_record(choice, counts, diverted):
    asked = []

    def choose(record, watermark):
        asked.append((record.word, watermark))
        return choice

    shard = lates(Late("drop", "late", choose))
    assert late(shard) == {"counts": counts, "late": diverted}
    assert asked == [("behind", 50)]
    assert shard.late == 1


def test_a_bundle_of_late_records_only_runs_no_code():
    shard = lates(Late("drop"))
    advance(shard, 100)
    assert take(shard, ("a", 0, 5)) is not None, "it is an event: the records are known now"
    assert take(shard, ("a", 0, 5)) is None
    assert (shard.produced, shard.late) == (0, 1)


@pytest.mark.parametrize(("answer", "stream"), [("keep", "late"), (None, "late"), ("divert", None)])
def test_the_function_must_answer_with_what_there_is(answer, stream):
    shard = lates(Late("drop", stream, lambda *_: answer))
    with pytest.raises(TidemillError, match=re.escape(f"late= returned {answer!r}")):
        late(shard)


def test_a_function_that_raises_is_named_with_the_record():
    shard = lates(Late("drop", None, lambda record, _: record.nothing))
    with pytest.raises(UserCodeError, match=r"late= .* raised AttributeError: .*, stream 'words', record 1:3"):
        late(shard)


def test_without_marks_nothing_is_late():
    shard = lates(Late("drop"))
    take(shard, ("a", 0, BEGINNING))
    assert shard.late == 0


# When user code raises


@pytest.mark.parametrize("state", [NUMBER, None])
@pytest.mark.parametrize("place", [0, 1, 30, 59])
def test_an_exception_of_the_user_s_says_where(place, state):
    def program(_, record):
        if record.n == place:
            raise KeyError("oops")

    with pytest.raises(UserCodeError) as caught:
        ran(program, *((f"w{n}", n, 1) for n in range(60)), state=state)
    assert str(caught.value) == (
        "count.process_record (declared at here.py:1) raised KeyError: 'oops' "
        f"for key 'w{place}', stream 'words', record 1:{place + 1}"
    )
    assert isinstance(caught.value.__cause__, KeyError)


def test_of_records_with_gaps_the_right_one_is_named():
    def program(_, record):
        if record.n == 4:
            raise ValueError

    shard = ran(program, ("x", 0, 0))
    gappy = bundle(*((f"w{n}", n, 1) for n in range(6)), first=10).take(np.array([1, 4]))
    with pytest.raises(UserCodeError, match="for key 'w4', stream 'words', record 1:14"):
        shard.handle(BundleEntry(gappy, 0))


def test_an_exception_in_a_timer_says_which():
    class Bell(Pass):
        def process_record(self, ctx, record):
            ctx.set_timer("bell", record.timestamp)

        def process_timer(self, _, timer):
            raise ValueError(timer.at)

    shard = shard_of(pipeline(Bell))
    take(shard, ("a", 0, 5))
    with pytest.raises(UserCodeError, match=r"count.process_timer\('bell'\) .* raised ValueError: 5 for key 'a'$"):
        advance(shard, 10)


def test_our_own_complaints_stay_what_they_are_and_learn_where():
    with pytest.raises(DataError, match=r"no output of this computation.*for key 'a', stream 'words', record 1:1"):
        ran(lambda ctx, _: ctx.produce(LATE, word="a", n=1), ("a", 0, 1))


def test_an_exception_in_a_bundle_or_at_a_mark_says_which():
    class Raises(Echo):
        def process_bundle(self, _, batch):
            raise ValueError(batch.num_rows)

        def process_watermark(self, ctx):
            raise ValueError(ctx.watermark)

    shard = shard_of(pipeline(Raises, state=None, vectorised=True))
    with pytest.raises(UserCodeError, match=r"process_bundle .* raised ValueError: 2, stream 'words', record 1:1"):
        take(shard, ("a", 0, 1), ("b", 0, 1))
    with pytest.raises(UserCodeError, match=r"process_watermark .* raised ValueError: 7$"):
        advance(shard, 7)


# Bundle by bundle


def test_a_bundle_comes_as_the_user_s_schema_says():
    seen = []

    class Look(Echo):
        def process_bundle(self, _, batch):
            seen.append((batch.schema.names, batch.num_rows))

    shard = shard_of(pipeline(Look, state=None, vectorised=True))
    take(shard, ("a", 0, 1), ("b", 0, 1))
    assert seen == [(["word", "n"], 2)]


def test_a_hold_of_the_whole_shard_holds_its_output_mark_and_is_kept():
    class Hold(Echo):
        def process_bundle(self, ctx, batch):
            ctx.hold_watermark(batch.column("n")[0].as_py() or None)

    shard = shard_of(pipeline(Hold, state=None, vectorised=True))
    take(shard, ("a", 20, 60))
    advance(shard, 50)
    assert shard.output_mark() == 20
    again = shard_of(pipeline(Hold, state=None, vectorised=True))
    again.restore_head(shard.head())
    assert again.output_mark() == 20
    take(shard, ("a", 0, 60), first=2)
    assert shard.output_mark() == 50


def test_timestamps_belong_to_a_bundle():
    class Ask(Echo):
        def process_watermark(self, ctx):
            _ = ctx.timestamps

    shard = shard_of(pipeline(Ask, state=None, vectorised=True))
    with pytest.raises(TidemillError, match=r"process_watermark\(\) has none"):
        advance(shard, 7)


def test_without_state_there_is_nothing_to_save():
    shard = shard_of(pipeline(Echo, state=None, vectorised=True))
    shard.freeze()
    assert shard.encode_slice(10) == []
    shard.restore([])
    assert (shard.next_wake(), shard.pending_timer()) == (None, False)
    with pytest.raises(AssertionError, match="no wall timers"):
        wake(shard, 1)


# Keys


def test_keys_of_several_columns_are_tuples_and_a_function_s_are_what_it_returns():
    seen = []

    class Look(Pass):
        def process_record(self, ctx, _):
            seen.append(ctx.key)

    for key in (Key(("n", "word"), (pa.int64(), pa.string())), Key(function=lambda record: record.n + 1)):
        take(shard_of(pipeline(Look, key=key)), ("a", 1, 1))
    assert seen == [(1, "a"), 2]
