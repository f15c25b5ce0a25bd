"""The authority: refuses old owners, keeps the last value of who is gone, and publishes minima that only rise."""

# mypy: disable-error-code="arg-type, dict-item, index, list-item, union-attr"

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.driving import ME, OTHER, route
from tests.unit.core.pipes import LEFT, RIGHT, cycle, pipeline
from tidemill.core.ids import BEGINNING, END
from tidemill.core.keys import FULL, KeyRange
from tidemill.core.messages import Accepted, Marks, Report, ShardReport
from tidemill.core.routing import Routing
from tidemill.core.watermarks import Authority, Interval, IntervalMap

# One node's interval map


def whole(*intervals):
    """A map to which these were reported; each (range, epoch, mark)."""
    made = IntervalMap()
    for range, epoch, mark in intervals:
        assert made.report(Interval(range, epoch, mark, idle=False))
    return made


def values(made):
    return [(interval.range, interval.epoch, interval.mark) for interval in made.intervals()]


def test_of_what_never_reported_nothing_is_known():
    assert whole().least() == BEGINNING
    assert whole((LEFT, 1, 50)).least() == BEGINNING


def test_the_node_s_mark_is_the_least():
    made = whole((LEFT, 1, 50), (RIGHT, 2, 30))
    assert made.least() == 30
    assert made.report(Interval(RIGHT, 2, 60, idle=False))
    assert made.least() == 50


def test_an_older_owner_of_any_part_is_refused():
    made = whole((FULL, 1, 10), (LEFT, 3, 50))
    for range in (FULL, LEFT, KeyRange(5, 6), KeyRange(LEFT.high - 1, LEFT.high + 1)):
        assert not made.report(Interval(range, 2, 99, idle=False))
    assert values(made) == [(LEFT, 3, 50), (RIGHT, 1, 10)]
    assert made.report(Interval(RIGHT, 2, 99, idle=False))


def test_a_part_keeps_its_last_value_until_a_newer_owner_reports():
    """The parent was split; one child has reported, the other is still being restored."""
    made = whole((FULL, 1, 40))
    made.report(Interval(LEFT, 2, 70, idle=False))
    assert values(made) == [(LEFT, 2, 70), (RIGHT, 1, 40)]
    assert made.least() == 40
    made.report(Interval(RIGHT, 3, 60, idle=False))
    assert made.least() == 60


def test_a_merged_shard_speaks_for_both_parts():
    made = whole((LEFT, 1, 40), (RIGHT, 2, 50))
    assert made.report(Interval(FULL, 3, 45, idle=False))
    assert values(made) == [(FULL, 3, 45)]


def test_a_new_owner_s_value_counts_also_when_it_is_lower():
    made = whole((FULL, 1, 40))
    made.report(Interval(FULL, 2, BEGINNING, idle=False))
    assert made.least() == BEGINNING


def test_idle_parts_hold_nobody_back_and_all_of_them_together_say_so():
    made = whole((LEFT, 1, 40), (RIGHT, 1, 90))
    made.report(Interval(LEFT, 1, 40, idle=True))
    assert made.least() == 90
    made.report(Interval(RIGHT, 1, 90, idle=True))
    assert made.least() is None
    made.report(Interval(LEFT, 1, 45, idle=False))
    assert made.least() == 45


ENDS = st.sampled_from([0, 10, 20, 30, 2**64])
RANGES = st.tuples(ENDS, ENDS).filter(lambda ends: ends[0] < ends[1]).map(lambda ends: KeyRange(*ends))


@given(st.lists(st.tuples(RANGES, st.integers(0, 4), st.integers(0, 9)), max_size=12))
def test_it_is_what_each_position_s_newest_owner_said_last(reports):
    made = IntervalMap()
    cells = dict.fromkeys((0, 10, 20, 30), (-1, BEGINNING))
    for range, epoch, mark in reports:
        inside = [low for low in cells if range.contains(low)]
        accepted = all(cells[low][0] <= epoch for low in inside)
        assert made.report(Interval(range, epoch, mark, idle=False)) == accepted
        if accepted:
            cells.update(dict.fromkeys(inside, (epoch, mark)))
    intervals = made.intervals()
    assert [interval.range.low for interval in intervals[1:]] == [interval.range.high for interval in intervals[:-1]]
    assert (intervals[0].range.low, intervals[-1].range.high) == (0, 2**64)
    for low, cell in cells.items():
        (found,) = [interval for interval in intervals if interval.range.contains(low)]
        assert (found.epoch, found.mark) == cell
    assert made.least() == min(mark for _, mark in cells.values())


# All nodes


def table(*routes):
    routing = Routing()
    routing.change([], routes)
    return routing


GRAPH = pipeline()
ROUTES = (
    route(1, "words-source", ME),
    route(2, "count", ME, range=LEFT, epoch=3),
    route(3, "count", OTHER, range=RIGHT, epoch=4),
    route(4, "counts-sink", OTHER),
)


def report(authority, routing, *values, sender=ME, number=1, idle=False):
    shards = [ShardReport(shard, routing[shard].epoch, mark, idle) for shard, mark in values]
    return authority.report(sender, Report(number, shards), routing)


def test_it_publishes_what_rose_once():
    authority, routing = Authority(GRAPH), table(*ROUTES)
    report(authority, routing, (1, 10), (2, 5))
    assert authority.publish() == Marks([("words-source", 10)], [], [])
    assert authority.publish() is None
    report(authority, routing, (3, 7), sender=OTHER)
    assert authority.publish() == Marks([("count", 5)], [], [])
    assert authority.mark("count") == 5


