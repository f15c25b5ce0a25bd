"""Nothing is left: of a run whose program was killed, interrupted, or that crashed, whatever it was doing."""

from __future__ import annotations

import os
import signal
import time

import pytest

import tidemill as tm
from tests.spark.conftest import left
from tests.spark.processes import (
    descendants,
    eventually,
    every_process,
    is_alive,
    listening_ports,
    process_group,
    temporary_things,
)
from tests.spark.programs import WordCount, assert_counted, first_words, some_words, word_count
from tidemill.errors import TidemillError


@pytest.fixture
def before():
    return temporary_things()


def assert_all_gone(family, ports, before):
    """Its processes, what they listened on, and what they kept on the disk."""
    took = eventually(lambda: not any(map(is_alive, family)), 5.0, "its processes are gone")
    assert not listening_ports(every_process()) & ports
    assert not {name for name in temporary_things() - before if "tidemill" in name}
    return took


def family_of(driver, said):
    family = descendants(driver.pid)
    assert {said["coordinator"], *said["workers"]} <= family
    return family, listening_ports([said["coordinator"], *said["workers"]])


def test_of_a_driver_that_is_killed(drive, before):
    driver = drive("--rate", "500")
    said = driver.hear()
    family, ports = family_of(driver, said)
    assert len(ports) == len(said["workers"]) + 2, "one each, and the coordinator's lifelines"
    os.kill(driver.pid, signal.SIGKILL)
    assert_all_gone(family, ports, before)


def test_of_workers_and_a_coordinator_whose_spark_stays(live, spark):
    """A cluster's executors do not end with the driver: the workers must see by themselves that they are not needed."""
    run = live(word_count(some_words(None, 500), tm.sinks.Collect()))
    workers = [worker.pid for worker in run.workers]
    os.kill(run._attendance.pid, signal.SIGKILL)
    with pytest.raises(TidemillError):
        run.wait(10.0)
    eventually(lambda: not listening_ports(workers), 5.0, "the workers' ports are closed")
    tracker = spark.sparkContext.statusTracker()
    eventually(lambda: not tracker.getActiveJobsIds(), 5.0, "Spark runs nothing for it any more")


class Busy(WordCount):
    """Takes its time."""

    def process_record(self, ctx, record):
        time.sleep(0.05)
        super().process_record(ctx, record)


def test_of_busy_workers_whose_coordinator_is_killed(live, spark):
    run = live(word_count(some_words(None), tm.sinks.Collect(), counting=Busy))
    time.sleep(0.5)  # it is in the middle of a bundle now, for minutes
    os.kill(run._attendance.pid, signal.SIGKILL)
    with pytest.raises(TidemillError):
        run.wait(10.0)
    tracker = spark.sparkContext.statusTracker()
    eventually(lambda: not tracker.getActiveJobsIds(), 5.0, "Spark runs nothing for it any more")


def test_of_ctrl_c(drive, before):
    """What was read is worked off first."""
    driver = drive("--rate", "500")
    said = driver.hear()
    family, ports = family_of(driver, said)
    time.sleep(1.0)
    os.killpg(process_group(driver.pid), signal.SIGINT)
    said = driver.hear()
    assert said["interrupted"]
    assert said["status"] == "stopped"
    assert len(said["rows"]) > 300
    assert_counted(said["rows"], first_words(len(said["rows"])))
    assert driver.end()[0] == 130
    assert_all_gone(family, ports, before)


def test_of_a_second_ctrl_c(drive, before):
    """With so much to do that working it off would take minutes."""
    driver = drive("--seconds-a-record", "0.5")
    said = driver.hear()
    family, ports = family_of(driver, said)
    time.sleep(1.0)
    os.killpg(process_group(driver.pid), signal.SIGINT)
    time.sleep(4.0)  # longer than Spark leaves a task that it cancels
    assert driver.process.poll() is None
    assert all(map(is_alive, said["workers"])), "they work off what was read"
    os.killpg(process_group(driver.pid), signal.SIGINT)
    began = time.monotonic()
    said = driver.hear()
    assert said["interrupted"]
    assert said["status"] == "stopped"
    assert time.monotonic() - began < 15.0, "working it off would take minutes"
    assert driver.end()[0] == 130
    assert_all_gone(family, ports, before)


def test_of_a_session_that_is_closed_under_a_run(live, spark):
    """As a notebook does that is run again from its beginning."""
    run = live(word_count(some_words(None, 200), tm.sinks.Collect()))
    spark.sparkContext.cancelAllJobs()
    with pytest.raises(TidemillError, match="Lost"):
        run.wait(15.0)
    eventually(lambda: not [name for name in left() if name.startswith(("process", "thread"))], 5.0, "nothing is left")
