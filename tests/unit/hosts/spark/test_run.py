"""A run as its program holds it: what it can be asked, how it ends, and that nothing is left of it."""

# mypy: disable-error-code="arg-type"

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

import tidemill as tm
from tests.unit.core.pipes import batch
from tests.unit.hosts.spark.offices import with_sinks
from tests.unit.hosts.spark.sessions import Session
from tests.unit.hosts.spark.wires import eventually, threads
from tests.unit.observe.invented import progress, worker
from tidemill.errors import DataError, RunError, UserCodeError
from tidemill.hosts.spark import protocol
from tidemill.hosts.spark.run import RECENT, Run, Watchers
from tidemill.hosts.spark.sinking import stream_of


class Attendance:
    """The coordinator's process, as far as a run talks to it."""

    def __init__(self):
        self.said: list = []
        self.closed = 0

    def say(self, message):
        self.said.append(message)

    def close(self):
        self.closed += 1


class Jobs:
    """Workers that end when they are told to, or only when Spark ends them."""

    def __init__(self, *, willing=True):
        self.willing = willing
        self.done: list = []

    def over(self):
        self.done.append("over")

    def join(self, _):
        self.done.append("join")
        return self.willing

    def cancel(self):
        self.done.append("cancel")
        self.willing = True


class Held:
    def __init__(self, *, workers=2, sink=None, jobs=None):
        self.attendance = Attendance()
        self.jobs = jobs or Jobs()
        self.shown: list = []
        self.told: list[str] = []
        self.released = 0
        watchers = Watchers([self.shown.append], self.told.append)
        self.run = Run("counts", with_sinks(sink), workers, self.attendance, watchers)
        self.run.attend(self.jobs, self.release)

    def release(self):
        self.released += 1

    def state(self, seconds=1, status="running", **how):
        self.run.hear(protocol.State(progress(seconds, status, **how)))

    def end(self, status="finished", error="", message="", trace=""):
        self.run.hear(protocol.Ended(status, error, message, trace, progress(9, status)))


@pytest.fixture
def held():
    return Held()


# What it can be asked


def test_before_the_first_word_nothing_is_known(held):
    run = held.run
    assert (run.status, run.progress, run.recent_progress, run.exception) == ("starting", None, [], None)
    assert (run.workers, run.watermarks()) == ((), {})
    assert repr(run) == "<Run of 'counts': starting>"
    assert not run.wait(0.01)


def test_it_tells_what_it_was_told_last(held):
    held.state(1)
    held.state(2, workers=[worker(0), worker(1)])
    assert held.run.status == "running"
    assert held.run.progress.seconds == 2
    assert [each.seconds for each in held.run.recent_progress] == [1, 2]
    assert [each.id for each in held.run.workers] == [0, 1]
    assert set(held.run.watermarks()) == {"words", "count", "counts"}
    assert [each.seconds for each in held.shown] == [1, 2]


def test_it_keeps_a_part_of_its_past(held):
    for second in range(RECENT + 5):
        held.state(second)
    assert len(held.run.recent_progress) == RECENT
    assert held.run.recent_progress[-1].seconds == RECENT + 4


def test_what_others_should_know_at_once_is_said(held):
    for what in ("lost", "refused", "began"):
        held.run.hear(protocol.Noted("coordinator.1", what, "worker0.1"))
    assert held.told == ["coordinator.1: lost worker0.1", "coordinator.1: refused worker0.1"]


def test_rows_reach_their_sink_and_are_acknowledged():
    sink = tm.sinks.Collect()
    held = Held(sink=sink)
    data = stream_of([batch(("a", 1), ("b", 2))])
    held.run.hear(protocol.Gathered(1, 2, 3, "counts-sink", data))
    assert sink.rows == [{"word": "a", "n": 1}, {"word": "b", "n": 2}]
    assert held.attendance.said == [protocol.Taken(1, 2, 3)]
    held.run.hear(protocol.Gathered(-1, 1, 0, "counts-sink", data))
    assert len(sink.rows) == 4
    assert len(held.attendance.said) == 1, "a piece of a commit needs no answer"


# How it ends


@pytest.mark.parametrize("status", ["finished", "stopped"])
def test_one_that_ended_well_is_over_when_all_is_let_go(held, status):
    held.end(status)
    assert held.run.wait(5)
    assert held.run.status == status
    assert held.run.progress.seconds == 9
    assert (held.attendance.closed, held.released, held.jobs.done) == (1, 1, ["over", "join"])


def test_workers_that_do_not_leave_are_ended_by_spark():
    held = Held(jobs=Jobs(willing=False))
    held.end()
    assert held.run.wait(5)
    assert held.jobs.done == ["over", "join", "cancel", "join"]
    assert held.released == 1


