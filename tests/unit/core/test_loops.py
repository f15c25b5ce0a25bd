"""What came round a loop waits in order, in memory and behind that on disk, and is answered for all the same."""

# mypy: disable-error-code="arg-type, union-attr"

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.driving import OTHER
from tests.unit.core.pipes import bundle, pipeline, rows_of
from tidemill.core.flow import Arrival, InChannel, weight_of
from tidemill.core.ids import END
from tidemill.core.loops import READ_BACK, LoopQueue
from tidemill.core.messages import ChannelId

GRAPH = pipeline(loop=True)
MINE, THEIRS = (InChannel(ChannelId(sender, 1, 2, 1), OTHER, back_edge=True) for sender in (2, 3))


def arrival(n, at=0, channel=THEIRS):
    return Arrival(channel, n, bundle(("a", n, at), stream="again", first=n + 1))


class Disk:
    """Where spilled things are; gives them back when they are asked for."""

    def __init__(self, queue):
        self.queue = queue
        self.spilled: list[bytes] = []

    def put(self, arrival):
        spilled = self.queue.put(arrival)
        if spilled is not None:
            self.spilled.append(spilled)

    def give(self, count):
        if count:
            self.queue.read_back(self.spilled[:count])
            del self.spilled[:count]
        return count


def numbers(queue, disk):
    found = []
    while queue:
        popped = queue.pop()
        if popped is None:
            assert disk.give(queue.to_read_back()), "it waits for what nobody brings"
        else:
            assert rows_of(popped.item)[0][1] == popped.number
            found.append(popped.number)
    return found


@given(st.integers(0, 100), st.lists(st.booleans(), max_size=3 * READ_BACK), st.data())
def test_the_order_stays_whatever_had_to_be_spilled(memory, puts, data):
    queue = LoopQueue(GRAPH, memory)
    disk = Disk(queue)
    count, found = 0, []
    for put in puts:
        if put:
            disk.put(arrival(count))
            count += 1
        elif (popped := queue.pop()) is not None:
            found.append(popped.number)
        elif data.draw(st.booleans()):
            disk.give(queue.to_read_back())
        assert queue.weight <= max(0, memory) + (READ_BACK + 1) * weight_of(arrival(0).item)
    if queue._asked:
        disk.give(queue._asked)
    if memory or not queue._spilled:
        assert found + numbers(queue, disk) == list(range(count))


def test_with_room_nothing_is_spilled():
    queue = LoopQueue(GRAPH, 1_000)
    assert queue.put(arrival(1)) is None
    assert not queue.ever_spilled
    assert queue.to_read_back() == 0
    assert queue.pop().number == 1
    assert queue.pop() is None
    assert not queue


def test_what_comes_behind_something_spilled_is_spilled_too():
    queue = LoopQueue(GRAPH, 20)
    disk = Disk(queue)
    for n in range(4):
        disk.put(arrival(n))
    assert len(disk.spilled) == 2
    queue.pop()
    queue.pop()
    assert queue.put(arrival(4)) is not None
    assert queue.ever_spilled


def test_nothing_is_asked_for_twice():
    queue = LoopQueue(GRAPH, 1)
    disk = Disk(queue)
    for n in range(4):
        disk.put(arrival(n))
    queue.pop()
    assert queue.to_read_back() == 3
    assert queue.to_read_back() == queue.to_read_all() == 0
    with pytest.raises(AssertionError, match="what was spilled comes back"):
        queue.read_back(disk.spilled[:1])


def test_what_is_on_disk_is_answered_for_in_time():
    queue = LoopQueue(GRAPH, 1)
    assert queue.oldest() == END
    disk = Disk(queue)
    disk.put(arrival(0, at=30))
    disk.put(arrival(1, at=10))
    disk.put(Arrival(THEIRS, 2, b"marker"))
    assert queue.oldest() == 10
    assert queue.pop().number == 0
    assert queue.oldest() == 10
    disk.give(queue.to_read_back())
    assert queue.oldest() == 10
    assert queue.pop().number == 1
    assert queue.oldest() == END


def test_a_marker_keeps_its_place_on_disk():
    queue = LoopQueue(GRAPH, 1)
    disk = Disk(queue)
    for item in (arrival(0), Arrival(THEIRS, 1, b"marker"), arrival(2)):
        disk.put(item)
    queue.pop()
    disk.give(queue.to_read_back())
    assert queue.pop() == Arrival(THEIRS, 1, b"marker")
    assert queue.pop().number == 2


def test_one_sender_s_are_found_behind_those_of_others_also_on_disk():
    queue = LoopQueue(GRAPH, 20)
    disk = Disk(queue)
    for n, channel in enumerate((THEIRS, MINE, THEIRS, MINE)):
        disk.put(arrival(n, channel=channel))
    assert queue.pop_from(2).number == 1
    assert queue.pop_from(2) is None
    assert disk.give(queue.to_read_all()) == 2
    assert queue.pop_from(2).number == 3
    assert [queue.pop().number for _ in range(2)] == [0, 2]
    assert not queue
