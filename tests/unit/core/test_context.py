"""What user code is given: one key's state, timers and time, and randomness that a replay repeats."""

# mypy: disable-error-code="arg-type, dict-item"

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.pipes import COUNTS, LATE, NUMBER, Port, pipeline, rows_of, shard_of, take
from tidemill.core.context import micros
from tidemill.core.graph import ColumnState
from tidemill.core.ids import BEGINNING, LAST
from tidemill.errors import DataError, TidemillError

# Times as user code gives them


@given(st.datetimes(timezones=st.sampled_from([dt.timezone.utc, dt.timezone(dt.timedelta(hours=9))])))
def test_a_datetime_is_its_microseconds(at):
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
    assert epoch + dt.timedelta(microseconds=micros(at)) == at
    assert micros(at.astimezone(dt.timezone.utc).replace(tzinfo=None)) == micros(at)


def test_numbers_are_microseconds_also_those_of_numpy():
    assert micros(17) == 17
    assert micros(np.int32(17)) == 17
    assert type(micros(np.int64(17))) is int
    assert micros(BEGINNING) == BEGINNING
    assert micros(LAST) == LAST


@pytest.mark.parametrize("at", [LAST + 1, BEGINNING - 1, 1.5, "now", None, True, dt.date(2024, 1, 1)])
def test_what_is_no_time_is_refused(at):
    with pytest.raises(TidemillError, match="is no time"):
        micros(at)


# Record by record


def run(program, *rows, state=NUMBER, now=0, seed=7, shard=9, vectorised=False):
    """What a program, given as a function of the context and the record, makes of some rows."""

    class Program:
        def process_record(self, ctx, record):
            program(ctx, record)

        def process_bundle(self, ctx, batch):
            program(ctx, batch)

    made = shard_of(pipeline(Program, state=state, vectorised=vectorised), shard=shard, seed=seed)
    take(made, *rows, now=now)
    return made


def test_a_production_bears_the_time_of_its_record_unless_given_one():
    def program(ctx, record):
        ctx.produce(COUNTS, word=record.word, n=1)
        ctx.produce(COUNTS, timestamp=77, word=record.word, n=2)
        ctx.produce(COUNTS, timestamp=dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.timezone.utc), word="x", n=3)

    shard = run(program, ("a", 0, 5))
    assert rows_of(*shard.flush()) == [("a", 1, 5), ("a", 2, 77), ("x", 3, 1_000_000)]


def test_it_says_what_time_it_is():
    seen = []
    run(lambda ctx, _: seen.append((ctx.key, ctx.now, ctx.watermark, ctx.at)), ("a", 0, 5), now=33)
    assert seen == [("a", 33, BEGINNING, 5)]


@pytest.mark.parametrize("output", [LATE, Port("counts"), "counts", None, ["counts"]])
def test_only_its_own_outputs_can_be_produced_to(output):
    with pytest.raises(DataError, match=r"which is no output of this computation; its outputs are: counts"):
        run(lambda ctx, _: ctx.produce(output, word="a", n=1), ("a", 0, 5))


def test_clocks_have_names():
    for call in ("set_timer", "cancel_timer"):
        arguments = ("t", 5) if call == "set_timer" else ("t",)
        with pytest.raises(TidemillError, match="clock='moon' is unknown"):
            run(lambda ctx, _, c=call, a=arguments: getattr(ctx, c)(*a, clock="moon"), ("a", 0, 5))


def drawn(*bundles, shard=9, seed=7):
    """The numbers that each record draws, for rows in bundles."""
    found: list = []

    class Program:
        def process_record(self, ctx, _):
            found.append(ctx.random.bits())

    made = shard_of(pipeline(Program, state=None), shard=shard, seed=seed)
    first = 1
    for rows in bundles:
        take(made, *rows, first=first)
        first += len(rows)
    return found


def test_randomness_follows_from_the_plan_the_shard_and_the_event():
    rows = [[("a", 0, 1), ("a", 0, 1)], [("a", 0, 1)]]
    assert drawn(*rows) == drawn(*rows)
    assert len(set(drawn(*rows))) == 3
    assert set(drawn(*rows)).isdisjoint(drawn(*rows, seed=8))
    assert set(drawn(*rows)).isdisjoint(drawn(*rows, shard=10))


# Bundle by bundle

TOTALS = ColumnState((("n", "int64"),))


def vectorised(program, *rows):
    return run(program, *rows, state=TOTALS, vectorised=True)


def test_a_batch_bears_the_times_of_its_input_if_it_has_as_many_records():
    made = vectorised(lambda ctx, batch: ctx.produce_batch(COUNTS, batch), ("a", 1, 10), ("b", 2, 20))
    assert rows_of(*made.flush()) == [("a", 1, 10), ("b", 2, 20)]
    with pytest.raises(DataError, match="1 records were produced with 2 timestamps"):
        vectorised(lambda ctx, batch: ctx.produce_batch(COUNTS, batch.slice(1)), ("a", 1, 10), ("b", 2, 20))


@pytest.mark.parametrize(
    "times", [[7, 8], np.array([7, 8]), pa.array([7, 8]), pa.array([7, 8], pa.timestamp("us", "UTC"))]
)
def test_a_batch_may_be_given_its_times(times):
    made = vectorised(lambda ctx, batch: ctx.produce_batch(COUNTS, batch, times), ("a", 1, 10), ("b", 2, 20))
    assert rows_of(*made.flush()) == [("a", 1, 7), ("b", 2, 8)]


def test_a_bundle_knows_its_stream_and_its_times():
    seen = []
    vectorised(lambda ctx, _: seen.append((ctx.stream, ctx.timestamps.tolist())), ("a", 1, 10), ("b", 2, 20))
    assert seen == [("words", [10, 20])]


def test_only_its_own_outputs_take_batches():
    with pytest.raises(DataError, match="its outputs are: counts"):
        vectorised(lambda ctx, batch: ctx.produce_batch(LATE, batch), ("a", 1, 10))


@pytest.mark.parametrize(
    "made_of",
    [
        lambda words, numbers: {"word": words, "n": numbers},
        lambda words, numbers: {"word": words, "n": pa.array(numbers)},
        lambda words, numbers: pa.record_batch({"word": words, "n": pa.array(numbers)}),
        lambda words, numbers: pa.record_batch({"n": pa.array(numbers), "word": words}),
    ],
)
def test_what_was_made_of_the_state_does_not_change_with_it(made_of):
    """Whether a flush came between two bundles must not be seen in what was produced."""

    class Totals:
        def process_bundle(self, ctx, batch):
            rows = ctx.state.rows(batch.column("word"))
            ctx.state.n[rows] += 1
            ctx.produce_batch(COUNTS, made_of(ctx.state.keys, ctx.state.n), ctx.state.n)

    shard = shard_of(pipeline(Totals, state=TOTALS, vectorised=True))
    take(shard, ("a", 0, 1))
    take(shard, ("a", 0, 1), first=2)
    assert rows_of(*shard.flush()) == [("a", 1, 1), ("a", 2, 2)]
