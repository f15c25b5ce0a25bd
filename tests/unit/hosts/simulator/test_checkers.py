"""Each checker can fail: here is a history for each that breaks its promise, and one beside it that does not."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from types import SimpleNamespace as Simple
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import tidemill.hosts.simulator.checkers as package
from tidemill.core import bundle as bundles
from tidemill.core import keys, messages
from tidemill.core.coordinator import Commit, JournalEntry
from tidemill.core.flow import BUNDLE_WEIGHT
from tidemill.core.ids import BEGINNING, COORDINATOR, Peer
from tidemill.core.loops import READ_BACK
from tidemill.hosts.simulator.checkers import checker, judges, memory
from tidemill.hosts.simulator.checkers.ending import InTime, Results
from tidemill.hosts.simulator.checkers.memory import BoundedMemory
from tidemill.hosts.simulator.checkers.owners import OneCoordinator, OneOwner, OneWriter, WholeCommit
from tidemill.hosts.simulator.checkers.time import MarksKept, MarksRise, NobodyLate
from tidemill.hosts.simulator.disk import Journaled, Write

m: Any = messages  # numbers and names are plain here
peer: Any = Peer
ranged: Any = keys.KeyRange

BOSS, ONE, TWO = peer(-1, 1), peer(1, 1), peer(2, 1)
HALF = ranged(0, 2**63)
OTHER_HALF = ranged(2**63, 2**64)
WHOLE = ranged(0, 2**64)


class Wire:
    """Numbers packets as links do."""

    def __init__(self, watch):
        self.watch = watch
        self.numbers: Counter[Any] = Counter()

    def __call__(self, sender, to, message, number=None):
        self.numbers[sender, to] += 1
        packet = m.Packet(sender, to, number or self.numbers[sender, to], 0, message)
        self.watch.sent(packet)
        return packet


def adopt(shard, epoch, node="count", range=WHOLE):
    return m.Adopt([m.Adoption(shard, node, range, epoch, m.Lineage(shard, range, []))])


def bundle(*times: int, first: Any = 1) -> bundles.Bundle:
    schema = pa.schema([("word", pa.string()), ("__at", pa.int64())])
    batch = pa.record_batch([["w"] * len(times), list(times)], schema=schema)
    words: Any = "words"
    origin: Any = 1
    return bundles.new_bundle(words, origin, first, batch)


def delivery(*times, first: Any = 1, epoch: Any = 5):
    return m.Delivery(m.ChannelId(1, epoch, 2, 6), 1, bundle(*times, first=first))


# ------------------------------------------------------------------------------------------------------------- owners


SPEECHES = {
    "records": delivery(1),
    "receipts": m.Receipts([m.Receipt(m.ChannelId(9, 9, 1, 5), 1, 1, 1)]),
    "a report": m.Report(1, [m.ShardReport(1, 5, 0, False)]),
    "readiness": m.Ready(1, 5),
    "a piece": m.Sealed(1, 5, b"piece"),
}


@pytest.mark.parametrize("speech", SPEECHES.values(), ids=SPEECHES)
def test_two_speak_for_one_shard(speech):
    judge = OneOwner()
    wire = Wire(judge)
    wire(BOSS, ONE, adopt(1, 5))
    wire(ONE, TWO, speech)
    assert judge.complaints == []
    wire(TWO, ONE, speech)
    assert "belongs to worker1.1 and is spoken for by worker2.1" in judge.complaints[0]


def test_one_epoch_is_given_to_two():
    judge = OneOwner()
    wire = Wire(judge)
    wire(BOSS, ONE, adopt(1, 5))
    wire(BOSS, TWO, adopt(1, 6))
    assert judge.complaints == []
    wire(BOSS, TWO, adopt(1, 5))
    assert "was given to worker2.1" in judge.complaints[0]


def test_a_former_owner_writes():
    judge = OneWriter()
    judge.ended(written(("shard-1", 5), ("shard-1", 6)))
    assert judge.complaints == []
    judge.ended(written(("shard-1", 5), ("shard-1", 6), ("shard-1", 5)))
    assert judge.complaints == ["shard-1: shard-1 was written under 0x5 after shard-1 under 0x6"]


def test_a_parent_writes_after_its_child():
    judge = OneWriter()
    wire = Wire(judge)
    for shard, epoch, range in ((1, 5, WHOLE), (2, 6, HALF), (3, 7, OTHER_HALF)):
        wire(BOSS, ONE, adopt(shard, epoch, range=range))
    judge.ended(written(("shard-1", 5), ("shard-3", 7), ("shard-2", 6)))
    assert judge.complaints == []
    judge.ended(written(("shard-1", 5), ("shard-2", 6), ("shard-1", 5)))
    assert judge.complaints == ["count: shard-1 was written under 0x5 after shard-2 under 0x6"]


def written(*writes):
    return Simple(disk=Simple(writes=[Write(log, epoch, 1) for log, epoch in writes]))


def commit(*pieces):
    listed: list[Any] = [("sink:out", piece.encode()) for piece in pieces]
    payload = msgspec.msgpack.encode(Commit(listed, final=True))
    return msgspec.msgpack.encode(JournalEntry("commit", payload))


def journal(*writes, claims=(1, 2), finished=True):
    return Simple(finished=finished, disk=Simple(claims=list(claims), journaled=[Journaled(*w) for w in writes]))


OTHER = msgspec.msgpack.encode(JournalEntry("mechanism", b"any"))

JOURNALS = {
    "generations fall": (journal((2, 2, commit()), claims=[2, 1]), "claimed in the order [2, 1]"),
    "an old one writes": (journal((1, 2, OTHER), (2, 2, commit())), "generation 1 wrote the journal after 2"),
    "written after the end": (journal((2, 2, commit()), (2, 2, OTHER)), "after the final commit"),
    "no commit": (journal((2, 2, OTHER)), "finished with 0 final commits"),
    "two commits": (journal((2, 2, commit()), (2, 2, commit())), "after the final commit"),
}


@pytest.mark.parametrize(("history", "said"), JOURNALS.values(), ids=JOURNALS)
def test_coordinators_in_each_others_way(history, said):
    judge = OneCoordinator()
    judge.ended(journal((1, 1, OTHER), (2, 2, OTHER), (2, 2, commit())))
    assert judge.complaints == []
    judge.ended(history)
    assert said in judge.complaints[0]


COMMITS = {
    "a piece too few": (("piece-1-5-1",), "shard 2 of sink:out has no piece"),
    "a piece twice": (("piece-1-5-1", "piece-1-5-1", "piece-2-6-1"), "piece-1-5-1 of sink:out is committed twice"),
    "a piece of a former owner": (("piece-1-4-1", "piece-2-6-1"), "was made under 0x4; the newest is 0x5"),
    "a piece of another": (("piece-1-5-1", "piece-2-6-1", "piece-3-7-1"), "belongs to another"),
}


@pytest.mark.parametrize(("pieces", "said"), COMMITS.values(), ids=COMMITS)
def test_a_commit_is_not_whole(pieces, said):
    def judged(*listed):
        judge = WholeCommit()
        wire = Wire(judge)
        wire(BOSS, ONE, adopt(1, 4, "sink:out"))
        wire(BOSS, ONE, adopt(1, 5, "sink:out"))
        wire(BOSS, ONE, adopt(2, 6, "sink:out"))
        wire(BOSS, ONE, adopt(3, 7, "count"))
        judge.ended(journal((1, 1, commit(*listed))))
        return judge.complaints

    assert judged("piece-1-5-1", "piece-1-5-2", "piece-2-6-1") == []
    assert said in judged(*pieces)[0]


# --------------------------------------------------------------------------------------------------------------- time


def test_marks_fall():
    judge = MarksRise()
    wire = Wire(judge)
    wire(BOSS, ONE, m.Marks([("count", 7)], [], []))
    wire(BOSS, TWO, m.Marks([("count", 3)], [], []))
    wire(BOSS, ONE, m.Marks([("count", 3)], [], []), number=1)  # sent again
    wire(BOSS, TWO, m.Reset(2))
    wire(BOSS, TWO, m.Marks([("count", 1)], [], []))
    assert judge.complaints == []
    wire(BOSS, ONE, m.Marks([("count", 6)], [], []))
    assert judge.complaints == ["coordinator.1 told worker1.1 that count is at 6, after 7"]


def kept():
    judge = MarksKept()
    wire = Wire(judge)
    wire(BOSS, ONE, adopt(1, 5, "source:words"))
    wire(BOSS, TWO, adopt(2, 6, "count"))
    return judge, wire


def test_a_record_comes_from_behind_the_mark():
    judge, wire = kept()
    wire(ONE, TWO, delivery(10, 20))
    wire(BOSS, TWO, m.Marks([("source:words", 20), ("count", 50)], [], []))
    wire(ONE, TWO, delivery(20, 30, first=3))
    assert judge.complaints == []
    wire(ONE, TWO, delivery(19, first=5))
    assert "record 1:5 of words, of 19, first left worker1.1 for count" in judge.complaints[0]


def test_records_that_may_be_behind_the_mark():
    judge, wire = kept()
    wire(ONE, TWO, delivery(10))
    wire(BOSS, TWO, m.Marks([("source:words", 20)], [], []))
    wire(ONE, TWO, delivery(10))  # known already
    wire(BOSS, ONE, adopt(1, 8, "source:words"))
    wire(TWO, ONE, delivery(11, first=2, epoch=5))  # of a former owner
    wire(BOSS, TWO, m.Reset(2))
    wire(ONE, TWO, delivery(12, first=3, epoch=8))  # all begins anew
    assert judge.complaints == []


def worker(**hosted):
    core = Simple(
        hosted={1: Simple(id=1, adoption=Simple(epoch=5), node=Simple(name="count"), **hosted)},
        limits=Simple(window=60, full_bundle=60, loop_memory=60),
    )
    return Simple(role="worker", peer=ONE, events=0, core=core)


def test_a_record_is_called_late():
    judge = NobodyLate()
    judge.handled(worker(shard=Simple(late=0)))
    judge.handled(worker(shard=None))
    assert judge.complaints == []
    judge.handled(worker(shard=Simple(late=2)))
    judge.handled(worker(shard=Simple(late=2)))
    assert judge.complaints == ["shard 1 of count on worker1.1 counts 2 late records"]


# ------------------------------------------------------------------------------------------------------------- memory


def busy(queue=(), flushes=(), untaken=(), in_cycle=False, blocked=(), loop=0):
    def arrivals(items):
        return [Simple(channel=Simple(id=Simple(from_shard=3, from_epoch=5)), item=item) for item in items]

    channel = Simple(untaken=lambda: list(untaken))
    return worker(
        queue=arrivals(queue),
        blocked={3: arrivals(blocked)},
        flushes=[Simple(bundles=[item]) for item in flushes],
        lanes={"sum": Simple(in_cycle=in_cycle, channels={2: channel})},
        loop=Simple(weight=loop),
        yielding=False,
    )


BUNDLE = bundle(*range(34))  # weighs 50

OVERFLOWS = {
    "a queue": ({"queue": [BUNDLE] * 2}, {"queue": [BUNDLE] * 3}),
    "a queue and what is blocked": ({"queue": [BUNDLE]}, {"queue": [BUNDLE] * 2, "blocked": [BUNDLE]}),
    "what waits for others": ({"untaken": [BUNDLE] * 6}, {"untaken": [BUNDLE] * 7}),
    "what waits for its release": ({"flushes": [BUNDLE] * 6}, {"flushes": [BUNDLE] * 7}),
    "a loop": ({"loop": 1_600}, {"loop": 1_700}),
}


@pytest.mark.parametrize(("fits", "too_much"), OVERFLOWS.values(), ids=OVERFLOWS)
def test_memory_grows(fits, too_much):
    judge = BoundedMemory()
    wire = Wire(judge)
    wire(BOSS, ONE, adopt(1, 5))
    wire(ONE, TWO, m.Delivery(m.ChannelId(1, 5, 2, 6), 1, BUNDLE))
    judge.handled(busy(**fits))
    judge.handled(busy(untaken=[BUNDLE] * 20, in_cycle=True))
    assert judge.complaints == []
    judge.handled(busy(**too_much))
    assert judge.complaints


def test_a_restored_shard_may_have_much_to_send():
    judge = BoundedMemory()
    wire = Wire(judge)
    wire(BOSS, TWO, adopt(1, 4))
    wire(BOSS, ONE, adopt(1, 5))
    judge.handled(busy(untaken=[BUNDLE] * 20))
    assert judge.complaints == []


# ---------------------------------------------------------------------------------------------------------------- end


def outcome(**differences):
    usual: dict[str, Any] = {
        "finished": True,
        "error": None,
        "pieces": {},
        "crashes": [],
        "counts": Counter(),
        "virtual_seconds": 3.0,
        "calm_after": 2.0,
    }
    return Simple(**(usual | differences))


def oracle(shown):
    rows = shown.rows("out")
    if len(rows) != 1:
        yield f"{len(rows)} rows"


def test_results_are_wrong():
    row = pa.record_batch([[1]], names=["n"])
    judge = Results(oracle, "exactly once")
    judge.ended(outcome(pieces={"sink:out": [[row]]}))
    assert judge.complaints == []
    judge.ended(outcome(pieces={"sink:out": [[row], [row]]}))
    assert judge.complaints == ["2 rows"]


def test_giving_up_is_allowed_to_those_who_promise_nothing():
    lost = outcome(finished=False, error=("RunError", "lost"), counts=Counter(lost=1))
    judge = Results(oracle, "nothing")
    judge.ended(lost)
    assert judge.complaints == []
    judge.ended(outcome(finished=False, error=("UserCodeError", "raised"), counts=Counter(lost=1)))
    judge.ended(outcome(finished=False, error=("RunError", "for no reason")))
    assert len(judge.complaints) == 2
    strict = Results(oracle, "exactly once")
    strict.ended(lost)
    assert strict.complaints == ["the run failed: RunError: lost"]


def test_a_run_is_stuck_or_slow():
    judge = InTime()
    judge.ended(outcome())
    judge.ended(outcome(finished=False, error=("RunError", "lost")))
    assert judge.complaints == []
    judge.ended(outcome(finished=False, virtual_seconds=600.0))
    judge.ended(outcome(virtual_seconds=40.0))
    assert judge.complaints == [
        "the run was stuck after 600.0 virtual seconds",
        "the run ended 38.0 virtual seconds after the last trouble was over",
    ]


# ---------------------------------------------------------------------------------------------------------- all of them


def test_checkers_share_no_code_with_the_core():
    for path in sorted(Path(package.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [name.name for name in node.names] if isinstance(node, ast.Import) else []
            assert not [module for module in modules if module.startswith(("tidemill.core", "tidemill.recovery"))]


def test_constants_are_those_of_the_core():
    assert (checker.BEGINNING, checker.COORDINATOR) == (BEGINNING, COORDINATOR)
    assert memory.PER_BUNDLE == BUNDLE_WEIGHT
    assert memory.READ_BACK == READ_BACK


def test_all_judge_where_nothing_is_late():
    def names(late):
        return {judge.name for judge in judges(oracle, "exactly once", late=late).checkers}

    assert names(late=False) - names(late=True) == {"marks kept", "nobody late"}


def test_only_a_few_complaints_are_kept():
    judge = OneOwner()
    for _ in range(20):
        judge.complain("again")
    assert (len(judge.complaints), judge.more) == (checker.MOST, 20 - checker.MOST)