def test_a_report_under_another_epoch_than_the_route_s_is_refused():
    authority, routing = Authority(GRAPH), table(*ROUTES)
    stale = Report(1, [ShardReport(2, 2, 99, False), ShardReport(2, 4, 99, False), ShardReport(77, 1, 99, False)])
    assert authority.report(ME, stale, routing) == 3
    assert authority.publish() is None
    assert report(authority, routing, (2, 5)) == 0


def test_what_was_refused_as_older_than_its_range_is_counted():
    authority, routing = Authority(GRAPH), table(*ROUTES)
    report(authority, routing, (2, 5))
    routing.change([], [route(2, "count", ME, range=LEFT, epoch=1)])
    assert report(authority, routing, (2, 9)) == 1


def test_published_marks_only_rise():
    authority, routing = Authority(GRAPH), table(*ROUTES)
    report(authority, routing, (1, 10))
    authority.publish()
    routing.change([], [route(1, "words-source", OTHER, epoch=9)])
    report(authority, routing, (1, BEGINNING), sender=OTHER)
    assert authority.publish() is None
    assert authority.mark("words-source") == 10
    report(authority, routing, (1, 8), sender=OTHER)
    assert authority.publish() is None
    report(authority, routing, (1, 12), sender=OTHER)
    assert authority.publish() == Marks([("words-source", 12)], [], [])


def test_until_everything_goes_back():
    authority, routing = Authority(GRAPH), table(*ROUTES)
    report(authority, routing, (1, 10))
    authority.publish()
    authority.reset()
    assert authority.mark("words-source") == BEGINNING
    assert authority.publish() is None
    report(authority, routing, (1, 4))
    assert authority.publish() == Marks([("words-source", 4)], [], [])


def test_an_idle_node_says_so_and_keeps_its_mark():
    authority, routing = Authority(GRAPH), table(*ROUTES)
    report(authority, routing, (1, 10))
    authority.publish()
    report(authority, routing, (1, 10), idle=True)
    assert authority.publish() == Marks([], [], ["words-source"])
    assert authority.mark("words-source") == 10
    report(authority, routing, (2, 5))
    assert authority.publish() is None, "nothing is new"
    report(authority, routing, (1, 11))
    assert authority.publish() == Marks([("words-source", 11)], [], [])


def test_who_stays_idle_is_named_with_whatever_else_is_new():
    authority, routing = Authority(GRAPH), table(*ROUTES)
    report(authority, routing, (1, 10), idle=True)
    authority.publish()
    report(authority, routing, (4, 3), sender=OTHER)
    assert authority.publish() == Marks([("counts-sink", 3)], [], ["words-source"])


def test_one_who_has_just_come_is_told_everything():
    authority, routing = Authority(GRAPH), table(*ROUTES)
    report(authority, routing, (1, 10), idle=True)
    report(authority, routing, (4, 3), sender=OTHER)
    authority.publish()
    everything = authority.everything()
    assert dict(everything.marks) == {"words-source": BEGINNING, "count": BEGINNING, "counts-sink": 3}
    assert everything.idle == ["words-source"]


def test_it_has_ended_when_every_node_s_mark_has():
    authority, routing = Authority(GRAPH), table(*ROUTES)
    for shard in (1, 2, 3, 4):
        assert not authority.ended()
        report(authority, routing, (shard, END))
        authority.publish()
    assert authority.ended()


# Cycles


LOOP = cycle()
LOOP_ROUTES = (
    route(1, "words-source", ME),
    route(2, "step-1", ME, epoch=5),
    route(3, "step-2", OTHER, epoch=6),
    route(4, "sink", OTHER),
)


def test_the_nodes_of_a_cycle_are_published_as_one():
    authority, routing = Authority(LOOP), table(*LOOP_ROUTES)
    report(authority, routing, (2, 50))
    assert authority.publish().marks == []
    report(authority, routing, (3, 30), sender=OTHER)
    assert sorted(authority.publish().marks) == [("step-1", 30), ("step-2", 30)]
    report(authority, routing, (3, 70), sender=OTHER)
    assert sorted(authority.publish().marks) == [("step-1", 50), ("step-2", 50)]


def test_a_report_is_accepted_for_all_shards_of_its_worker_that_are_on_a_cycle():
    authority, routing = Authority(LOOP), table(*LOOP_ROUTES)
    report(authority, routing, (1, 10), number=7)
    assert authority.publish().accepted == [Accepted(2, 5, 7)]
    report(authority, routing, sender=OTHER, number=8)
    assert authority.publish() == Marks([], [Accepted(3, 6, 8)], [])
    assert authority.publish() is None


def test_without_a_cycle_nobody_waits_for_that():
    authority, routing = Authority(GRAPH), table(*ROUTES)
    report(authority, routing, number=7)
    assert authority.publish() is None


def test_what_was_accepted_is_forgotten_when_everything_goes_back():
    authority, routing = Authority(LOOP), table(*LOOP_ROUTES)
    report(authority, routing, (2, 10), number=7)
    authority.reset()
    assert authority.publish() is None


def test_a_cycle_is_idle_when_all_of_it_is():
    authority, routing = Authority(LOOP), table(*LOOP_ROUTES)
    report(authority, routing, (2, 10), idle=True)
    report(authority, routing, (3, 20), sender=OTHER)
    assert sorted(authority.publish().marks) == [("step-1", 20), ("step-2", 20)]
    report(authority, routing, (3, 20), sender=OTHER, idle=True)
    assert sorted(authority.publish().idle) == ["step-1", "step-2"]
