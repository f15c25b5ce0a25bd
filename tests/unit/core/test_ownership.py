"""One owner at a time: an epoch is granted once, and only who was given a shard under it may own it."""

# mypy: disable-error-code="arg-type, dict-item, index, list-item"

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.driving import ME, OTHER, THIRD
from tests.unit.core.pipes import LEFT, RIGHT, pipeline
from tidemill.core.decisions import NewShard
from tidemill.core.ids import Peer, first_epoch, generation_of
from tidemill.core.keys import FULL
from tidemill.core.messages import Lineage
from tidemill.core.ownership import Ownership

GRAPH = pipeline()


def owned(generation=1, shards=2):
    return Ownership(GRAPH, generation, {"words-source": 1}, shards)


def everything(table):
    return [route.shard for route in table.routing.all()]


def settled(*alive, shards=2):
    """All shards placed on the workers, and ready."""
    table = owned(shards=shards)
    for shard, owner in table.place(everything(table), list(alive), {}):
        table.ready(shard, table.routing[shard].epoch, owner)
    return table


def test_no_epoch_is_granted_twice_in_any_generation():
    granted = [table.grant() for table in map(owned, (1, 2, 3)) for _ in range(100)]
    assert len(set(granted)) == len(granted)
    assert granted == sorted(granted)


def test_every_epoch_of_a_later_generation_is_higher():
    assert max(owned(1).grant() for _ in range(1)) < first_epoch(2) <= owned(2).grant()
    assert generation_of(owned(7).grant()) == 7


def test_no_lineage_is_used_twice_in_any_generation():
    lineages = [table.new_lineage() for table in map(owned, (1, 2, 3)) for _ in range(10)]
    assert len({*lineages, *everything(owned())}) == len(lineages) + len(everything(owned()))


def test_a_shard_that_was_given_has_no_owner_until_it_is_ready():
    table = owned()
    placed = table.place([2], [ME], {})
    assert placed == [(2, ME)]
    assert table.routing[2].owner is None
    assert table.homeless() == [1, 3, 4, 5]
    assert table.of(ME) == [2]
    route = table.ready(2, table.routing[2].epoch, ME)
    assert route == table.routing[2]
    assert route.owner == ME
    assert table.owned_by(2, route.epoch, ME)


def test_being_ready_under_an_older_epoch_makes_no_owner():
    table = owned()
    table.place([2], [ME], {})
    old = table.routing[2].epoch
    table.place([2], [ME], {})
    assert table.ready(2, old, ME) is None
    assert table.routing[2].owner is None
    assert table.routing[2].epoch > old


def test_being_ready_with_another_s_shard_makes_no_owner():
    table = owned()
    table.place([2], [ME], {})
    assert table.ready(2, table.routing[2].epoch, OTHER) is None
    assert table.ready(2, table.routing[2].epoch, Peer(ME.worker, 2)) is None


def test_being_ready_twice_or_with_what_is_no_more_changes_nothing():
    table = settled(ME)
    assert table.ready(2, table.routing[2].epoch, ME) is None
    assert table.ready(99, 1, ME) is None


def test_placing_takes_a_shard_from_its_owner():
    table = settled(ME)
    old = table.routing[2].epoch
    table.place([2], [OTHER], {})
    assert table.routing[2].owner is None
    assert not table.owned_by(2, old, ME)
    assert table.of(ME) == [1, 3, 4, 5]


def test_ownership_is_under_an_epoch():
    table = settled(ME)
    epoch = table.routing[2].epoch
    assert table.owned_by(2, epoch, ME)
    assert not table.owned_by(2, epoch - 1, ME)
    assert not table.owned_by(2, epoch, OTHER)
    assert not table.owned_by(99, epoch, ME)


def test_a_lost_worker_owns_nothing_and_is_about_to_own_nothing():
    table = settled(ME, OTHER)
    table.place([1], [ME], {})
    table.disown(table.of(ME))
    assert table.of(ME) == []
    assert 1 in table.homeless()
    assert table.ready(1, table.routing[1].epoch, ME) is None
    assert not table.complete()


def test_what_was_given_back_for_somebody_else_is_not_lost():
    table = settled(ME)
    table.disown([2], yielded=True)
    assert table.homeless() == []
    assert not table.complete()
    table.place([2], [OTHER], {})
    table.disown(table.of(OTHER))
    assert table.homeless() == [2], "given to somebody, and lost with them"


def test_with_nobody_alive_shards_wait_under_a_new_epoch():
    table = settled(ME)
    old = table.routing[2].epoch
    assert table.place([2], [], {}) == []
    assert table.routing[2].epoch > old
    assert table.homeless() == [2]


@given(st.integers(1, 5), st.integers(1, 4))
def test_shards_are_spread_evenly_each_node_s_by_itself(shards, workers):
    alive = [Peer(n, 1) for n in range(workers)]
    table = settled(*alive, shards=shards)
    for node in ("count", "counts-sink"):
        counts = [sum(table.routing[shard].node == node for shard in table.of(peer)) for peer in alive]
        assert max(counts) - min(counts) <= 1
    assert table.complete()


def test_a_node_s_shards_are_spread_before_all_of_them_are():
    """One worker has more to do, but nothing of this node: it is better for the node to be in two places."""
    table = owned()
    table.place([4, 5], [ME], {})
    table.place([2], [OTHER], {})
    assert table.place([3], [ME, OTHER], {}) == [(3, ME)]
    table.place([2, 3, 4], [ME, OTHER], {})
    assert [shard for shard in table.of(OTHER) if shard in (2, 3)] in ([2], [3])


def test_a_shard_may_be_superseded_while_it_is_being_given():
    table = owned()
    table.place([2], [ME], {})
    table.supersede([2], [NewShard("count", LEFT, 50, Lineage(50, LEFT, []))])
    assert table.of(ME) == []
    assert table.place([50], [ME], {}) == [(50, ME)]


def test_where_a_shard_is_to_go_is_where_it_goes_if_that_worker_is_alive():
    table = owned()
    placed = dict(table.place(everything(table), [ME, OTHER], {2: OTHER.worker, 3: OTHER.worker, 4: THIRD.worker}))
    assert (placed[2], placed[3]) == (OTHER, OTHER)
    assert placed[4] in (ME, OTHER)


def test_a_split_s_children_take_the_parent_s_place():
    table = settled(ME)
    parent = table.routing[2]
    new = [
        NewShard("count", half, shard, Lineage(shard, half, []))
        for shard, half in zip((50, 51), parent.range.split((parent.range.low + parent.range.high) // 2), strict=True)
    ]
    table.disown([2], yielded=True)
    routes = table.supersede([2], new)
    assert [(route.shard, route.owner, route.epoch) for route in routes] == [(50, None, 0), (51, None, 0)]
    assert table.routing.get(2) is None
    assert table.homeless() == [50, 51]


def test_an_adoption_is_the_route_as_it_was_granted():
    table = owned(shards=2)
    table.place([2], [ME], {})
    given_away = table.adoption(2, Lineage(2, LEFT, []))
    assert (given_away.shard, given_away.node, given_away.range) == (2, "count", LEFT)
    assert given_away.epoch == table.routing[2].epoch
    assert table.routing[3].range == RIGHT
    assert table.routing[1].range == FULL
