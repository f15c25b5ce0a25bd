"""Numbers of incarnations rise, and what each process is started with holds no more of the user's than it needs."""

# mypy: disable-error-code="arg-type, index"

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

import tidemill as tm
from tests.unit.core.pipes import BY_WORD, pipeline
from tests.unit.hosts.spark.offices import command, with_sinks
from tests.unit.hosts.spark.wires import KEYS
from tidemill.core.graph import Graph, Key, Late, Subscription
from tidemill.core.ids import Peer
from tidemill.core.limits import Limits
from tidemill.hosts.spark.orders import (
    ATTEMPTS,
    Gathered,
    Orders,
    for_coordinator,
    for_workers,
    incarnation,
    submission_of,
)
from tidemill.recovery.nothing import Nothing


def test_every_attempt_and_every_submission_is_a_higher_incarnation():
    numbers = [incarnation(submission, attempt) for submission in range(3) for attempt in (0, 1, 4, ATTEMPTS - 1)]
    assert numbers == sorted(set(numbers))
    assert numbers[0] == 1, "0 is nobody"


@pytest.mark.parametrize("submission", [0, 1, 7])
@pytest.mark.parametrize("attempt", [0, 3, ATTEMPTS - 1])
def test_the_submission_is_found_again(submission, attempt):
    orders = Orders(pipeline(), Nothing(), Limits(), 1, KEYS, "tcp://127.0.0.1:1", ("127.0.0.1", 2))
    me = orders.me(5, submission, attempt)
    assert me.worker == 5
    assert submission_of(me) == submission


def test_attempts_of_one_job_are_told_from_other_submissions():
    assert submission_of(Peer(0, incarnation(1, 0))) == submission_of(Peer(0, incarnation(1, 9)))
    assert submission_of(Peer(0, incarnation(0, ATTEMPTS - 1))) != submission_of(Peer(0, incarnation(1, 0)))


class Unsendable:
    """Stands for the user's: nobody but the workers may need to load it."""

    def __reduce__(self):
        raise AssertionError("this is not for everybody")

    def __call__(self, *_):
        return None


class Table:
    def open(self, schema, writer): ...

    def commit(self, generation, number, prepared): ...

    def committed(self, generation): ...


def test_workers_get_no_places_in_the_drivers_memory():
    collect, table = tm.sinks.Collect(), Table()
    graph = with_sinks(collect)
    assert for_workers(graph).nodes["counts-sink"].handle == Gathered()
    assert for_workers(with_sinks(table)).nodes["counts-sink"].handle is table
    assert graph.nodes["counts-sink"].handle is collect, "the driver's own stays as it is"


def test_workers_get_the_users_code():
    assert for_workers(pipeline()).nodes["count"].make is pipeline().nodes["count"].make


def test_the_coordinator_gets_the_shape_and_the_sinks_and_none_of_the_code():
    made = pipeline(late=Late("process", choose=Unsendable()), key=Key(function=Unsendable()))
    nodes = {
        name: replace(node, handle=Table() if node.kind == "sink" else Unsendable(), make=Unsendable())
        for name, node in made.nodes.items()
    }
    graph = for_coordinator(Graph(made.name, made.streams, nodes, made.subscriptions))
    again = pickle.loads(pickle.dumps(graph))  # noqa: S301 - as it reaches the coordinator
    assert list(again.nodes) == list(made.nodes)
    assert again.senders == made.senders
    assert [node.kind for node in again.nodes.values()] == [node.kind for node in made.nodes.values()]
    assert isinstance(again.nodes["counts-sink"].handle, Table)
    assert again.nodes["words-source"].handle is None


def test_whether_there_is_a_key_is_all_that_the_coordinator_knows_of_it():
    made = pipeline()
    subscriptions = (
        Subscription("words", "count", BY_WORD),
        Subscription("words", "count", Key(function=Unsendable())),
        Subscription("words", "count", Key()),
    )
    graph = for_coordinator(Graph(made.name, made.streams, made.nodes, subscriptions))
    assert [bool(s.key.columns) for s in graph.subscriptions] == [True, True, False]
    assert all(s.key.function is None for s in graph.subscriptions)


def test_orders_do_not_tell_the_keys():
    assert KEYS.secret.decode() not in repr(command())
