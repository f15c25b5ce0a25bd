"""What a sink is given and when; what is gathered for the driver is bounded; what a sink raises names it."""

# mypy: disable-error-code="arg-type, dict-item, unreachable"

from __future__ import annotations

import pytest

from tests.unit.core.pipes import NO_KEY, SCHEMA, bundle
from tidemill.core import events
from tidemill.core.effects import CloseStage, Stage
from tidemill.core.graph import Graph, Node, Stream, Subscription
from tidemill.core.ids import Peer
from tidemill.errors import FencedError, RunError
from tidemill.hosts.spark import sinking
from tidemill.hosts.spark.orders import Gathered
from tidemill.hosts.spark.sinking import Sinking, batches_of, rows_of, stream_of

ME = Peer(2, 7)
SHARD, EPOCH = 3, 5


class Table:
    """A sink of its own."""

    def __init__(self):
        self.writers: dict[str, Writer] = {}
        self.problem: Exception | None = None

    def open(self, schema, writer):
        assert schema == SCHEMA
        if self.problem is not None:
            raise self.problem
        assert writer not in self.writers, "no two writers have one name"
        made = self.writers[writer] = Writer()
        return made


class Writer:
    def __init__(self):
        self.rows: list = []
        self.closed = 0
        self.problem: Exception | None = None

    def write(self, batch):
        if self.problem is not None:
            raise self.problem
        self.rows += batch.to_pylist()

    def prepare(self):
        if self.problem is not None:
            raise self.problem
        return f"{len(self.rows)} rows".encode()

    def close(self):
        self.closed += 1


class Loop:
    """What is done aside is done at once, or when a test says so; what is told is kept."""

    def __init__(self):
        self.told: list = []
        self.slow = False
        self._aside: list = []

    def tell(self, make):
        self.told.append(make(9))

    def post(self, action):
        action()

    def aside(self, work, then):
        self._aside.append((work, then))
        if not self.slow:
            self.finish()

    def finish(self):
        while self._aside:
            work, then = self._aside.pop(0)
            self.tell(then(work()))


class Sunk:
    def __init__(self, handle, *, at_once=True):
        self.node = Node("out", "sink", handle=handle, declared_at="here.py:1")
        graph = Graph(
            "test", {"words": Stream("words", SCHEMA)}, {"out": self.node}, (Subscription("words", "out", NO_KEY),)
        )
        self.loop = Loop()
        self.sent: list = []
        self.sinking = Sinking(ME, graph, lambda _: self.node, self.loop, self.sent.append, at_once=at_once)

    def stage(self, *rows, shard=SHARD, epoch=EPOCH):
        self.sinking.stage(Stage(shard, epoch, bundle(*rows)))

    def seal(self, shard=SHARD, epoch=EPOCH):
        self.sinking.close_stage(CloseStage(shard, epoch))
        return self.loop.told.pop()

    def rows(self):
        return [rows_of(batches_of(message.data)) for message in self.sent]


def row(word, n):
    return {"word": word, "n": n}


# For the driver


def test_what_is_gathered_is_sent_together_and_numbered():
    sunk = Sunk(Gathered())
    sunk.stage(("a", 1, 100))
    sunk.stage(("b", 2, 200), ("c", 3, 300), shard=4)
    assert sunk.sent == []
    sunk.sinking.send_gathered()
    sunk.sinking.send_gathered()
    sunk.stage(("d", 4, 400))
    sunk.sinking.send_gathered()
    assert sunk.rows() == [[row("a", 1), row("b", 2), row("c", 3)], [row("d", 4)]]
    assert [(each.worker, each.incarnation, each.number, each.node) for each in sunk.sent] == [
        (2, 7, 1, "out"),
        (2, 7, 2, "out"),
    ]


def test_what_the_driver_has_not_taken_is_bounded(monkeypatch):
    monkeypatch.setattr(sinking, "AHEAD", 2_000)
    sunk = Sunk(Gathered())
    while not sunk.sinking.full:
        assert len(sunk.sent) < 100
        sunk.stage(("word" * 20, 1, 100))
        sunk.sinking.send_gathered()
    assert sum(len(each.data) for each in sunk.sent[:-1]) <= 2_000 < sum(len(each.data) for each in sunk.sent)
    sunk.sinking.taken(0)
    assert sunk.sinking.full
    sunk.sinking.taken(1)
    assert not sunk.sinking.full
    sunk.sinking.taken(len(sunk.sent))
    assert sunk.sinking._untaken == {}


