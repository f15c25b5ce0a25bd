"""What bounds a worker beside credit: releases that do not come, and neighbours that are never at rest."""

# mypy: disable-error-code="arg-type, index, list-item, union-attr"

from tests.unit.core.driving import FIRST, ME, OTHER, DrivenWorker, Told, adoption, route
from tests.unit.core.pipes import Count, bundle, pipeline
from tidemill.core import decisions as d
from tidemill.core import messages
from tidemill.core.flow import BUNDLE_WEIGHT
from tidemill.core.keys import KeyRange
from tidemill.core.limits import Limits
from tidemill.core.messages import ChannelId
from tidemill.core.worker import RECEIPTS_EVERY

WEIGHT = BUNDLE_WEIGHT + 1  # of a bundle of one record
IN = ChannelId(1, 1, 2, 1)


def counting(half, **limits):
    worker = DrivenWorker(pipeline(Count), half, limits=Limits(**limits))
    source, sink = (node.name for node in (*worker.core.graph.of_kind("source"), *worker.core.graph.of_kind("sink")))
    worker.routes(route(1, source, OTHER), route(2, "count", None), route(3, sink, OTHER))
    worker.adopt(adoption(2, "count"))
    worker.routes(route(2, "count", ME))
    worker.work()
    worker.told(OTHER, messages.Delivery)
    return worker


def deliver(worker, records):
    for place in range(records):
        worker.deliver(IN, bundle(("a", place, 10), first=place + 1))


def test_a_shard_whose_releases_do_not_come_handles_no_more_than_a_window():
    half = Told(hold=True)
    worker = counting(half, window=4 * 2 * WEIGHT)  # what is handled and what it produced count alike
    worker.decide(d.Release(2, 1))
    deliver(worker, 50)
    worker.work()
    handled = len(half.of("handled"))
    assert handled < 10
    worker.decide(d.Release(2, 10**6))
    worker.work()
    assert len(half.of("handled")) > handled, "a release lets it go on"
    for _ in range(50):
        worker.decide(d.Release(2, 10**6))
        worker.work()
    assert len(half.of("handled")) == 50


def test_the_senders_are_told_while_more_is_to_be_done():
    worker = counting(Told())
    worker.told(OTHER, messages.Receipts)
    deliver(worker, 3 * RECEIPTS_EVERY)
    for _ in range(2 * RECEIPTS_EVERY):
        worker.turn()
    assert worker.core.busy
    receipts = [receipt for told in worker.told(OTHER, messages.Receipts) for receipt in told.receipts]
    assert receipts[-1].worked >= RECEIPTS_EVERY * WEIGHT


def test_what_a_shard_has_leaves_when_it_is_idle_however_busy_another_is():
    half = Told()
    worker = DrivenWorker(pipeline(Count), half)
    source, sink = (node.name for node in (*worker.core.graph.of_kind("source"), *worker.core.graph.of_kind("sink")))
    low, high = KeyRange(0, 2**63), KeyRange(2**63, 2**64)
    worker.routes(
        route(1, source, OTHER),
        route(2, "count", None, range=low),
        route(4, "count", None, range=high),
        route(3, sink, OTHER),
    )
    worker.adopt(adoption(2, "count", range=low), adoption(4, "count", range=high))
    worker.work()
    worker.told(OTHER, messages.Delivery)
    busy = ChannelId(1, 1, 4, 1)
    for place in range(20):
        worker.deliver(busy, bundle(("b", place, 10), first=place + 1))
    worker.deliver(IN, bundle(("a", 0, 10), first=100))
    for _ in range(4):
        worker.turn()
    assert worker.core.busy
    assert {delivery.channel.from_shard for delivery in worker.told(OTHER, messages.Delivery)} == {2}
    assert not worker.told(FIRST, messages.Failed)
