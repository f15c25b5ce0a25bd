"""Records that a function makes: never before they are due, and the same ones after every rewind."""

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tidemill as tm
from tidemill.core.ids import BEGINNING, END, LAST
from tidemill.errors import DataError, PipelineError, SchemaError
from tidemill.ports import Preparable, Source
from tidemill.sources import generator as module

HERE = r"the Generator declared at test_generator.py:\d+"
THERE = HERE.replace("the", "The", 1)
START = 1_700_000_000_000_000
SECOND = 1_000_000


def numbered(index):
    return {"n": index}


def timed(index):
    return index, index * 10


def numbered_columns(indices):
    return {"n": indices}


@pytest.fixture
def at(monkeypatch):
    """Sets the wall clock to so many seconds after the start."""

    def at(seconds):
        monkeypatch.setattr(module, "wall_clock", lambda: START + round(seconds * SECOND))

    at(0)
    return at


def generator(make=numbered, schema="n long", timestamp=None, **options):
    return tm.sources.Generator(make, schema, timestamp, **options)


def numbers(chunk):
    return chunk.batch.column("n").to_pylist()


def all_chunks(source, split="0", position=0, limit=3):
    reader = source.open(split, position)
    read = [reader.read(limit)]
    while not read[-1].ended:
        read.append(reader.read(limit))
    reader.close()
    return read


def all_numbers(source, split="0", **options):
    return [n for chunk in all_chunks(source, split, **options) for n in numbers(chunk)]


def test_a_generator_is_a_source_that_is_prepared():
    source = generator(count=3)
    assert isinstance(source, Source)
    assert isinstance(source, Preparable)
    assert (source.schema, source.timestamp) == (pa.schema([("n", pa.int64())]), None)


def test_records_are_dealt_to_the_splits_in_turn():
    source = generator(count=7, splits=3)
    assert source.splits() == ["0", "1", "2"]
    assert [all_numbers(source, split) for split in source.splits()] == [[0, 3, 6], [1, 4], [2, 5]]


@pytest.mark.parametrize("rate", [None, 5])
@pytest.mark.parametrize(("count", "splits"), [(0, 1), (1, 2)])
def test_a_split_without_records_has_ended(rate, count, splits):
    source = generator(count=count, splits=splits, rate=rate).prepared(START)
    (chunk,) = all_chunks(source, source.splits()[-1])
    assert (chunk.batch.num_rows, chunk.watermark, chunk.ended, chunk.wait) == (0, END, True, 0)
    assert chunk.batch.schema == source.schema


def test_without_a_count_there_is_no_end_and_without_a_rate_no_wait():
    reader = generator().open("0", 10**12)
    chunk = reader.read(1000)
    assert numbers(chunk) == list(range(10**12, 10**12 + 1000))
    assert (chunk.ended, chunk.wait, chunk.idle) == (False, 0, False)


def test_a_record_is_given_when_it_is_due_and_not_before(at):
    reader = generator(rate=2, count=4).prepared(START).open("0", 0)
    assert numbers(reader.read(9)) == [0]
    at(0.3)
    early = reader.read(9)
    assert (numbers(early), early.position, early.wait, early.ended, early.idle) == ([], 1, 200_000, False, False)
    at(0.499999)
    assert reader.read(9).wait == 1
    at(0.5)
    due = reader.read(9)
    assert (numbers(due), due.wait) == ([1], 0)
    at(-3600)  # the clock was set back
    assert (numbers(reader.read(9)), reader.read(9).wait) == ([], 3601 * SECOND)
    at(9)
    last = reader.read(9)
    assert (numbers(last), last.ended, last.watermark) == ([2, 3], True, END)


def test_who_is_behind_gives_what_is_due_up_to_the_limit(at):
    at(100)
    reader = generator(rate=10).prepared(START).open("0", 0)
    assert numbers(reader.read(600)) == list(range(600))
    assert numbers(reader.read(600)) == list(range(600, 1001))
    assert reader.read(600).wait == 100_000


def test_the_rate_is_that_of_all_splits_together(at):
    source = generator(rate=4, splits=2).prepared(START)
    at(1)
    assert [numbers(source.open(split, 0).read(9)) for split in "01"] == [[0, 2, 4], [1, 3]]
    reader = source.open("1", 2)
    assert (reader.read(9).wait, reader.read(9).position) == (250_000, 2)


