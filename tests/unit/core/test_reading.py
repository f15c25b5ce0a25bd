"""Reading a source: it goes on where it was, and what arrives is as late as the clock says, never later."""

# mypy: disable-error-code="arg-type, union-attr"

import numpy as np

from tests.unit.core.driving import ME, adoption, route
from tests.unit.core.pipes import LEFT, RIGHT, batch, pipeline, records_of, shard_of
from tidemill.core.effects import Read
from tidemill.core.events import ReadDone
from tidemill.core.flow import WINDOW
from tidemill.core.hosted import Hosted
from tidemill.core.ids import BEGINNING, END, LAST
from tidemill.core.reading import read_on, what_was_read
from tidemill.core.routing import Routing

GRAPH = pipeline()


def done(shard, rows=(), *, times=(), position=1, mark=BEGINNING, idle=False, now=0):
    read = batch(*rows) if rows else None
    given = None if times is None else np.array(times, np.int64)
    return ReadDone(now, shard.place.shard, 1, read, given, position, mark, idle)


def source(mark=BEGINNING):
    shard = shard_of(GRAPH, "words-source", shard=3)
    if mark != BEGINNING:
        shard.handle(what_was_read(shard, done(shard, mark=mark)))
    return shard


def test_a_shard_reads_the_split_of_its_place_from_its_position():
    routing = Routing()
    routing.change([], [route(8, "words-source", ME, range=LEFT), route(3, "words-source", ME, range=RIGHT)])
    hosted = Hosted(GRAPH, adoption(3, "words-source", epoch=5), window=WINDOW, loop_memory=WINDOW)
    hosted.shard = source()
    hosted.shard.position = 17
    assert read_on(hosted, routing, 100) == Read(3, 5, 1, 17, 100)


def test_what_was_read_is_numbered_on():
    shard = source()
    first = what_was_read(shard, done(shard, [("a", 1), ("b", 2)], times=[10, 20], position=2, mark=5, now=99))
    assert records_of(first.bundle) == [("words", 3, 1, "a", 1, 10), ("words", 3, 2, "b", 2, 20)]
    assert (first.position, first.mark, first.idle, first.now) == (2, 5, False, 99)
    shard.handle(first)
    second = what_was_read(shard, done(shard, [("c", 3)], times=[30], position=3))
    assert records_of(second.bundle) == [("words", 3, 3, "c", 3, 30)]


def test_nothing_new_is_no_event():
    shard = source(mark=5)
    assert what_was_read(shard, done(shard, mark=5)) is None
    assert what_was_read(shard, done(shard, mark=4)) is None
    assert what_was_read(shard, done(shard, mark=6)) is not None
    assert what_was_read(shard, done(shard, mark=5, idle=True)) is not None
    assert what_was_read(shard, done(shard, mark=END)) is not None


def test_a_record_without_a_time_of_its_own_bears_that_of_its_arrival():
    shard = source()
    entry = what_was_read(shard, done(shard, [("a", 1)], times=None, now=50))
    assert (entry.bundle.oldest, entry.mark) == (50, 50)


def test_a_clock_that_is_behind_makes_no_record_late():
    """The source moved to a machine whose clock is slow: its mark stands, and its records may not be behind it."""
    shard = source(mark=80)
    entry = what_was_read(shard, done(shard, [("a", 1)], times=None, now=50))
    assert (entry.bundle.oldest, entry.mark) == (80, 80)


def test_arrivals_end_too():
    shard = source()
    entry = what_was_read(shard, done(shard, [("a", 1)], times=None, now=END, mark=END))
    assert (entry.bundle.oldest, entry.mark) == (LAST, END)