@pytest.mark.parametrize(
    ("kind", "raised", "said"),
    [
        ("UserCodeError", UserCodeError, "count raised\n\nTraceback of the user"),
        ("DataError", DataError, "count raised\n\nTraceback of the user"),
        ("OSError", RunError, "OSError: count raised\n\nTraceback of the user"),
        ("annotations", RunError, "annotations: count raised\n\nTraceback of the user"),
    ],
)
def test_one_that_failed_raises_what_it_failed_with(held, kind, raised, said):
    held.end("failed", kind, "count raised", "Traceback of the user")
    for _ in range(2):
        with pytest.raises(raised) as error:
            held.run.wait(5)
        assert str(error.value) == said
    assert held.run.exception is error.value
    assert held.run.status == "failed"


def test_the_first_end_counts(held):
    held.end("failed", "RunError", "lost")
    held.end("finished")
    held.run.died("the coordinator's process ended with 0")
    held.state(10)
    with pytest.raises(RunError, match="lost"):
        held.run.wait(5)
    assert held.run.status == "failed"
    assert held.released == 1


def test_a_coordinator_that_died_ends_it(held):
    held.run.died("the coordinator's process ended with -9")
    with pytest.raises(RunError, match="ended with -9; recovery=None keeps nothing to go on from"):
        held.run.wait(5)


def test_a_worker_without_hope_ends_it(held):
    held.run.hopeless(1, "ModuleNotFoundError: No module named 'x'")
    with pytest.raises(RunError, match="worker 1 can't be started: ModuleNotFoundError"):
        held.run.wait(5)
    assert held.attendance.said == [protocol.StopRun(abandon=True)]


def test_a_callback_that_raises_ends_it():
    def fail(_):
        raise KeyError("word")

    held = Held(sink=tm.sinks.Callback(fail))
    held.run.hear(protocol.Gathered(1, 2, 3, "counts-sink", stream_of([batch(("a", 1))])))
    with pytest.raises(UserCodeError, match=r"counts-sink \(declared at here.py:9\) raised KeyError: 'word'") as raised:
        held.run.wait(5)
    assert isinstance(raised.value.__cause__, KeyError)
    assert held.attendance.said == [protocol.StopRun(abandon=True)], "what failed was not taken"


def test_what_can_not_be_let_go_keeps_nobody_waiting(held, monkeypatch):
    problems: list = []
    monkeypatch.setattr(threading, "excepthook", lambda hook: problems.append(hook.exc_value))
    held.run.attend(held.jobs, lambda: 1 / 0)
    held.end()
    assert held.run.wait(5)
    eventually(lambda: problems)
    assert isinstance(problems[0], ZeroDivisionError)


# Stopping


def later(what, seconds=0.1):
    threading.Timer(seconds, what).start()


def test_stop_asks_and_waits(held):
    held.state()
    assert not held.run.stop(0.01)
    assert held.attendance.said == [protocol.StopRun(abandon=False)]
    later(lambda: held.end("stopped"))
    assert held.run.stop(5)
    assert held.run.status == "stopped"


def test_abandon_ends_it_though_nobody_answers(held, monkeypatch):
    monkeypatch.setattr(held.run._over, "wait", lambda _: False)
    held.run.abandon()
    assert held.attendance.said == [protocol.StopRun(abandon=True)]
    assert held.run.status == "stopped"
    assert held.released == 1


def test_a_context_that_ends_well_stops_it_and_one_that_does_not_abandons_it(held):
    later(lambda: held.end("stopped"))
    with held.run as run:
        assert run is held.run
    assert held.attendance.said == [protocol.StopRun(abandon=False)]
    other = Held()
    later(lambda: other.end("stopped"))
    with pytest.raises(KeyError), other.run:
        raise KeyError
    assert other.attendance.said == [protocol.StopRun(abandon=True)]


def interrupt(seconds=0.1):
    later(lambda: os.kill(os.getpid(), signal.SIGINT), seconds)


def test_ctrl_c_stops_it_in_good_order(held):
    held.state()
    interrupt()
    later(lambda: held.end("stopped"), 0.4)
    with pytest.raises(KeyboardInterrupt):
        held.run.wait(10)
    assert held.attendance.said == [protocol.StopRun(abandon=False)]
    assert held.run.status == "stopped"
    assert held.told == ["stopping: what was read is worked off; Ctrl-C again ends the run at once"]


def test_a_second_ctrl_c_ends_it_at_once(held):
    held.state()
    interrupt()
    interrupt(0.3)
    later(lambda: held.end("stopped"), 0.6)
    with pytest.raises(KeyboardInterrupt):
        held.run.wait(10)
    assert protocol.StopRun(abandon=True) in held.attendance.said


# Starting


