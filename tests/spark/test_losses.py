"""Workers that are lost, that come twice, or that Spark gives up before they came."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

import tidemill as tm
from tests.spark.conftest import ROOT
from tests.spark.processes import coordinator_of, eventually, is_alive
from tests.spark.programs import WordCount, assert_counted, first_words, some_words, word_count
from tidemill.errors import RunError
from tidemill.hosts.spark.session import is_remote

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_a_worker_that_is_killed_ends_the_run_and_is_named(live):
    rows: list[dict[str, object]] = []
    run = live(word_count(some_words(None, 500, splits=1), tm.sinks.Callback(rows.append)))
    eventually(lambda: run.progress.node("sink:counts").records_in > 100, 5.0, "some were counted")
    lost = run.workers[1]
    os.kill(lost.pid, signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(RunError) as caught:
        run.wait(30.0)
    assert time.monotonic() - began < 3.0
    said = str(caught.value)
    assert f"process {lost.pid} on {lost.host}" in said
    assert "recovery=None keeps nothing" in said
    read, written = (int(found.replace(",", "")) for found in re.findall(r"(?:words|counts) ([\d,]+)", said))
    assert read >= written >= 100
    assert "is not written" in said
    assert run.status == "failed"
    assert not any(is_alive(worker.pid) and worker.pid == lost.pid for worker in run.workers)


def test_a_coordinator_that_is_killed_ends_the_run(live):
    run = live(word_count(some_words(None, 500), tm.sinks.Collect()))
    os.kill(coordinator_of(os.getpid()), signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(RunError, match=r"the coordinator's process ended with -9"):
        run.wait(30.0)
    assert time.monotonic() - began < 3.0


class Session:
    """A session of Spark's whose first jobs are lost."""

    def __init__(self, spark, losses):
        self.spark = spark
        self.losses = losses
        self.lock = threading.Lock()

    def __getattr__(self, name):
        return getattr(self.spark, name)

    def range(self, *numbers):
        with self.lock:
            self.losses -= 1
            if self.losses >= 0:
                raise RuntimeError("Job aborted due to stage failure: ExecutorLostFailure")
        return self.spark.range(*numbers)


def test_a_job_that_spark_gives_up_before_its_worker_came_is_submitted_again(live, spark):
    counts = tm.sinks.Collect()
    run = live(word_count(some_words(500), counts), spark=Session(spark, 3))
    run.wait()
    assert_counted(counts.rows, first_words(500))
    assert sum(worker.incarnation // 1_000 for worker in run.workers) == 3


def test_a_job_that_is_lost_again_and_again_ends_the_run(live, spark):
    with pytest.raises(RunError, match=r"worker [01] can't be started: Job aborted due to stage failure"):
        live(word_count(some_words(500), tm.sinks.Collect()), spark=Session(spark, 10_000))


class Waits:
    """Loading it takes long, the first time."""

    def __init__(self, flag):
        self.flag = flag

    def __reduce__(self):
        return load, (str(self.flag),)

    def __deepcopy__(self, memo):
        return self


def load(flag):
    if not os.path.exists(flag):  # noqa: PTH110 - it is
        with open(flag, "w") as file:  # noqa: PTH123 - as plain as can be
            file.write(str(os.getpid()))
        time.sleep(60.0)
    return Waits(flag)


class Loading(WordCount):
    def __init__(self, flag):
        self.model = Waits(flag)


def test_a_task_that_is_killed_before_its_worker_came_is_begun_again(live, tmp_path):
    flag = tmp_path / "flag"

    def kill():
        eventually(lambda: flag.exists() and flag.read_text(), 10.0, "it is being loaded")
        os.kill(int(flag.read_text()), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    counts = tm.sinks.Collect()
    run = live(word_count(some_words(500), counts, counting=Loading(flag)), workers=1)
    run.wait()
    killer.join()
    assert_counted(counts.rows, first_words(500))
    assert [worker.incarnation for worker in run.workers] == [1_001]


WORK = """
import sys
from pathlib import Path
from tidemill.hosts.spark.worker import work
print(work(Path(sys.argv[1]).read_bytes(), *map(int, sys.argv[2:])))
"""


def another(run, folder, place, submission, attempt):
    """A second process for a worker's place, as a slow executor or speculation may make it."""
    orders = folder / "orders"
    orders.write_bytes(run._jobs._orders)
    command = [sys.executable, "-c", WORK, str(orders), str(place), str(submission), str(attempt)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_an_old_incarnation_is_sent_away_and_disturbs_nobody(live, spark, tmp_path):
    counts = tm.sinks.Collect()
    run = live(word_count(some_words(None, 500, splits=1), counts), spark=Session(spark, 1), workers=1)
    assert [worker.incarnation for worker in run.workers] == [1_001]
    with another(run, tmp_path, 0, 0, 0) as old:
        assert old.communicate(timeout=10.0)[0].strip() == "outdated"
    assert run.status == "running"
    assert [worker.incarnation for worker in run.workers] == [1_001]
    run.stop()
    assert_counted(counts.rows, first_words(run.progress.node("source:words").records_out))


def test_a_newer_incarnation_takes_the_place_and_with_no_recovery_that_is_a_loss(live, tmp_path):
    run = live(word_count(some_words(None, 500, splits=1), tm.sinks.Collect()))
    old = run.workers[0].pid
    with another(run, tmp_path, 0, 0, 1) as newer:
        with pytest.raises(RunError, match=rf"Lost: .*process {old} on"):
            run.wait(10.0)
        newer.communicate(timeout=10.0)


def test_a_session_of_connect_is_told_from_its_name():
    assert not is_remote(Session(None, 0))
