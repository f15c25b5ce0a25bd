"""What a run needs is settled before it begins, and where a step fails nothing is left behind."""

# mypy: disable-error-code="arg-type, attr-defined, method-assign"

from __future__ import annotations

import signal
import socket
import sys
import threading
from dataclasses import replace

import pytest

import tidemill as tm
from tests.unit.hosts.spark.sessions import Session
from tests.unit.hosts.spark.wires import eventually, open_files, threads
from tidemill import launch
from tidemill.errors import PipelineError, RunError, StorageError
from tidemill.hosts.spark import attendance, session
from tidemill.hosts.spark.secrets import new_secrets
from tidemill.storage.folder import held


class Pass(tm.Computation):
    words = tm.Input(key="word")
    out = tm.Output("word string, n long")

    def process_record(self, ctx, record):
        ctx.produce(self.out, word=record.word, n=1)


def pipeline(*, computation=Pass, source=None, sink=None):
    made = tm.Pipeline("pass")
    made.source("words", source or tm.sources.Rows([("a",)], "word string"))
    made.add(computation)
    made.sink("out", sink or tm.sinks.Collect())
    return made


def run(made=None, spark=None, **how):
    return tm.run(made or pipeline(), spark or Session(), display=False, **how)


@pytest.fixture
def nothing_is_left():
    attendance.Attendance("127.0.0.1", new_secrets()).close()  # what ZeroMQ keeps for good is there now
    files, running = open_files(), threads()
    yield
    eventually(lambda: threads() <= running)
    eventually(lambda: open_files() <= files)


@pytest.mark.parametrize("workers", [0, -1, 1.5, True, "2"])
def test_a_run_needs_workers(workers):
    with pytest.raises(PipelineError, match=r"workers=.*: a run needs at least one worker"):
        run(workers=workers)


@pytest.mark.parametrize("wrong", [{"max_skew": "soon"}, {"start_within": "soon"}])
def test_times_are_times(wrong):
    (name,) = wrong
    with pytest.raises(PipelineError, match=name):
        run(**wrong)


@pytest.mark.usefixtures("nothing_is_left")
def test_a_session_has_its_master_already():
    with pytest.raises(PipelineError, match=r"spark= and master='local\[2\]' were both given"):
        run(master="local[2]")


@pytest.mark.usefixtures("nothing_is_left")
def test_another_master_than_that_of_the_session_that_is_there(monkeypatch):
    monkeypatch.setattr(session, "active_session", lambda: Session(master="local[4]"))
    with pytest.raises(RunError, match=r"has a Spark session already, with master 'local\[4\]'"):
        tm.run(pipeline(), master="local[2]", display=False)


@pytest.mark.usefixtures("nothing_is_left")
def test_more_workers_than_slots():
    with pytest.raises(RunError, match="3 workers need 3 free task slots"):
        run(workers=3, spark=Session(master="local[2]", slots=2))


@pytest.mark.usefixtures("nothing_is_left")
def test_what_can_not_be_sent_is_named():
    lock = threading.Lock()

    class Locked(Pass):
        def process_record(self, ctx, record):
            with lock:
                ctx.produce(self.out, word=record.word, n=1)

    with pytest.raises(PipelineError) as raised:
        run(pipeline(computation=Locked))
    said = str(raised.value)
    assert said.startswith("locked (declared at ")
    assert "can't be sent to the workers: TypeError: cannot pickle '_thread.lock' object" in said
    assert said.endswith("open them where they are used.")


@pytest.mark.usefixtures("nothing_is_left")
def test_a_folder_in_use(tmp_path):
    with held(tmp_path), pytest.raises(StorageError, match="in use by another run"):
        run(storage=tmp_path)
    with held(tmp_path):
        pass


@pytest.mark.usefixtures("nothing_is_left")
def test_a_busy_port_for_metrics(tmp_path):
    with socket.create_server(("", 0)) as busy, pytest.raises(tm.errors.TidemillError, match="port"):
        run(storage=tmp_path, metrics_port=busy.getsockname()[1])
    with held(tmp_path):
        pass


@pytest.mark.usefixtures("nothing_is_left")
def test_a_coordinator_that_does_not_start_lets_all_go(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(RunError, match="the coordinator's process"):
        run(storage=tmp_path).wait(10)
    with held(tmp_path):
        pass


@pytest.mark.usefixtures("nothing_is_left")
def test_workers_that_can_not_start_are_an_error_and_all_is_let_go(tmp_path):
    def fail(_):
        raise RuntimeError("ModuleNotFoundError: No module named 'x'")

    with pytest.raises(RunError, match="worker 0 can't be started: ModuleNotFoundError"):
        run(workers=1, spark=Session(fail), storage=tmp_path)
    with held(tmp_path):
        pass


@pytest.mark.usefixtures("nothing_is_left")
def test_workers_that_do_not_come_in_time(tmp_path):
    over = threading.Event()
    spark = Session(lambda _: over.wait(20))
    spark.interruptTag = lambda _: over.set()
    later = threading.Timer(1.0, over.set)
    later.start()
    with pytest.raises(RunError, match=r"0 of 2 workers came within 0 s"):
        run(spark=spark, storage=tmp_path, start_within="300ms")
    later.join()
    with held(tmp_path):
        pass


@pytest.mark.usefixtures("nothing_is_left")
def test_ctrl_c_before_it_has_begun_leaves_no_run_that_nobody_has(tmp_path):
    over = threading.Event()
    spark = Session(lambda _: over.wait(20))
    spark.interruptTag = lambda _: over.set()
    threading.Timer(0.8, lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)).start()
    threading.Timer(1.5, over.set).start()
    with pytest.raises(KeyboardInterrupt):
        run(spark=spark, storage=tmp_path)
    with held(tmp_path):
        pass


class Clocked(tm.sources.Rows):
    """A source that settles something before it is read."""

    def prepared(self, now):
        made = Clocked([("a",)], "word string")
        made.since = now
        return made


def test_sources_are_settled_once_and_here():
    graph = pipeline(source=Clocked([("a",)], "word string")).graph()
    settled = launch._prepared(graph)
    (before,), (after,) = graph.of_kind("source"), settled.of_kind("source")
    assert after.handle is not before.handle
    assert after.handle.since > 1_600_000_000_000_000
    assert replace(after, handle=None) == replace(before, handle=None)


def test_a_session_of_ones_own_is_closed_with_the_run(monkeypatch):
    closed = []

    class Own:
        session = Session()

        def close(self):
            closed.append(self)

    def new_session(*about):
        made.append(about)
        return Own()

    made: list = []
    monkeypatch.setattr(session, "active_session", lambda: None)
    monkeypatch.setattr(session, "new_session", new_session)
    sink = tm.sinks.Collect()
    going = tm.run(pipeline(sink=sink), workers=1, display=False)
    assert closed == []
    assert going.wait(20)
    assert made == [("local[1]", "tidemill pass")]
    assert len(closed) == 1
    assert sink.rows == [{"word": "a", "n": 1}]