@example(rate=2_000_001.0, splits=1, position=0, elapsed=0, limit=3)  # three in the first microsecond
@given(
    st.one_of(st.integers(1, 10**7), st.floats(1e-3, 1e7)),
    st.integers(1, 4),
    st.integers(0, 10**7),
    st.integers(0, 10**10),
    st.integers(1, 50),
)
def test_due_is_start_and_number_by_rate(rate, splits, position, elapsed, limit):
    source = generator(rate=rate, splits=splits, timestamp=tm.sources.SCHEDULED).prepared(START)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "wall_clock", lambda: START + elapsed)
        chunk = source.open("0", position).read(limit)
    due = [START + int(n * 1e6 / rate) for n in range(position * splits, (position + limit + 1) * splits, splits)]
    given = [time for time in due[:limit] if time <= START + elapsed]
    assert chunk.times.tolist() == given
    assert chunk.position == position + len(given)
    assert chunk.watermark == due[len(given)]
    assert chunk.wait == (0 if given else due[0] - START - elapsed)


@pytest.mark.usefixtures("at")
def test_a_rate_so_small_that_nothing_ever_comes():
    reader = generator(rate=5e-324, timestamp=tm.sources.SCHEDULED).prepared(START).open("0", 1)
    chunk = reader.read(5)
    assert chunk.batch.num_rows == 0
    assert START < chunk.watermark < LAST
    assert chunk.wait == chunk.watermark - START


def test_every_process_has_the_same_schedule(at):
    at(1)
    source = generator(rate=3, timestamp=tm.sources.SCHEDULED).prepared(START)
    again = pickle.loads(pickle.dumps(source))  # noqa: S301 - our own
    one, other = source.open("0", 0).read(9), again.open("0", 0).read(9)
    assert one.times.tolist() == other.times.tolist() == [START, START + 333_333, START + 666_666, START + SECOND]
    assert again.open("0", 2).read(9).times.tolist() == one.times[2:].tolist()


def test_each_run_has_a_start_of_its_own():
    source = generator(rate=1, count=9, timestamp=tm.sources.SCHEDULED)
    first, second = source.prepared(START), source.prepared(START + 5)
    assert first.open("0", 0).read(1).times.tolist() == [START]
    assert second.prepared(START + 7).open("0", 0).read(1).times.tolist() == [START + 7]
    with pytest.raises(PipelineError, match=rf"^{THERE} has a rate, and nothing says when it starts. Open what"):
        source.open("0", 0)


# ---------------------------------------------------------------------------------------------------------- event time


def test_the_mark_of_a_schedule_is_the_next_record_that_is_due(at):
    reader = generator(rate=2, count=3, timestamp=tm.sources.SCHEDULED).prepared(START).open("0", 0)
    assert reader.read(9).watermark == START + 500_000
    assert reader.read(9).watermark == START + 500_000
    at(9)
    assert reader.read(1).watermark == START + SECOND
    assert reader.read(1).watermark == END


def test_the_mark_of_a_column_is_the_newest_less_the_delay():
    source = generator(timed, "n long, at timestamp", "at", count=5, delay=15)
    assert [chunk.watermark for chunk in all_chunks(source, limit=2)] == [10 - 15, 30 - 15, END]
    assert [chunk.times.tolist() for chunk in all_chunks(source, limit=2)] == [[0, 10], [20, 30], [40]]


def test_a_mark_never_goes_back(at):
    source = generator(lambda n: (n, -n), "n long, at long", "at", rate=1).prepared(START)
    reader = source.open("0", 0)
    marks = []
    for second in range(4):
        at(second)
        marks.append(reader.read(1).watermark)
    assert marks == [0, 0, 0, 0]
    assert reader.read(1).watermark == 0
    assert source.open("0", 4).read(1).watermark == BEGINNING


@pytest.mark.parametrize("timestamp", [None, tm.ARRIVAL, "absent"])
def test_records_without_a_time_column_are_as_old_as_can_be(timestamp):
    read = all_chunks(generator(count=3, timestamp=timestamp), limit=2)
    assert [chunk.watermark for chunk in read] == [BEGINNING, END]
    assert read[0].times.tolist() == [BEGINNING, BEGINNING]


@pytest.mark.parametrize("time", [None, LAST + 1])
def test_a_time_that_is_none_is_named(time):
    source = generator(lambda n: (time if n == 5 else n,), "at long", "at", count=9, splits=2)
    with pytest.raises(DataError, match=rf"^Record 5 \(from 0\) of {HERE} does not fit: column 'at' is {time}, .*time"):
        all_chunks(source, "1")


