"""A worker's job is submitted until the run is over, each time under a higher number, or until there is no hope."""

# mypy: disable-error-code="has-type, func-returns-value"

from __future__ import annotations

import threading
import time
from itertools import pairwise

import pytest

from tests.unit.hosts.spark.sessions import Session
from tests.unit.hosts.spark.wires import eventually
from tidemill.hosts.spark import jobs
from tidemill.hosts.spark.jobs import MOST_FAILURES, Jobs, readable


class Asked:
    """Jobs of a session whose tasks end as a test says."""

    def __init__(self, run, monkeypatch, **how):
        monkeypatch.setattr(jobs, "task_of", lambda orders, place, submission: (orders, place, submission))
        monkeypatch.setattr(jobs, "PAUSE", 0.01)
        self.session = Session(run, **how)
        self.hopeless: list = []
        self.jobs = Jobs(self.session, "counts", "abc", b"orders", hopeless=lambda *about: self.hopeless.append(about))

    def close(self):
        self.jobs.over()
        assert self.jobs.join(5)


@pytest.fixture
def asked(monkeypatch, closing):
    return lambda run, **how: closing(Asked(run, monkeypatch, **how))


def test_each_worker_has_a_job_of_its_own(asked):
    over = threading.Event()
    made = asked(lambda _: over.wait(5) and "finished")
    made.jobs.start(3)
    eventually(lambda: len(made.session.tasks) == 3)
    assert sorted(made.session.tasks) == [(b"orders", place, 0) for place in range(3)]
    assert not made.jobs.join(0.01)
    made.jobs.over()
    over.set()
    assert made.jobs.join(5)
    assert len(made.session.tasks) == 3
    assert made.hopeless == []


def test_sparks_pages_tell_which_is_which(asked):
    made = asked(lambda _: made.jobs.over())
    made.jobs.start(2)
    made.jobs.join(5)
    assert sorted(made.session.groups) == [
        ("tidemill-abc", "tidemill counts: worker 0", True),
        ("tidemill-abc", "tidemill counts: worker 1", True),
    ]
    assert sorted(made.session.tags) == [("tidemill-0", "tidemill-abc"), ("tidemill-1", "tidemill-abc")]


def test_a_session_that_knows_no_labels_has_jobs_all_the_same(asked, monkeypatch):
    made = asked(lambda _: made.jobs.over())

    def refuse(*_, **__):
        raise NotImplementedError

    monkeypatch.setattr(made.session, "addTag", refuse)
    monkeypatch.setattr(made.session.sparkContext, "setJobGroup", refuse)
    made.jobs.start(1)
    made.jobs.join(5)
    assert len(made.session.tasks) == 1


@pytest.mark.parametrize("how", ["ends", "raises", "gives nothing"])
def test_one_that_ended_before_the_run_is_submitted_again_under_a_higher_number(asked, how):
    def run(task):
        _, _, submission = task
        if submission == 3:
            made.jobs.over()
        elif how == "raises":
            raise RuntimeError("Spark has given it up")
        return None if how == "gives nothing" else "outdated"

    made = asked(run)
    made.jobs.start(1)
    made.jobs.join(5)
    assert [submission for _, _, submission in made.session.tasks] == [0, 1, 2, 3]
    assert made.hopeless == []


def test_each_failure_doubles_the_pause(asked, monkeypatch):
    times: list = []

    def run(_):
        times.append(time.monotonic())
        raise RuntimeError("no")

    made = asked(run)
    monkeypatch.setattr(jobs, "PAUSE", 0.02)
    made.jobs.start(1)
    made.jobs.join(5)
    pauses = [after - before for before, after in pairwise(times)]
    assert all(pause >= 0.02 * 2 ** (number + 1) for number, pause in enumerate(pauses))


def test_one_that_fails_again_and_again_is_hopeless(asked):
    def run(_):
        raise RuntimeError("no such thing")

    made = asked(run)
    made.jobs.start(1)
    assert made.jobs.join(5)
    assert made.hopeless == [(0, "no such thing")]
    assert len(made.session.tasks) == MOST_FAILURES


def test_one_that_lived_for_long_had_not_failed_to_start(asked, monkeypatch):
    monkeypatch.setattr(jobs, "LONG_ENOUGH", 0.0)

    def run(task):
        if task[2] == 3 * MOST_FAILURES:
            made.jobs.over()
        raise RuntimeError("lost")

    made = asked(run)
    monkeypatch.setattr(jobs, "PAUSE", 0.001)
    made.jobs.start(1)
    made.jobs.join(5)
    assert made.hopeless == []
    assert len(made.session.tasks) == 3 * MOST_FAILURES + 1


@pytest.mark.parametrize(
    "why",
    [
        "ModuleNotFoundError: No module named 'tidemill'",
        "worker0.1 can't reach the coordinator at 10.0.0.1:4711: timed out",
        "worker0.1 speaks version 1 and the driver 2: install one version of tidemill",
    ],
)
def test_what_another_try_will_not_mend_is_not_tried(asked, why):
    def run(_):
        raise RuntimeError(why)

    made = asked(run)
    made.jobs.start(1)
    made.jobs.join(5)
    ((place, told),) = made.hopeless
    assert place == 0
    assert told.startswith(why)
    assert ("PYSPARK_PYTHON" in told) == ("ModuleNotFoundError" in why)
    assert len(made.session.tasks) == 1


def test_none_is_submitted_in_a_pause_that_the_end_of_the_run_cuts_short(asked, monkeypatch):
    made = asked(lambda _: "orphaned")
    monkeypatch.setattr(jobs, "PAUSE", 60.0)
    made.jobs.start(1)
    eventually(lambda: made.jobs._jobs[0].failures)
    made.jobs.over()
    assert made.jobs.join(2)
    assert len(made.session.tasks) == 1


def test_what_still_runs_is_ended_by_spark(asked, monkeypatch):
    over = threading.Event()
    made = asked(lambda _: over.wait(5))
    monkeypatch.setattr(made.session, "interruptTag", lambda tag: made.session.interrupted.append(tag) or over.set())
    made.jobs.start(2)
    eventually(lambda: len(made.session.tasks) == 2)
    made.jobs.cancel()
    assert made.jobs.join(2)
    assert made.session.interrupted == ["tidemill-abc"]


def test_a_session_that_is_gone_has_nothing_to_end(asked, monkeypatch):
    made = asked(lambda _: "finished")
    monkeypatch.setattr(made.session, "interruptTag", lambda _: 1 / 0)
    made.jobs.cancel()


SPARK_SAID = """\
[FAILED_EXECUTE_UDF] Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: \
Lost task 0.0 in stage 1.0 (TID 1) (host executor driver): org.apache.spark.api.python.PythonException: Traceback \
(most recent call last):
  File "/x/worker.py", line 1, in main
    process()
tidemill.errors.RunError: worker0.1 can't reach the coordinator at 10.0.0.1:4711: timed out

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
\tat org.apache.spark.SomeException: at org.apache

Driver stacktrace:"""


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (SPARK_SAID, "tidemill.errors.RunError: worker0.1 can't reach the coordinator at 10.0.0.1:4711: timed out"),
        ("ValueError: first\n\nDuring handling\n\nKeyError: 'second'", "KeyError: 'second'"),
        ("SystemExit: 3", "SystemExit: 3"),
        ("ExecutorLostFailure (executor 1 exited)\n\tat org.apache", "ExecutorLostFailure (executor 1 exited)"),
        ("", "RuntimeError"),
    ],
)
def test_of_all_that_spark_says_the_line_that_matters(said, told):
    assert readable(RuntimeError(said)) == told
