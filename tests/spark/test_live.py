"""A run on a real Spark, in the manner of a `StreamingQuery`: right results, and what can be asked of it on the way."""

from __future__ import annotations

import json
import os
import threading
import time
from itertools import pairwise

import pytest
from pyspark import SparkContext
from pyspark.core.rdd import RDD

import tidemill as tm
from tests.spark.conftest import left
from tests.spark.processes import eventually, is_alive
from tests.spark.programs import Lines, assert_counted, first_words, some_words, word_count

MANY = 20_000
HOUR = 3_600_000_000

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_words_of_a_generator_are_counted_into_a_list(live):
    counts = tm.sinks.Collect()
    run = live(word_count(some_words(MANY), counts))
    assert run.wait() is True
    assert run.status == "finished"
    assert run.exception is None
    assert_counted(counts.rows, first_words(MANY))
    sink, source = run.progress.node("sink:counts"), run.progress.node("source:words")
    assert (source.records_out, sink.records_in) == (MANY, MANY)


def test_words_of_files_are_given_to_a_function(live, tmp_path):
    words = first_words(3_000)
    for place in range(4):
        lines = (json.dumps({"word": word}) for word in words[place::4])
        (tmp_path / f"{place}.jsonl").write_text("\n".join(lines) + "\n")
    rows: list[dict[str, object]] = []
    source = tm.sources.Files(tmp_path / "*.jsonl", "word string", splits=3)
    live(word_count(source, tm.sinks.Callback(rows.append))).wait()
    assert_counted(rows, words)


def test_a_sink_of_ones_own_is_written_to_by_the_workers(live, tmp_path):
    sink = Lines(tmp_path)
    live(word_count(some_words(MANY), sink), workers=3).wait()
    assert_counted(sink.rows(), first_words(MANY))
    assert len(list(tmp_path.iterdir())) > 1


def test_one_run_follows_another_at_once_on_slots_that_are_just_free(live):
    for _ in range(3):
        counts = tm.sinks.Collect()
        live(word_count(some_words(100), counts), workers=3).wait()
        assert_counted(counts.rows, first_words(100))


def test_what_can_be_asked_of_a_run_that_goes_on(live):
    run = live(word_count(some_words(None, 1_000), tm.sinks.Collect()))
    assert run.status == "running"
    assert [(worker.id, worker.incarnation) for worker in run.workers] == [(0, 1), (1, 1)]
    assert all(is_alive(worker.pid) for worker in run.workers)
    assert not run.wait(0.0)
    eventually(lambda: run.progress.node("sink:counts").records_in > 500, 5.0, "500 words were counted")
    before = len(run.recent_progress)
    eventually(lambda: len(run.recent_progress) > before, 2.0, "the progress grows")
    assert all(first.at <= second.at for first, second in pairwise(run.recent_progress))
    assert all(worker.memory > 0 and worker.shards > 0 for worker in run.workers)
    marks = run.watermarks()
    assert set(marks) == {"source:words", "word-count", "sink:counts"}
    assert all(abs(time.time() * 1e6 - mark) < HOUR for mark in marks.values())
    eventually(lambda: run.watermarks()["sink:counts"] > marks["sink:counts"], 2.0, "time goes on")
    assert repr(run) == "<Run of 'word-count': running>"
    assert run.stop(30.0)
    assert run.status == "stopped"


def test_what_was_read_is_worked_off_before_a_stop(live):
    counts = tm.sinks.Collect()
    run = live(word_count(some_words(None, splits=1), counts))  # as fast as it goes
    eventually(lambda: run.progress.node("sink:counts").records_in > MANY, 20.0, "some were counted")
    assert run.stop(60.0) is True
    read = run.progress.node("source:words").records_out
    assert len(counts.rows) == read > MANY
    assert_counted(counts.rows, first_words(read))


def test_a_run_is_stopped_where_its_block_ends(live):
    counts = tm.sinks.Collect()
    with live(word_count(some_words(None, 500, splits=1), counts)) as run:
        eventually(lambda: run.progress.node("sink:counts").records_in > 50, 5.0, "some were counted")
    assert run.status == "stopped"
    assert_counted(counts.rows, first_words(run.progress.node("source:words").records_out))


