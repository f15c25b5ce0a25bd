"""Each record is admitted once, however it was cut, repeated, and wherever its key went meanwhile."""

# mypy: disable-error-code="arg-type, dict-item"

import msgspec
import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.unit.core.pipes import BY_WORD, LEFT, RIGHT, SCHEMA, bundle, records_of, words_in
from tidemill.core.graph import Stream
from tidemill.core.identities import Identities, SavedPiece
from tidemill.core.keying import Keying
from tidemill.core.keys import FULL, KeyRange, even_ranges, ring_position

KEYING = Keying(BY_WORD, Stream("words", SCHEMA))
A, B = words_in(LEFT, 1)[0], words_in(RIGHT, 1)[0]


def positions(of):
    return KEYING.positions(of.batch)


def admitted(identities, *bundles):
    fresh = [identities.admit(each, positions) for each in bundles]
    return records_of(*(each for each in fresh if each is not None))


def sequences(records):
    return [record[2] for record in records]


def test_a_record_is_admitted_the_first_time():
    identities = Identities(FULL)
    sent = bundle(("a", 1, 1), ("b", 2, 2))
    assert identities.admit(sent, positions) is sent
    assert identities.admit(sent, positions) is None


def test_of_a_bundle_that_was_cut_again_what_is_new_is_admitted():
    identities = Identities(FULL)
    sent = bundle(*((f"w{n}", n, n) for n in range(6)))
    assert sequences(admitted(identities, sent.part(0, 4))) == [1, 2, 3, 4]
    assert sequences(admitted(identities, sent.part(2, 6))) == [5, 6]


def test_each_origin_and_each_stream_counts_by_itself():
    identities = Identities(FULL)
    assert len(admitted(identities, bundle(("a", 1, 1), origin=1), bundle(("a", 1, 1), origin=2))) == 2
    assert len(admitted(identities, bundle(("a", 1, 1), stream="others", origin=1))) == 1


def test_gaps_belong_to_others_and_are_not_waited_for():
    identities = Identities(FULL)
    sent = bundle(*(("a", n, n) for n in range(6))).take(np.array([1, 4]))
    assert sequences(admitted(identities, sent, sent)) == [2, 5]


def test_a_child_of_a_split_knows_what_its_parent_knew():
    parent = Identities(FULL)
    sent = bundle((A, 1, 1), (B, 2, 2))
    admitted(parent, sent)
    for half in (LEFT, RIGHT):
        assert admitted(parent.narrowed(half), sent) == []


def test_after_a_split_the_parent_and_each_child_go_on_apart():
    parent = Identities(FULL)
    one, other = parent.narrowed(LEFT), parent.narrowed(RIGHT)
    sent = bundle((A, 1, 1))
    assert len(admitted(one, sent)) == 1
    assert len(admitted(other, bundle((B, 1, 1)))) == 1
    assert len(admitted(parent, sent)) == 1


def test_after_a_merge_each_piece_remembers_how_far_it_had_come():
    """The senders had come to different points: the highest of both would lose records, the least repeat some."""
    one, other = Identities(LEFT), Identities(RIGHT)
    sent = bundle((A, 1, 1), (B, 2, 2), (A, 3, 3), (B, 4, 4))
    left, right = sent.take(np.array([0, 2])), sent.take(np.array([1, 3]))
    admitted(one, left)  # all of its own
    whole = Identities.merged([one, other])
    assert sequences(admitted(whole, right.part(0, 1))) == [2]
    assert sequences(admitted(whole, left)) == []
    assert sequences(admitted(whole, sent)) == [4]


def test_a_merge_and_a_split_elsewhere_keep_the_pieces():
    one, other = Identities(LEFT), Identities(RIGHT)
    sent = bundle((A, 1, 1))
    admitted(one, sent)
    whole = Identities.merged([one, other])
    thirds = even_ranges(3)
    for third in thirds:
        if third.contains(ring_position(A, (pa.string(),))):
            assert admitted(whole.narrowed(third), sent) == []


def test_the_ends_of_a_range_belong_to_it():
    """The first and the last position, and the last of the ring, which 64 bits just hold."""
    low, high = KeyRange(0, 2**64 - 1), KeyRange(2**64 - 1, 2**64)
    identities = Identities.merged([Identities(low), Identities(high)])
    three = bundle(("x", 1, 1), ("y", 2, 2), ("z", 3, 3))
    at_the_ends = np.array([0, 2**64 - 2, 2**64 - 1], np.uint64)
    fresh = identities.admit(three, lambda _: at_the_ends)
    assert fresh is three
    assert identities.admit(three, lambda _: at_the_ends) is None


