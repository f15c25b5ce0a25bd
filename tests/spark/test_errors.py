"""What goes wrong is told plainly and soon, and leaves nothing behind: before a run begins, and in the user's code."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

import tidemill as tm
from tests.spark.conftest import ROOT
from tests.spark.processes import eventually
from tests.spark.programs import WordCount, assert_counted, first_words, some_words, word_count
from tidemill.errors import DataError, PipelineError, RunError, StorageError, UserCodeError

pytestmark = pytest.mark.usefixtures("nothing_left")


@contextlib.contextmanager
def soon(seconds: float = 5.0) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


def counting(count: int = 100) -> tm.Pipeline:
    return word_count(some_words(count), tm.sinks.Collect())


# Before it begins


def test_more_workers_than_slots(live):
    with soon(), pytest.raises(RunError, match=r"4 workers need 4 free task slots.* has 3 free of 3.*local\[4\]"):
        live(counting(), workers=4)


def test_more_workers_than_slots_that_are_free(live):
    with live(word_count(some_words(None, 100), tm.sinks.Collect())) as run:
        with (
            soon(8.0),
            pytest.raises(RunError, match=r"2 workers need 2 free task slots.* has 1 free of 3.*local\[4\]"),
        ):
            live(counting(), workers=2, start_within="2s")
        assert run.status == "running"


def test_fewer_slots_than_workers_in_a_session_that_would_be_made():
    ran = python("tm.run(counting(), workers=3, master='local[2]')")
    assert ran.stderr.splitlines()[-1].startswith(
        "tidemill.errors.RunError: 3 workers need 3 free task slots, and Spark (master local[2]) has 2 free of 2."
    )


def test_no_workers(live):
    for none in (0, -1, 1.5, True):
        with pytest.raises(PipelineError, match=f"workers={none}: a run needs at least one worker"):
            live(counting(), workers=none)


def test_a_port_for_metrics_that_is_taken(live):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with soon(), pytest.raises(RunError, match=str(port)):
            live(counting(), metrics_port=port)


class Connection:
    """Can be shared, and not be sent."""

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        raise TypeError("a connection stays where it is")


class Connected(WordCount):
    def __init__(self):
        self.connection = Connection()


def test_a_computation_that_cant_be_sent(live):
    pipeline = tm.Pipeline("connected")
    pipeline.source("words", some_words(10))
    pipeline.add(Connected())
    pipeline.sink("counts", tm.sinks.Collect())
    line = sys._getframe().f_lineno - 2
    where = rf"connected \(declared at test_errors.py:{line}\) can't be sent to the workers: "
    with soon(), pytest.raises(PipelineError, match=where + "TypeError: a connection stays where it is"):
        live(pipeline)


def test_a_computation_that_cant_be_copied(live):
    class Locked(WordCount):
        def __init__(self):
            self.lock = threading.Lock()

    with soon(), pytest.raises(PipelineError, match=r"'locked' \(declared at programs.py:\d+\) can't be copied.*lock"):
        live(word_count(some_words(10), tm.sinks.Collect(), counting=Locked()))


def test_a_source_that_cant_be_sent(live):
    lock = threading.Lock()
    source = tm.sources.Generator(lambda i: {"word": str(i + lock.locked())}, "word string", count=5)
    with soon(), pytest.raises(PipelineError, match=r"source:words \(declared at .* can't be sent .*lock"):
        live(word_count(source, tm.sinks.Collect()))


def test_a_storage_folder_that_is_in_use_by_this_process(live, tmp_path):
    run = live(word_count(some_words(None, 100), tm.sinks.Collect()), workers=1, storage=tmp_path)
    with soon(), pytest.raises(StorageError, match=f"{tmp_path}.* in use by another run .process {os.getpid()}"):
        live(counting(), workers=1, storage=tmp_path)
    run.stop()
    live(counting(), workers=1, storage=tmp_path).wait()


def test_a_storage_folder_that_cant_be_made(live, tmp_path):
    (tmp_path / "file").touch()
    with soon(), pytest.raises(StorageError, match=r"can't be used: Not a directory"):
        live(counting(), storage=tmp_path / "file" / "folder")


def test_a_session_and_a_master(live):
    with pytest.raises(PipelineError, match=r"spark= and master='local\[2\]' were both given"):
        live(counting(), master="local[2]")
    with pytest.raises(RunError, match=r"has a Spark session already, with master 'local\[3\]'"):
        live(counting(), spark=None, master="local[2]")


def test_workers_that_do_not_come(live, spark):
    """Somebody else takes the slots in the very moment."""

    class Deaf:
        """A session whose jobs never start."""

        def __getattr__(self, name):
            return getattr(spark, name)

        def range(self, *_):
            time.sleep(2.0)
            raise RuntimeError("no")

    with soon(10.0), pytest.raises(RunError, match=r"0 of 2 workers came within 1 s"):
        live(counting(), spark=Deaf(), start_within="1s")


def test_a_master_that_does_not_answer():
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        ran = python(f"tm.run(counting(), master='spark://127.0.0.1:{port}')")
    assert f"RunError: No Spark master answers at spark://127.0.0.1:{port}" in ran.stderr


def test_a_master_that_is_none():
    ran = python("tm.run(counting(), master='nonsense')")
    assert "RunError: There is no Spark master 'nonsense'" in ran.stderr


def test_a_missing_java(tmp_path):
    without = {"PATH": str(tmp_path), "JAVA_HOME": ""}
    ran = python("tm.run(counting())", **without)
    assert "RunError: Spark needs Java, and there is none on the path. Install Java 17" in ran.stderr
    ran = python("tm.run(counting())", **without | {"JAVA_HOME": "/no/java/here"})
    assert "RunError: JAVA_HOME is '/no/java/here', where there is no bin/java." in ran.stderr


def python(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program that ends with an error, in 5 s: its processes end before it, and it had the time to import all."""
    program = f"import tidemill as tm\nfrom tests.spark.test_errors import counting\n{line}\n"
    with soon(5.0 + 3.0):
        ran = subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert ran.returncode == 1
    assert ran.stderr.count("Traceback") == 1, ran.stderr
    return ran


