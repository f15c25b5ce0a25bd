"""A feed that is read while it is written; that Spark writes to it, see tests/spark/test_feed.py."""

from __future__ import annotations

import pickle
import time

import pyarrow as pa
import pytest

import tidemill as tm
from tidemill.core.graph import TIME_COLUMN
from tidemill.core.ids import BEGINNING, END
from tidemill.errors import PipelineError, StorageError
from tidemill.ports import Endless, Preparable, Source
from tidemill.storage.arrowfile import write_batches
from tidemill.storage.feedlog import FedFile, FeedLog

SCHEMA = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
WIRE = SCHEMA.append(pa.field(TIME_COLUMN, pa.int64(), nullable=False))


def feed_in(folder, **how):
    return tm.sources.Feed(SCHEMA, timestamp="at", **how).housed(folder)


def fed(folder, batch, *files, query="q"):
    """A batch of files, each a list of times."""
    log = FeedLog(folder)
    listed = []
    for times in files:
        rows = pa.RecordBatch.from_pylist([{"n": t, "at": t, TIME_COLUMN: t} for t in times], WIRE)
        written = write_batches(log.batch_folder(query, batch), "0", WIRE, [rows.slice(0, 3), rows.slice(3)])
        assert written is not None
        listed.append(FedFile(f"{query}/{batch}/{written.name}", tuple(written.counts)))
    log.append(query, batch, listed)


def read_on(reader, limit=4):
    """What there is now."""
    numbers: list[int] = []
    while True:
        chunk = reader.read(limit)
        numbers += chunk.batch["n"].to_pylist()
        if not chunk.batch.num_rows:
            return numbers, chunk


def test_it_is_an_endless_source_that_travels(tmp_path):
    feed = feed_in(tmp_path)
    assert isinstance(feed, Source)
    assert isinstance(feed, Endless)
    assert not isinstance(feed, Preparable)
    assert feed.endless
    fed(tmp_path, 0, [1, 2])
    reader = pickle.loads(pickle.dumps(feed)).open("0", 0)  # noqa: S301 - as it travels
    assert read_on(reader)[0] == [1, 2]
    reader.close()


def test_what_comes_is_read_when_it_is_in_the_log(tmp_path):
    feed = feed_in(tmp_path)
    reader = feed.open("0", 0)
    assert read_on(reader)[0] == []
    fed(tmp_path, 0, [1, 2, 3, 4, 5], [6])
    numbers, chunk = read_on(reader)
    assert (numbers, chunk.position, chunk.watermark) == ([1, 2, 3, 4, 5, 6], 6, 6)
    log = FeedLog(tmp_path)
    write_batches(log.batch_folder("q", 1), "0", WIRE, [pa.RecordBatch.from_pylist([{TIME_COLUMN: 1}], WIRE)])
    assert read_on(reader)[0] == []  # a file that no entry lists
    fed(tmp_path, 1)
    fed(tmp_path, 2, [7])
    assert read_on(reader)[0] == [7]
    reader.close()


@pytest.mark.parametrize("splits", [1, 2, 3])
def test_a_rewind_is_exact_from_every_position(tmp_path, splits):
    feed = feed_in(tmp_path, splits=splits)
    for batch in range(6):
        fed(
            tmp_path,
            batch,
            *[[100 * batch + 10 * file + n for n in range(1 + (batch + file) % 5)] for file in range(4)],
        )
    everything: list[int] = []
    for split in feed.splits():
        first = feed.open(split, 0)
        whole = read_on(first, limit=2)[0]
        first.close()
        everything += whole
        for position in range(len(whole) + 1):
            reader = feed.open(split, position)
            numbers, chunk = read_on(reader)
            assert numbers == whole[position:]
            assert chunk.position == len(whole)
            reader.close()
    assert sorted(everything) == sorted(
        100 * batch + 10 * file + n for batch in range(6) for file in range(4) for n in range(1 + (batch + file) % 5)
    )


def test_the_watermark_is_the_newest_time_less_the_delay(tmp_path):
    feed = feed_in(tmp_path, delay="1ms")
    reader = feed.open("0", 0)
    assert reader.read(10).watermark == BEGINNING
    fed(tmp_path, 0, [5_000, 2_000])
    assert read_on(reader)[1].watermark == 4_000
    fed(tmp_path, 1, [3_000])
    assert read_on(reader)[1].watermark == 4_000
    reader.close()


def test_it_is_idle_when_nothing_came_for_a_while(tmp_path):
    reader = feed_in(tmp_path, idle_after="50ms").open("0", 0)
    chunk = reader.read(10)
    assert not chunk.idle
    assert chunk.wait > 0
    time.sleep(0.06)
    assert reader.read(10).idle
    fed(tmp_path, 0, [1])
    assert not reader.read(10).idle
    assert not reader.read(10).idle
    reader.close()


def test_it_ends_when_it_is_told_and_everything_is_read(tmp_path):
    feed = feed_in(tmp_path)
    reader = feed.open("0", 0)
    fed(tmp_path, 0, [1, 2])
    feed.log().end()
    chunks = [reader.read(1) for _ in range(3)]
    assert [chunk.batch.num_rows for chunk in chunks] == [1, 1, 0]
    assert [chunk.ended for chunk in chunks] == [False, False, True]
    assert chunks[-1].watermark == END
    assert feed.open("0", 2).read(5).ended
    reader.close()


def test_a_file_that_is_gone_is_named(tmp_path):
    feed = feed_in(tmp_path)
    fed(tmp_path, 0, [1])
    (path,) = (tmp_path / "data").rglob("*.arrow")
    path.unlink()
    with pytest.raises(StorageError, match=path.name):
        feed.open("0", 0).read(1)


def test_what_makes_no_sense_is_refused(tmp_path):
    with pytest.raises(PipelineError, match="splits=0"):
        tm.sources.Feed(SCHEMA, splits=0)
    with pytest.raises(PipelineError, match="SCHEDULED"):
        tm.sources.Feed(SCHEMA, tm.sources.SCHEDULED)
    with pytest.raises(PipelineError, match=r"tm.run\(storage=...\)"):
        tm.sources.Feed(SCHEMA).open("0", 0)
    with pytest.raises(PipelineError, match="no split '3'"):
        feed_in(tmp_path).open("3", 0)
