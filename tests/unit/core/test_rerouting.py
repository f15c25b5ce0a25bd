"""What a wish to move, split or merge means, or that it can't be had."""

# mypy: disable-error-code="arg-type, dict-item, index"

from tests.unit.core.driving import ME, OTHER
from tests.unit.core.pipes import pipeline
from tidemill.core.events import MergeAsked, MoveAsked, SplitAsked
from tidemill.core.halves import Change
from tidemill.core.ids import ShardId
from tidemill.core.keys import KeyRange
from tidemill.core.ownership import Ownership
from tidemill.core.rerouting import changed
from tidemill.core.routing import Route

GRAPH = pipeline()
SOURCE, LEFTMOST, RIGHTMOST, SINK = (ShardId(n) for n in (1, 2, 3, 4))


def owned():
    table = Ownership(GRAPH, 1, {"words-source": 1}, 2)
    for shard, owner in table.place([route.shard for route in table.routing.all()], [ME], {}):
        table.ready(shard, table.routing[shard].epoch, owner)
    return table


def asked(event, table=None):
    return changed(event, table or owned(), GRAPH)


def test_a_move_goes_to_another_worker():
    for shard in (SOURCE, LEFTMOST, SINK):
        assert asked(MoveAsked(0, shard, OTHER.worker)) == Change("move", (shard,), OTHER.worker, ())
    assert asked(MoveAsked(0, LEFTMOST, ME.worker)) is None


def test_a_shard_without_an_owner_is_not_moved():
    table = owned()
    table.disown([LEFTMOST])
    assert asked(MoveAsked(0, LEFTMOST, OTHER.worker), table) is None


def test_a_split_makes_two_lineages():
    change = asked(SplitAsked(0, LEFTMOST))
    assert (change.kind, change.shards, change.to) == ("split", (LEFTMOST,), None)
    assert len({*change.added, SOURCE, LEFTMOST, RIGHTMOST, SINK}) == 6


def test_a_merge_takes_the_neighbour_on_the_right():
    change = asked(MergeAsked(0, LEFTMOST))
    assert (change.kind, change.shards, len(change.added)) == ("merge", (LEFTMOST, RIGHTMOST), 1)
    assert asked(MergeAsked(0, RIGHTMOST)) is None


def test_only_computations_are_split_and_merged():
    for shard in (SOURCE, SINK):
        assert asked(SplitAsked(0, shard)) is None
        assert asked(MergeAsked(0, shard)) is None


def test_a_range_of_one_position_is_not_split():
    table = owned()
    left, right = KeyRange(0, 1), KeyRange(1, 2**64)
    table.routing.change([], [Route(LEFTMOST, "count", left, 9, ME), Route(RIGHTMOST, "count", right, 9, ME)])
    assert asked(SplitAsked(0, LEFTMOST), table) is None
    assert asked(SplitAsked(0, RIGHTMOST), table) is not None


def test_what_there_is_not_can_t_be_changed():
    for event in (MoveAsked(0, 99, 1), SplitAsked(0, 99), MergeAsked(0, 99)):
        assert asked(event) is None