# In the user's code


@dataclass
class Total:
    sum: int = 0


class Fragile(tm.Computation):
    words = tm.Input(key="word")
    counts = tm.Output("word string, n long")
    state = Total

    def process_record(self, ctx, record):
        ctx.state.sum += 1
        if ctx.key == "wisdom" and ctx.state.sum == 3:
            self.give_up(ctx)
        ctx.produce(self.counts, word=ctx.key, n=ctx.state.sum)

    def give_up(self, ctx):
        raise ZeroDivisionError("three is too many")


def test_what_user_code_raises_arrives_with_all_that_is_known_of_it(live):
    counts = tm.sinks.Collect()
    pipeline = word_count(some_words(None, splits=1), counts, counting=Fragile)
    began = time.monotonic()
    with pytest.raises(UserCodeError) as caught:
        live(pipeline).wait()
    assert time.monotonic() - began < 10.0
    said = str(caught.value)
    line = Fragile.give_up.__code__.co_firstlineno + 1
    assert f'{__file__}", line {line}, in give_up' in said
    assert "ZeroDivisionError: three is too many" in said
    assert 'raise ZeroDivisionError("three is too many")' in said
    assert "fragile" in said
    assert "'wisdom'" in said
    assert "words" in said
    wisdom = [i for i, word in enumerate(first_words(1_000)) if word == "wisdom"][2]
    assert re.search(rf"record \d+:{wisdom + 1}\b", said), "the record's identity: which one of its split it was"
    assert "/tidemill/core/" not in said, "only the user's own part of the traceback"


def test_a_run_that_failed_says_so(live):
    run = live(word_count(some_words(None, 2_000), tm.sinks.Collect(), counting=Fragile))
    eventually(lambda: run.status == "failed", 10.0, "it fails")
    with pytest.raises(UserCodeError) as caught:
        run.wait()
    assert run.exception is caught.value
    with pytest.raises(UserCodeError):
        run.stop()
    with pytest.raises(UserCodeError), run:
        pass