def test_it_has_started_when_it_runs(held):
    later(lambda: held.state(1, "starting"), 0.05)
    later(held.state, 0.1)
    held.run.started(5)
    assert held.run.status == "running"


def test_workers_that_do_not_come_end_it(held):
    held.state(1, "starting", workers=[worker(0)])
    with pytest.raises(RunError, match=r"1 of 2 workers came within 0 s\. Each needs a task slot"):
        held.run.started(0.1)
    assert held.run.status == "failed"
    assert held.released == 1
    assert held.attendance.said == [protocol.StopRun(abandon=True)]


def test_an_end_before_the_start_is_told_at_once(held):
    later(lambda: held.run.hopeless(0, "no such module"))
    with pytest.raises(RunError, match="no such module"):
        held.run.started(10)
    assert held.released == 1


# With real processes, and no Spark


class Count(tm.Computation):
    words = tm.Input(key="word")
    counts = tm.Output("word string, n long")
    state = int

    def process_record(self, ctx, record):
        if record.word == "bad":
            raise ValueError("a bad word")
        ctx.state += 1
        ctx.produce(self.counts, word=ctx.key, n=ctx.state)


def pipeline_of(words, sink):
    made = tm.Pipeline("counts")
    made.source("words", tm.sources.Rows([(word,) for word in words], "word string"))
    made.add(Count)
    made.sink("counts", sink)
    return made


def endless(sink):
    made = tm.Pipeline("counts")
    made.source("words", tm.sources.Generator(lambda n: {"word": f"w{n % 5}"}, "word string", rate=200))
    made.add(Count)
    made.sink("counts", sink)
    return made


def start(pipeline, **how):
    session = Session()
    return tm.run(pipeline, session, workers=2, display=False, **how), session


def read_by(run):
    (source,) = [node for node in run.progress.nodes if node.kind == "source"]
    return source.records_out


def is_over(session):
    """No worker is left, and the session is the user's."""
    return all(process.poll() is not None for process in session.processes) and not session.stopped


def test_a_run_brings_its_rows_tells_its_story_and_leaves_nothing(tmp_path):
    before = threads()
    sink = tm.sinks.Collect()
    run, session = start(pipeline_of(["a", "b", "a"], sink), storage=tmp_path)
    assert run.wait(20)
    assert run.status == "finished"
    assert sorted((row["word"], row["n"]) for row in sink.rows) == [("a", 1), ("a", 2), ("b", 1)]
    assert run.progress.node("count").records_in == 3
    assert '"over"' in (tmp_path / "journal.jsonl").read_text()
    eventually(lambda: is_over(session) and threads() <= before | {"pymp"})


def test_what_user_code_raises_arrives_with_where_and_why():
    run, session = start(pipeline_of(["a", "bad"], tm.sinks.Collect()))
    with pytest.raises(UserCodeError) as raised:
        run.wait(20)
    said = str(raised.value)
    assert "ValueError" in said
    assert "a bad word" in said
    assert 'raise ValueError("a bad word")' in said, "the user's own traceback"
    assert "'bad'" in said, "the key"
    assert "words" in said, "the stream"
    assert is_over(session)


def test_a_worker_that_is_killed_ends_a_run_that_keeps_nothing():
    sink = tm.sinks.Collect()
    run, session = start(endless(sink))
    eventually(lambda: len(sink.rows) > 20, 20)
    os.kill(run.workers[0].pid, signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(RunError, match=r"recovery=None keeps nothing of them\. Lost: worker0\.\d+ \(process \d+ on "):
        run.wait(20)
    assert time.monotonic() - began < 5
    assert is_over(session)


def test_a_coordinator_that_is_killed_ends_a_run_and_its_workers():
    sink = tm.sinks.Collect()
    run, session = start(endless(sink))
    eventually(lambda: len(sink.rows) > 20, 20)
    os.kill(run._attendance.pid, signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(RunError, match="the coordinator's process ended with -9"):
        run.wait(20)
    assert time.monotonic() - began < 5
    assert is_over(session)


def test_a_stopped_worker_goes_on_where_it_was_and_a_stopped_run_works_off_what_it_read():
    sink = tm.sinks.Collect()
    run, session = start(endless(sink))
    eventually(lambda: len(sink.rows) > 20, 20)
    pid = run.workers[1].pid
    os.kill(pid, signal.SIGSTOP)
    time.sleep(1.0)
    os.kill(pid, signal.SIGCONT)
    had = len(sink.rows)
    eventually(lambda: len(sink.rows) > had + 200, 20)
    assert run.stop(20)
    assert run.status == "stopped"
    assert read_by(run) == len(sink.rows)
    counts = [row["n"] for row in sink.rows if row["word"] == "w1"]
    assert counts == list(range(1, len(counts) + 1)), "nothing was lost, repeated or out of order"
    assert is_over(session)
