"""Rewind: whatever is lost, everything begins again under new epochs. Nothing: whatever is lost ends the run."""

# mypy: disable-error-code="arg-type, dict-item, list-item"

import pytest

from tests.unit.core.driving import ME, OTHER, DrivenCoordinator, DrivenWorker, adoption, route
from tests.unit.core.pipes import Count, bundle, pipeline, rows_of, shard_of
from tidemill.core import effects, events, messages
from tidemill.core.decisions import AssignAll, EndRun, NewShard, Supersede
from tidemill.core.halves import Change
from tidemill.core.ids import Peer
from tidemill.core.keys import FULL, even_ranges
from tidemill.core.messages import ChannelId, Lineage, Receipt
from tidemill.core.routing import Routing
from tidemill.recovery.contract import EXACTLY_ONCE, NOTHING, CoordinatorBase, WorkerBase
from tidemill.recovery.nothing import Nothing
from tidemill.recovery.rewind import Rewind

AGAIN = Peer(ME.worker, 2)


def routing(*ranges):
    made = Routing()
    made.change([], [route(10 + place, "count", ME, range=range) for place, range in enumerate(ranges)])
    return made


def test_they_say_what_they_promise():
    assert (Rewind().name, Rewind().promise) == ("rewind", EXACTLY_ONCE)
    assert (Nothing().name, Nothing().promise) == ("nothing", NOTHING)


@pytest.mark.parametrize("mechanism", [Rewind(), Nothing()])
def test_in_a_worker_everything_is_taken_and_released_at_once(mechanism):
    worker = DrivenWorker(pipeline(Count), mechanism.worker_half())
    worker.routes(route(1, "words-source", OTHER), route(2, "count", ME), route(3, "counts-sink", OTHER))
    worker.adopt(adoption(2, "count"))
    worker.work()
    worker.deliver(ChannelId(1, 1, 2, 1), bundle(("a", 1, 1)))
    worker.work()
    (sent,) = worker.deliveries()
    assert rows_of(sent.bundle) == [("a", 1, 1)]
    worker.tick(1)
    (told,) = worker.told(OTHER, messages.Receipts)
    assert told.receipts == [Receipt(ChannelId(1, 1, 2, 1), 1, 17, 1)]
    assert worker.effects == []


def test_a_shard_begins_empty_whatever_it_was_before():
    worker = DrivenWorker(pipeline(Count), Rewind().worker_half())
    worker.routes(route(1, "words-source", OTHER), route(2, "count", ME), route(3, "counts-sink", OTHER))
    for epoch in (1, 2):
        worker.adopt(adoption(2, "count", epoch=epoch))
        worker.routes(route(2, "count", ME, epoch=epoch))
        worker.deliver(ChannelId(1, 1, 2, epoch), bundle(("a", 1, 1)))
        worker.work()
        assert [rows_of(each.bundle) for each in worker.deliveries()] == [[("a", 1, 1)]]


def rewound():
    made = DrivenCoordinator(pipeline(), Rewind().coordinator_half(), workers=2)
    made.join(ME, OTHER)
    made.ready(ME, OTHER)
    made.said.clear()
    return made


def test_a_loss_rewinds_every_shard_also_those_of_others():
    made = rewound()
    before = {route.shard: route.epoch for route in made.core.ownership.routing.all()}
    made.gone(ME)
    made.join(AGAIN)
    given = [*made.adopted(AGAIN), *made.adopted(OTHER)]
    assert {each.shard for each in given} == set(before)
    assert all(each.epoch > before[each.shard] for each in given)
    assert made.told(OTHER, messages.Reset)


def test_a_new_coordinator_rewinds_too():
    made = DrivenCoordinator(pipeline(), Rewind().coordinator_half(), generation=2)
    made.join(ME)
    assert len(made.told(ME, messages.Reset)) == 1
    assert len(made.adopted(ME)) == 3


def test_a_move_is_a_rewind_that_goes_where_it_was_asked_to():
    half = Rewind().coordinator_half()
    change = Change("move", (10,), 4, ())
    assert half.reroute(change, routing(FULL)) == (AssignAll({10: 4}),)


def test_a_split_and_a_merge_are_rewinds_under_the_new_routing():
    half = Rewind().coordinator_half()
    left, right = even_ranges(2)
    supersede, again = half.reroute(Change("split", (10,), None, (50, 51)), routing(FULL))
    assert supersede == Supersede(
        [10],
        [NewShard("count", left, 50, Lineage(50, FULL, [])), NewShard("count", right, 51, Lineage(51, FULL, []))],
    )
    assert again == AssignAll()
    supersede, again = half.reroute(Change("merge", (10, 11), None, (52,)), routing(left, right))
    assert supersede == Supersede([10, 11], [NewShard("count", FULL, 52, Lineage(52, FULL, []))])
    assert again == AssignAll()


def test_a_split_goes_on_with_the_children():
    made = rewound()
    (shard,) = made.shards_of("count")
    made.happen(events.SplitAsked(made.now, shard))
    assert len(made.shards_of("count")) == 2
    made.ready(ME, OTHER)
    assert made.core.ownership.complete()


# Nothing


def test_nothing_runs_until_something_is_lost():
    made = DrivenCoordinator(pipeline(), Nothing().coordinator_half(), workers=2)
    made.join(ME, OTHER)
    made.ready(ME, OTHER)
    assert made.core.ownership.complete()
    made.gone(ME)
    assert made.asked(effects.Fail) == []
    made.join(AGAIN)
    (fail,) = made.asked(effects.Fail)
    assert "were lost with their worker, and recovery=None keeps nothing of them" in fail.message


def test_nothing_does_not_survive_its_coordinator():
    half = Nothing().coordinator_half()
    (end,) = half.begin(2, [], routing(FULL))
    assert isinstance(end, EndRun)
    assert "the coordinator was lost" in end.reason


def test_nothing_changes_no_routing():
    half = Nothing().coordinator_half()
    (end,) = half.reroute(Change("move", (10,), 4, ()), routing(FULL))
    assert isinstance(end, EndRun)
    assert half.lineage(10) == Lineage(10, FULL, [])


# The bases


def test_what_a_base_was_never_asked_for_is_a_fault_of_ours():
    with pytest.raises(AssertionError, match="nothing was asked for"):
        WorkerBase().loaded(5, [])
    with pytest.raises(AssertionError, match="no marker is ever sent"):
        WorkerBase().marker(shard_of(pipeline()), 1, b"marker")


def test_a_base_decides_nothing_that_concerns_only_some():
    worker, coordinator = WorkerBase(), CoordinatorBase()
    assert worker.handled(None, None, None) == ()
    assert worker.acknowledged(1, 2, 3) == worker.told(ME, b"") == worker.ticked(0) == ()
    assert worker.persisted(1) == worker.refused(1) == ()
    assert (
        coordinator.yielded(1) == coordinator.persisted(1) == coordinator.told(ME, b"") == coordinator.ticked(0) == ()
    )
    for missing in (
        lambda: coordinator.begin(1, [], Routing()),
        lambda: coordinator.lost([]),
        lambda: coordinator.reroute(Change("move", (1,), 1, ()), Routing()),
        lambda: coordinator.lineage(1),
    ):
        with pytest.raises(NotImplementedError):
            missing()
