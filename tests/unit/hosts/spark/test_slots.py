"""Every worker needs a slot of its own; too few is an error with the numbers and a remedy, before anything starts."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from tests.unit.hosts.spark.sessions import Session
from tidemill.errors import RunError
from tidemill.hosts.spark import slots
from tidemill.hosts.spark.slots import check_master, check_slots


def executor(most):
    return SimpleNamespace(maxTasks=lambda: most)


@pytest.mark.parametrize("master", ["local[4]", "local[*]", "local[4, 2]", "spark://host:7077"])
def test_enough_is_enough(master):
    check_slots(Session(master=master, slots=4), 4)


@pytest.mark.parametrize(
    ("master", "remedy"),
    [
        ("local[2]", "master local[3]"),
        ("local", "master local[3]"),
        ("local-cluster[1,2,1024]", "more executors or more cores each in local-cluster"),
        ("spark://host:7077", "more executors, or more spark.executor.cores"),
    ],
)
def test_too_few_is_said_with_the_numbers_and_a_remedy(monkeypatch, master, remedy):
    monkeypatch.setattr(slots, "PATIENCE", 0.05)
    with pytest.raises(RunError) as raised:
        check_slots(Session(master=master, slots=2), 3)
    said = str(raised.value)
    assert said.startswith(f"3 workers need 3 free task slots, and Spark (master {master}) has 2 free of 2. ")
    assert remedy in said


def test_slots_that_other_tasks_have_are_not_free(monkeypatch):
    monkeypatch.setattr(slots, "PATIENCE", 0.05)
    with pytest.raises(RunError, match=r"has 1 free of 4.*local\[5\]"):
        check_slots(Session(slots=4, busy=3), 2)


def test_those_of_all_executors_count():
    session = Session(master="spark://host:7077")
    session.executors = [executor(0), executor(2), executor(3)]  # the driver is one of them
    check_slots(session, 5)
    session.running = {"1": 1, "2": 1}
    check_slots(session, 3)


def test_a_local_one_that_never_has_enough_is_not_waited_for():
    began = time.monotonic()
    with pytest.raises(RunError):
        check_slots(Session(master="local[2]", slots=2), 3)
    assert time.monotonic() - began < 1


def test_executors_that_are_starting_are_waited_for(monkeypatch):
    session = Session(master="spark://host:7077", slots=0)
    monkeypatch.setattr(time, "sleep", lambda _: session.executors.append(executor(1)))
    check_slots(session, 3)
    assert len(session.executors) == 4


def test_tasks_that_end_soon_are_waited_for(monkeypatch):
    session = Session(slots=4, busy=4)
    monkeypatch.setattr(time, "sleep", lambda _: session.running.update(driver=0))
    check_slots(session, 4)


def test_where_spark_makes_executors_on_demand_they_come():
    check_slots(Session(master="yarn", slots=0, spark_dynamicAllocation_enabled="true"), 10)


def test_where_spark_can_not_say_nothing_is_judged():
    from py4j.protocol import Py4JError

    session = Session(slots=0)

    def refuse():
        raise Py4JError("no such method")

    session.sparkContext._jsc = SimpleNamespace(sc=refuse)
    check_slots(session, 10)


# Before there is a session


@pytest.mark.parametrize(
    ("master", "workers"), [("local[3]", 3), ("local", 1), ("local[*]", 99), ("local[3,4]", 2), ("yarn", 99)]
)
def test_a_master_that_may_have_enough(master, workers):
    check_master(master, workers)


@pytest.mark.parametrize(("master", "workers", "there"), [("local[2]", 3, 2), ("local", 2, 1), ("local[2,4]", 3, 2)])
def test_a_master_that_can_not_have_enough(master, workers, there):
    with pytest.raises(RunError, match=rf"{workers} workers need {workers} free task slots.*{there} free of {there}"):
        check_master(master, workers)


@pytest.mark.parametrize("master", ["locall[2]", "localhost:7077", ""])
def test_a_master_that_is_none(master):
    with pytest.raises(RunError, match=r"There is no Spark master .* Masters are: local\[4\]"):
        check_master(master, 1)


def test_a_cluster_that_does_not_answer():
    with pytest.raises(RunError, match=r"No Spark master answers at spark://127\.0\.0\.1:1"):
        check_master("spark://127.0.0.1:1", 1)
