"""Processes that are stopped for a while and let go: the run goes on, and nothing is lost or repeated."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator

import pytest

import tidemill as tm
from tests.spark.processes import coordinator_of, eventually
from tests.spark.programs import assert_counted, first_words, some_words, word_count

RATE = 1_000


@contextlib.contextmanager
def stopped(pid: int, seconds: float) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
        time.sleep(seconds)
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(("who", "seconds"), [("worker", 10.0), ("coordinator", 4.0)])
def test_a_process_that_is_stopped_and_let_go(live, who, seconds):
    counts = tm.sinks.Collect()
    run = live(word_count(some_words(RATE * 3, RATE, splits=2), counts))
    eventually(lambda: run.progress.node("sink:counts").records_in > 500, 5.0, "it has begun")
    with stopped(run.workers[0].pid if who == "worker" else coordinator_of(os.getpid()), seconds):
        pass
    assert run.wait(20.0) is True
    assert run.status == "finished"
    assert_counted(counts.rows, first_words(RATE * 3))
    assert [worker.incarnation for worker in run.workers] == [1, 1]


def test_a_driver_that_is_stopped_and_let_go(drive):
    driver = drive("--rate", str(RATE), "--count", str(RATE * 4))
    driver.hear()
    with stopped(driver.pid, 10.0):
        pass
    said = driver.hear()
    assert said["status"] == "finished"
    assert_counted(said["rows"], first_words(RATE * 4))
    assert driver.end()[0] == 0


def test_a_driver_that_sleeps_through_the_end_misses_nothing_of_it(drive, tmp_path):
    """More than the system keeps for a sleeping process, and much longer than the others stay for their own sake."""
    count = 2_000
    driver = drive("--rate", "1000", "--count", str(count), "--wide", "15000", "--storage", str(tmp_path))
    driver.hear()
    with stopped(driver.pid, 3.0):
        journal = tmp_path / "journal.jsonl"
        eventually(lambda: '"over"' in journal.read_text(), 15.0, "the run is over while its driver sleeps")
    said = driver.hear()
    assert said["status"] == "finished"
    assert_counted(said["rows"], first_words(count))
    assert driver.end()[0] == 0
