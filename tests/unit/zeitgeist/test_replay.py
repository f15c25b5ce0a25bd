"""Searches of a table come when they arrive, and the mark is a promise that only the late ones break."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidemill.core.ids import END
from tidemill.ports import Source
from tidemill.zeitgeist.replay import Replay

BEGINS = 1_700_000_000_000_000
JITTER = 100

MADE = [0, 30, 20, 10, 400]
ARRIVES = [50, 60, 110, 150, 450]  # the fourth is late: 140 after it was made


@pytest.fixture
def at(monkeypatch):
    def at(micros):
        monkeypatch.setattr("tidemill.zeitgeist.replay.time.time_ns", lambda: (BEGINS + micros) * 1_000)

    return at


@pytest.fixture
def source(tmp_path):
    table = pa.table({"query": list("abcde"), "at": MADE, "arrives": ARRIVES})
    pq.write_table(table, tmp_path / "part-0.parquet")
    (tmp_path / "_SUCCESS").touch()
    return Replay(tmp_path, BEGINS, JITTER / 1e6)


def test_each_comes_when_it_arrives(source, at):
    assert isinstance(source, Source)
    reader = source.open(source.splits()[0], 0)
    read = []
    for now, expected, mark, wait in (
        (-500, "", -500, 550),  # time does not run ahead of the clock
        (10, "", -50, 40),
        (60, "ab", 10, 0),
        (60, "", 10, 50),
        (149, "c", 50, 0),
        (150, "d", 150, 0),
        (449, "", 350, 1),
    ):
        at(now)
        chunk = reader.read(100)
        assert "".join(chunk.batch.column("query").to_pylist()) == expected
        assert chunk.batch.column("at").cast(pa.int64()).to_pylist() == chunk.times.tolist()
        assert (chunk.watermark - BEGINS, chunk.wait, chunk.ended) == (mark, wait, False)
        read += chunk.times.tolist()
    at(450)
    last = reader.read(100)
    assert (last.ended, last.watermark, last.position) == (True, END, 5)
    assert [made - BEGINS for made in [*read, *last.times.tolist()]] == MADE


def test_a_rewind_is_exact(source, at):
    at(1_000)
    whole = source.open(source.splits()[0], 0).read(100)
    for position in range(6):
        rest = source.open(source.splits()[0], position).read(2)
        assert rest.batch.equals(whole.batch.slice(position, 2))
        assert rest.position == min(position + 2, 5)
        assert rest.ended == (rest.position == 5)