# ---------------------------------------------------------------------------------------------------------------- make


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"n": "x"}, "does not fit: column 'n' is 'x', of type str, and should be long."),
        ({"m": 1}, "has a column 'm', which its schema does not have. Columns are: 'n'."),
        ((1, 2), "has 2 values, (1, 2), for 1 columns: 'n'."),
        (None, "is None. A row is a dict, or a tuple of its columns' values."),
    ],
)
def test_a_record_that_does_not_fit_is_named_by_its_number(made, said):
    source = generator(lambda n: made if n == 4 else (n,), count=9, splits=2)
    with pytest.raises(DataError, match=rf"^Record 4 \(from 0\) of {HERE} ") as refused:
        all_chunks(source)
    assert str(refused.value).endswith(said)


def test_what_make_raises_is_told_with_the_number():
    source = generator(lambda n: {"n": 1 // (3 - n)}, count=9)
    with pytest.raises(DataError, match=rf"^Record 3 .*{HERE} can't be made: make raised ZeroDivisionError: ") as told:
        all_chunks(source)
    assert isinstance(told.value.__cause__, ZeroDivisionError)


def test_columns_are_made_for_many_records_at_once():
    asked = []

    def make(indices):
        asked.append(indices.tolist())
        return {"n": indices, "half": indices / 2}

    source = generator(make, "n long, half double", vectorised=True, count=5, splits=2)
    assert all_numbers(source, limit=2) == [0, 2, 4]
    assert asked == [[0, 2], [4]]
    chunk = source.open("1", 1).read(5)
    assert chunk.batch.to_pylist() == [{"n": 3, "half": 1.5}]


def test_a_batch_may_be_made_and_its_times_are_read():
    def make(indices):
        return pa.RecordBatch.from_pydict({"at": indices * 10, "n": indices})

    source = generator(make, "n int, at timestamp", "at", vectorised=True, count=3)
    (chunk,) = all_chunks(source)
    assert chunk.times.tolist() == [0, 10, 20]
    assert chunk.batch.schema == source.schema


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda _: 5, rf"^Records 1 to 7 \(from 0\), every 3 of them, of {HERE} are 5, of type int"),
        (lambda indices: {"n": indices[1:]}, "^Records 1 to 7 .* do not fit: column 'n' has 2 values for 3 records"),
        (lambda indices: {"n": indices * 20}, r"^Record 7 \(from 0\) of .* column 'n' is 140, of type int, and should"),
        (lambda indices: indices.nothing, "^Records 1 to 7 .* can't be made: make raised AttributeError: "),
        (lambda indices: indices.__iadd__(1), "^Records 1 to 7 .* can't be made: make raised ValueError: .*read-only"),
    ],
)
def test_columns_that_do_not_fit_are_named(make, said):
    with pytest.raises(DataError, match=said):
        all_chunks(generator(make, "n byte", vectorised=True, count=9, splits=3), "1")


# ----------------------------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"make": 5}, "has make=5: a function of the record's number is needed"),
        ({"rate": 0}, "has rate=0: a number of records in a second is needed, more than 0, or None"),
        ({"rate": -1.5}, "has rate=-1.5"),
        ({"rate": float("nan")}, "has rate=nan"),
        ({"rate": float("inf")}, "has rate=inf"),
        ({"rate": 10**400}, "has rate=1000"),
        ({"rate": True}, "has rate=True"),
        ({"rate": "5/s"}, "has rate='5/s'"),
        ({"count": -1}, "has count=-1: a whole number from 0 is needed, or None for no end"),
        ({"count": 1.5}, "has count=1.5"),
        ({"splits": 0}, "has splits=0: at least one is needed"),
        ({"splits": True}, "has splits=True"),
        ({"timestamp": tm.sources.SCHEDULED}, "has timestamp=SCHEDULED, but without a rate no record is due"),
    ],
    ids=str,
)
def test_what_a_generator_cannot_be_made_with(options, said):
    with pytest.raises(PipelineError, match=rf"^{THERE} ") as refused:
        generator(**options)
    assert said in str(refused.value)


def test_what_else_it_cannot_be_made_with():
    with pytest.raises(SchemaError, match=rf"The schema of {HERE} can't be used"):
        generator(schema="n lung")
    with pytest.raises(PipelineError, match=rf"The delay of {HERE} can't be read"):
        generator(delay="3")
    with pytest.raises(PipelineError, match=rf"There is no split '2' in {HERE}; splits are: '0', '1'."):
        generator(splits=2).open("2", 0)


def test_only_the_vectorised_form_is_given_numpy():
    asked = []

    def make(index):
        asked.append(index)
        return {"n": index}

    all_chunks(generator(make, count=1))
    all_chunks(generator(make, count=1, vectorised=True))
    assert type(asked[0]) is int
    assert asked[1].dtype == np.int64


def test_the_wall_clock_is_in_microseconds():
    assert 1_700_000_000_000_000 < module.wall_clock() < 10_000_000_000_000_000
