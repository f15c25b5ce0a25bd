"""The routes of a node always cover the ring; a bundle is cut along them, and no record is lost, doubled or changed."""

# mypy: disable-error-code="arg-type, dict-item, index"

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.driving import ME, OTHER, route
from tests.unit.core.pipes import BY_WORD, LEFT, NO_KEY, RIGHT, SCHEMA, bundle, pipeline, records_of, words_in
from tidemill.core.graph import Key, Stream
from tidemill.core.keying import Keying, origin_position
from tidemill.core.keys import FULL, KeyRange, even_ranges, ring_position
from tidemill.core.routing import Routing, initial_routes

WORDS = Stream("words", SCHEMA)
BY = Keying(BY_WORD, WORDS)


def routing(*routes):
    made = Routing()
    made.change([], routes)
    return made


def ring(count):
    return routing(*(route(10 + n, "count", ME, range=range) for n, range in enumerate(even_ranges(count))))


def test_it_is_found_by_shard_by_node_and_by_owner():
    table = routing(
        route(2, "count", ME, range=RIGHT), route(1, "count", OTHER, range=LEFT), route(3, "counts-sink", ME)
    )
    assert table[2].range == RIGHT
    assert table.get(7) is None
    assert [found.shard for found in table.of_node("count")] == [1, 2]
    assert [found.shard for found in table.of_owner(ME)] == [2, 3]
    assert sorted(found.shard for found in table.all()) == [1, 2, 3]
    assert table.of_node("nowhere") == []


def test_a_change_is_a_difference_and_names_the_nodes_that_it_touched():
    table = routing(route(1, "count", None), route(3, "counts-sink", ME))
    assert table.change([], [route(1, "count", OTHER, epoch=2)]) == ["count"]
    assert table[1].owner == OTHER
    assert table[1].epoch == 2
    assert table.change([1], [route(5, "count", ME, range=LEFT), route(6, "count", ME, range=RIGHT)]) == ["count"]
    assert [found.shard for found in table.of_node("count")] == [5, 6]
    assert table.get(1) is None


@pytest.mark.parametrize(
    "ranges", [(KeyRange(0, 10), KeyRange(11, 2**64)), (KeyRange(0, 10), KeyRange(9, 2**64)), (LEFT, FULL)]
)
def test_a_gap_or_an_overlap_is_never_taken(ranges):
    with pytest.raises(AssertionError, match="the routes of count leave a gap or overlap"):
        routing(*(route(n, "count", ME, range=range) for n, range in enumerate(ranges)))


def test_it_can_be_cleared():
    table = ring(3)
    table.clear()
    assert table.all() == []
    assert table.of_node("count") == []


KEYS = st.sampled_from([*"abcdefghij", None, *(word for range in even_ranges(5) for word in words_in(range, 2))])
ROWS = st.lists(st.tuples(KEYS, st.integers(0, 9), st.integers(0, 99)), min_size=1, max_size=80)


@given(ROWS, st.integers(1, 5))
def test_cutting_gives_each_record_to_the_shard_of_its_key_once_and_in_order(rows, count):
    table = ring(count)
    whole = bundle(*rows, first=4)
    parts = table.cut(whole, "count", BY)
    assert len({shard for shard, _ in parts}) == len(parts)
    for shard, part in parts:
        mine = [
            record
            for record in records_of(whole)
            if table[shard].range.contains(ring_position(record[3], (pa.string(),)))
        ]
        assert records_of(part) == mine
        assert part.oldest == min(at for *_, at in mine)
    assert sorted(r for _, part in parts for r in records_of(part)) == sorted(records_of(whole))


@given(ROWS, st.integers(1, 5), st.integers(1, 5))
def test_cutting_twice_is_cutting_once(rows, before, after):
    """What waits for a shard that split or merged is cut again, and comes to the same."""
    whole = bundle(*rows)
    again: dict[int, list] = {}
    for _, part in ring(before).cut(whole, "count", BY):
        for shard, piece in ring(after).cut(part, "count", BY):
            again.setdefault(shard, []).extend(records_of(piece))
    once = {shard: records_of(part) for shard, part in ring(after).cut(whole, "count", BY)}
    assert {shard: sorted(records) for shard, records in again.items()} == {s: sorted(r) for s, r in once.items()}


def test_a_bundle_for_one_shard_is_not_touched():
    whole = bundle(*((word, 1, 1) for word in words_in(RIGHT)))
    ((shard, part),) = ring(2).cut(whole, "count", BY)
    assert shard == 11
    assert part is whole
    assert ring(1).cut(whole, "count", BY) == [(10, whole)]


def test_a_single_record_finds_its_shard():
    for n, range in enumerate(even_ranges(7)):
        single = bundle((words_in(range, 1)[0], 1, 1))
        assert ring(7).cut(single, "count", BY) == [(10 + n, single)]


def test_the_ends_of_a_range_belong_to_it():
    low, middle = KeyRange(0, 2**63), KeyRange(2**63, 2**64)

    class At(Keying):
        def positions(self, batch):
            del batch
            return np.array([0, 2**63 - 1, 2**63, 2**64 - 1], np.uint64)

    table = routing(route(1, "count", ME, range=low), route(2, "count", ME, range=middle))
    parts = table.cut(bundle(("a", 0, 0), ("b", 1, 1), ("c", 2, 2), ("d", 3, 3)), "count", At(BY_WORD, WORDS))
    assert [(shard, [record[3] for record in records_of(part)]) for shard, part in parts] == [
        (1, ["a", "b"]),
        (2, ["c", "d"]),
    ]


@given(st.integers(1, 50), st.integers(1, 5))
def test_records_without_a_key_stay_together_by_their_origin(origin, count):
    whole = bundle(("a", 1, 1), ("b", 2, 2), ("c", 3, 3), origin=origin)
    table = ring(count)
    ((shard, part),) = table.cut(whole, "count", Keying(NO_KEY, WORDS))
    assert part is whole
    assert table[shard].range.contains(origin_position(origin))


def test_keys_of_a_function_are_cut_by_what_it_returns():
    by_number = Keying(Key(function=lambda record: record.n % 2), WORDS)
    whole = bundle(*(("w", n, n) for n in range(10)))
    for _, part in ring(64).cut(whole, "count", by_number):
        assert len({n % 2 for *_, n, _ in records_of(part)}) == 1


def test_a_run_begins_with_the_same_routes_wherever_they_are_made():
    graph = pipeline()
    counts = {"words-source": 3, "count": 2, "counts-sink": 1}
    first = initial_routes(graph, counts, 1)
    assert first == initial_routes(graph, counts, 1)
    assert [(found.shard, found.node) for found in first] == [
        (1, "words-source"),
        (2, "words-source"),
        (3, "words-source"),
        (4, "count"),
        (5, "count"),
        (6, "counts-sink"),
    ]
    assert all(found.owner is None and found.epoch == 0 for found in first)
    routing(*first)