def test_a_computation_that_cant_begin(live):
    class Stillborn(WordCount):
        def __setstate__(self, state):
            raise OSError("no such model")

        def __getstate__(self):
            return {"model": "large"}

    with pytest.raises(tm.TidemillError, match="no such model"):
        live(word_count(some_words(10), tm.sinks.Collect(), counting=Stillborn())).wait()


def test_a_function_of_a_sink_that_raises(live):
    def show(row):
        raise KeyError(f"board {row['word']}")

    with pytest.raises(UserCodeError, match=r"sink:counts \(declared at .*programs.py.* raised KeyError: 'board "):
        live(word_count(some_words(None, 1_000), tm.sinks.Callback(show))).wait()


def test_a_function_of_a_source_that_raises(live):
    def make(i):
        if i == 500:
            raise ValueError("no more")
        return {"word": "a"}

    source = tm.sources.Generator(make, "word string")
    with pytest.raises(DataError, match=r"(?s)Record 500 .*test_errors.py.*ValueError: no more.*split 0"):
        live(word_count(source, tm.sinks.Collect())).wait()


class BadDisk:
    """A sink that can't write."""

    def open(self, schema, writer):
        return self

    def write(self, batch):
        raise OSError(28, "No space left on device")

    def close(self):
        """Nothing is held."""

    def commit(self, generation, number, prepared):
        """Nothing is written."""

    def committed(self, generation):
        return 0


def test_a_sink_that_cant_write(live):
    with pytest.raises(RunError, match=r"(?s)No space left on device.*sink:counts, declared at"):
        live(word_count(some_words(None, 1_000), BadDisk())).wait()


def test_a_failure_leaves_the_session_fit_for_another_run(live):
    with pytest.raises(UserCodeError):
        live(word_count(some_words(None), tm.sinks.Collect(), counting=Fragile)).wait()
    counts = tm.sinks.Collect()
    live(word_count(some_words(100), counts), workers=3).wait()
    assert_counted(counts.rows, first_words(100))


# Malformed lines

GOOD = ['{"word": "a"}', '{"word": "b"}', '{"word": "a"}']
BAD = ["{torn", '{"word": 7}']


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_text("\n".join([GOOD[0], BAD[0], GOOD[1], BAD[1], GOOD[2]]) + "\n")
    return path


def test_a_malformed_line_ends_the_run(live, lines):
    with pytest.raises(DataError, match=r"(?s)lines.jsonl, at byte 14: the line .*torn.*does not fit"):
        live(word_count(tm.sources.Files(lines, "word string"), tm.sinks.Collect())).wait()


def test_malformed_lines_are_skipped_and_counted(live, lines):
    counts = tm.sinks.Collect()
    run = live(word_count(tm.sources.Files(lines, "word string", malformed="skip"), counts))
    run.wait()
    assert_counted(counts.rows, ["a", "b", "a"])
    assert run.progress.node("source:words").malformed == len(BAD)


def test_malformed_lines_go_to_a_stream_of_their_own(live, lines):
    counts, bad = tm.sinks.Collect(), tm.sinks.Collect()
    source = tm.sources.Files(lines, "word string", malformed="divert", diverts_to="bad-lines")
    pipeline = word_count(source, counts)
    pipeline.sink("bad-lines", bad)
    run = live(pipeline)
    run.wait()
    assert_counted(counts.rows, ["a", "b", "a"])
    assert sorted(row["text"] for row in bad.rows) == sorted(BAD)
    assert {row["place"] for row in bad.rows} == {str(lines)}
    assert [row["position"] for row in sorted(bad.rows, key=lambda row: row["position"])] == [14, 34]
    assert run.progress.node("source:words").malformed == len(BAD)


def test_java_is_here_for_the_other_tests():
    assert os.environ.get("JAVA_HOME") or shutil.which("java")