def test_it_comes_back_from_its_bytes():
    one, other = Identities(LEFT), Identities(RIGHT)
    sent = bundle((A, 1, 1), (B, 2, 2), (A, 3, 3), (B, 4, 4))
    admitted(one, sent.take(np.array([0])))
    admitted(other, sent.take(np.array([1, 3])))
    saved = msgspec.msgpack.encode(Identities.merged([one, other]).save())
    again = Identities.load(msgspec.msgpack.decode(saved, type=list[SavedPiece]))
    assert sequences(admitted(again, sent)) == [3]
    assert sequences(admitted(again, sent)) == []


WORDS = [word for range in even_ranges(8) for word in words_in(range, 2)]


class History(RuleBasedStateMachine):
    """One sender, and receivers whose ranges split and merge.

    The sender keeps what was not taken and sends it again, from any point that was not taken, cut anew by the ranges as
    they are, as channels do. Whatever happens, each record is admitted once and each word's in order.
    """

    @initialize()
    def begin(self):
        self.receivers = {FULL: Identities(FULL)}
        self.produced = bundle(("start", 0, 0))
        self.rows = [("start", 0, 0)]
        self.seen: list = []
        self.sent = {FULL: 0}  # the highest sequence that was sent to a range

    @rule(words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=6))
    def produce(self, words):
        self.rows += [(word, len(self.rows) + place, 0) for place, word in enumerate(words)]
        self.produced = bundle(*self.rows)

    @rule(data=st.data(), ends=st.integers(1, 3))
    def send(self, data, ends):
        """Some of what lies behind a point that was reached, in a few bundles; what was sent already comes again."""
        range = data.draw(st.sampled_from(sorted(self.receivers)))
        identities = self.receivers[range]
        places = positions(self.produced)
        inside = [n for n, place in enumerate(places.tolist()) if range.contains(place)]
        start = data.draw(st.integers(0, sum(self.produced.sequences[n] <= self.sent[range] for n in inside)))
        end = data.draw(st.integers(start, len(inside)))
        again = inside[start:end]
        if not again:
            return
        part = self.produced.take(np.array(again))
        for cut in np.array_split(np.arange(len(again)), ends):
            if len(cut):
                self.seen += admitted(identities, part.take(cut))
        self.sent[range] = max(self.sent[range], int(part.sequences[-1]))

    @rule(data=st.data())
    def split(self, data):
        range = data.draw(st.sampled_from(sorted(self.receivers)))
        if range.high - range.low < 2 or len(self.receivers) > 6:
            return
        parent, sent = self.receivers.pop(range), self.sent.pop(range)
        for half in range.split((range.low + range.high) // 2):
            self.receivers[half] = parent.narrowed(half)
            self.sent[half] = sent

    @rule(data=st.data(), through_bytes=st.booleans())
    def merge(self, data, through_bytes):
        ranges = sorted(self.receivers)
        if len(ranges) < 2:
            return
        place = data.draw(st.integers(0, len(ranges) - 2))
        left, right = ranges[place], ranges[place + 1]
        whole = KeyRange(left.low, right.high)
        merged = Identities.merged([self.receivers.pop(left), self.receivers.pop(right)])
        self.receivers[whole] = Identities.load(merged.save()) if through_bytes else merged
        self.sent[whole] = min(self.sent.pop(left), self.sent.pop(right))

    @invariant()
    def nothing_was_admitted_twice(self):
        assert len(self.seen) == len({record[2] for record in self.seen})

    @invariant()
    def each_word_came_in_order(self):
        last: dict[str, int] = {}
        for _, _, sequence, word, _, _ in self.seen:
            assert sequence > last.get(word, 0)
            last[word] = sequence

    def teardown(self):
        """In the end, everything is sent once more, and nothing was lost."""
        if not hasattr(self, "receivers"):
            return
        places = positions(self.produced)
        for range, identities in self.receivers.items():
            inside = [n for n, place in enumerate(places.tolist()) if range.contains(place)]
            if inside:
                self.seen += admitted(identities, self.produced.take(np.array(inside)))
        assert sorted(sequences(self.seen)) == self.produced.sequences.tolist()


TestHistory = History.TestCase
TestHistory.settings = settings(max_examples=60, stateful_step_count=25)


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=8), st.data())
def test_any_cutting_with_any_repetition_within_the_order_admits_each_once(words, data):
    sent = bundle(*((word, n, n) for n, word in enumerate(words)))
    identities = Identities(FULL)
    seen = []
    reached = 0
    for _ in range(data.draw(st.integers(0, 6))):
        start = data.draw(st.integers(0, reached))
        end = data.draw(st.integers(start, len(words)))
        if end > start:
            seen += admitted(identities, sent.part(start, end))
            reached = max(reached, end)
    assert seen == records_of(sent)[:reached]