def test_a_run_is_ended_at_once_where_its_block_raises(live):
    counts = tm.sinks.Collect()
    run = live(word_count(some_words(None, 500), counts))
    with pytest.raises(ZeroDivisionError), run:
        raise ZeroDivisionError
    assert run.status == "stopped"
    assert run.exception is None


def test_a_run_may_be_waited_for_and_stopped_by_many(live):
    run = live(word_count(some_words(None, 500), tm.sinks.Collect()))
    waited = [threading.Thread(target=run.wait) for _ in range(3)]
    stopped = [threading.Thread(target=run.stop) for _ in range(3)]
    for thread in (*waited, *stopped):
        thread.start()
    for thread in (*waited, *stopped):
        thread.join(20.0)
        assert not thread.is_alive()
    assert run.stop() is True, "stopping what is over does nothing"
    assert run.status == "stopped"


def test_no_use_is_made_of_the_rdd_api(live, spark, monkeypatch):
    def no(*_, **__):
        raise AssertionError("the RDD API was used")

    monkeypatch.setattr(RDD, "__init__", no)
    for name in ("parallelize", "runJob", "range", "textFile", "union", "broadcast", "accumulator", "emptyRDD"):
        monkeypatch.setattr(SparkContext, name, no)
    with pytest.raises(AssertionError, match="RDD API"):
        spark.sparkContext.parallelize([1])
    with pytest.raises(AssertionError, match="RDD API"):
        spark.range(1).rdd  # noqa: B018 - it is a property that makes one
    counts = tm.sinks.Collect()
    live(word_count(some_words(500), counts)).wait()
    assert_counted(counts.rows, first_words(500))


def test_spark_tells_which_job_is_which_worker(live, spark):
    with live(word_count(some_words(None, 100), tm.sinks.Collect(), "wordy")) as run:
        store = spark.sparkContext._jsc.sc().statusStore()
        listed = store.jobsList(None)
        jobs = [listed.apply(place) for place in range(listed.size())]
        running = [job for job in jobs if job.status().toString() == "RUNNING"]
        assert {job.description().get() for job in running} == {"tidemill wordy: worker 0", "tidemill wordy: worker 1"}
        (group,) = {job.jobGroup().get() for job in running}
        assert group.startswith("tidemill-")
        assert all(group in job.jobTags().mkString(" ") for job in running)
        tracker = spark.sparkContext.statusTracker()
        assert sorted(tracker.getJobIdsForGroup(group)) == sorted(job.jobId() for job in running)
        assert all(len(tracker.getJobInfo(job.jobId()).stageIds) == 1 for job in running)
    assert run.status == "stopped"
    assert spark.range(3).count() == 3
    last = store.jobsList(None).apply(0)
    assert last.jobGroup().isEmpty(), "what comes after a run is not labelled as the run's"


def test_a_driver_that_computes_does_not_disturb_a_run(live, tmp_path):
    sink = Lines(tmp_path)
    with live(word_count(some_words(None, 500, splits=1), sink)) as run:
        eventually(lambda: run.progress.node("sink:counts").records_in > 100, 5.0, "it has begun")
        began = time.time()
        while time.time() - began < 3.0:
            sum(range(20_000_000))  # holds Python's lock all the while
        ended = time.time()
    came = [bundle["at"] for bundle in sink.bundles() if began <= bundle["at"] <= ended]
    gaps = [second - first for first, second in pairwise([began, *sorted(came), ended])]
    assert max(gaps) < 0.5, "records came to the sink all the while"
    assert_counted(sink.rows(), first_words(run.progress.node("source:words").records_out))


def test_a_session_is_made_where_there_is_none_and_closed_with_the_run():
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    counts = tm.sinks.Collect()
    run = tm.run(word_count(some_words(100), counts), workers=2, display=False)  # takes the active one
    run.wait()
    assert active is not None
    assert SparkSession.getActiveSession() is active
    assert_counted(counts.rows, first_words(100))


def test_no_descriptor_stays_open(live):
    def once():
        live(word_count(some_words(50), tm.sinks.Collect())).wait()
        left()
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - it is about their number

    once()
    first = once()
    assert max(once() for _ in range(2)) <= first + 2