def test_with_recovery_it_travels_as_a_piece_of_the_commit():
    sunk = Sunk(Gathered(), at_once=False)
    sunk.stage(("a", 1, 100))
    sunk.stage(("x", 9, 100), shard=4)
    sunk.stage(("b", 2, 200))
    sunk.sinking.send_gathered()
    assert sunk.sent == []
    done = sunk.seal()
    assert (done.shard, done.epoch) == (SHARD, EPOCH)
    assert rows_of(batches_of(done.piece)) == [row("a", 1), row("b", 2)]
    assert sunk.seal().piece == b"", "each record is in one piece"
    assert rows_of(batches_of(sunk.seal(4).piece)) == [row("x", 9)]


def test_without_it_all_has_left_before_the_end_is_told():
    sunk = Sunk(Gathered())
    sunk.stage(("a", 1, 100))
    done = sunk.seal()
    assert sunk.rows() == [[row("a", 1)]]
    assert done == events.SealDone(9, SHARD, EPOCH, b"")


def test_what_an_older_epoch_held_is_in_no_piece_of_the_newer():
    sunk = Sunk(Gathered(), at_once=False)
    sunk.stage(("a", 1, 100), epoch=4)
    sunk.stage(("a", 1, 100))
    assert rows_of(batches_of(sunk.seal().piece)) == [row("a", 1)]


# A sink of its own


def test_records_are_written_in_order_by_a_writer_for_each_shard_and_epoch():
    table = Table()
    sunk = Sunk(table)
    sunk.stage(("a", 1, 100))
    sunk.stage(("b", 2, 200))
    sunk.stage(("c", 3, 300), shard=4)
    sunk.stage(("d", 4, 400), epoch=6)
    assert {name: writer.rows for name, writer in table.writers.items()} == {
        "3-5": [row("a", 1), row("b", 2)],
        "4-5": [row("c", 3)],
        "3-6": [row("d", 4)],
    }
    assert sunk.seal().piece == b"2 rows"
    assert sunk.sent == []
    sunk.sinking.close()
    assert {writer.closed for writer in table.writers.values()} == {1}


def test_one_that_was_given_nothing_has_nothing_to_prepare():
    table = Table()
    assert Sunk(table).seal() == events.SealDone(9, SHARD, EPOCH, b"")
    assert table.writers == {}


WHERE = r"\[in out, declared at here\.py:1\]"


@pytest.mark.parametrize("when", ["open", "write", "prepare"])
def test_what_a_sink_raises_names_it(when):
    table = Table()
    sunk = Sunk(table)
    problem = OSError("the disk is full")
    if when == "open":
        table.problem = problem
    else:
        sunk.stage(("a", 1, 100))
        table.writers["3-5"].problem = problem
    with pytest.raises(RunError, match=rf"the sink raised OSError: the disk is full {WHERE}") as raised:
        sunk.seal() if when == "prepare" else sunk.stage(("b", 2, 200))
    assert raised.value.__cause__ is problem


def test_an_error_of_ours_stays_what_it_is():
    table = Table()
    table.problem = FencedError("a newer writer is there")
    with pytest.raises(FencedError, match=rf"a newer writer is there {WHERE}"):
        Sunk(table).stage(("a", 1, 100))


def test_batches_travel_and_come_back():
    batches = [bundle(("a", 1, 1)).batch, bundle((None, 2, 2), ("c", 3, 3)).batch]
    assert batches_of(stream_of(batches)) == batches
    assert batches_of(b"") == []


def test_what_comes_while_a_piece_is_made_is_for_the_next():
    table = Table()
    sunk = Sunk(table)
    sunk.stage(("a", 1, 100))
    sunk.loop.slow = True
    sunk.sinking.close_stage(CloseStage(SHARD, EPOCH, 0))
    sunk.stage(("b", 2, 200))
    (writer,) = table.writers.values()
    assert writer.rows == [row("a", 1)], "a writer is never asked two things at once"
    assert sunk.loop.told == []
    sunk.loop.finish()
    sunk.sinking.close_stage(CloseStage(SHARD, EPOCH, 1))
    sunk.loop.finish()
    assert [(done.round, done.piece) for done in sunk.loop.told] == [(0, b"1 rows"), (1, b"2 rows")]
    assert writer.rows == [row("a", 1), row("b", 2)]
