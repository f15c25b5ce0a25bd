"""Workers on executors of their own: a cluster inside one machine, and a standalone one with its own master."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

import tidemill as tm
from tests.spark.conftest import session_of
from tests.spark.processes import command_of, eventually, parent_of
from tests.spark.programs import assert_counted, first_words, some_words, word_count
from tidemill.errors import RunError

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


def executor_of(worker: int) -> int:
    """The Java process whose Python this worker is."""
    above = worker
    while above and "java" not in command_of(above).split(" ")[0]:
        above = parent_of(above)
    return above


def started(*command: str, log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen(
            [str(SPARK_CLASS), *command],
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "SPARK_NO_DAEMONIZE": "1", "SPARK_LOCAL_IP": "127.0.0.1"},
        )


@contextlib.contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """A master and two workers of Spark's, on free ports of this machine."""
    running: list[subprocess.Popen[bytes]] = []
    own = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    try:
        running.append(started("org.apache.spark.deploy.master.Master", *own, log=folder / "master"))
        found: list[str] = []

        def master_is_up() -> bool:
            found[:] = re.findall(r"Starting Spark master at (spark://\S+)", (folder / "master").read_text())
            return bool(found)

        eventually(master_is_up, 30.0, "the master is up")
        for place in range(2):
            its = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work{place}"))
            name = "org.apache.spark.deploy.worker.Worker"
            running.append(started(name, *own, *its, found[0], log=folder / f"worker{place}"))
        yield found[0]
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait(20.0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: Any) -> Iterator[Any]:
    settings = {"spark_driver_host": "127.0.0.1", "spark_executor_memory": "512m"}
    with standalone(tmp_path_factory.mktemp("cluster")) as master, session_of(master, **settings) as session:
        executors = session.sparkContext._jsc.sc().statusStore()
        eventually(lambda: executors.executorList(True).size() == 3, 30.0, "two executors, and the driver")
        yield session


def test_a_standalone_cluster(cluster):
    counts = tm.sinks.Collect()
    with tm.run(word_count(some_words(None, 500, splits=1), counts), cluster, workers=2, display=False) as run:
        assert len({executor_of(worker.pid) for worker in run.workers}) == 2, "each on an executor of its own"
        time.sleep(0.5)
    assert run.progress is not None
    assert_counted(counts.rows, first_words(run.progress.node("source:words").records_out))


def test_more_workers_than_a_cluster_has_slots(cluster):
    with pytest.raises(RunError, match=r"3 workers need 3 free task slots, and Spark .* has 2 free of 2"):
        tm.run(word_count(some_words(10), tm.sinks.Collect()), cluster, workers=3, display=False)


def test_an_executor_that_is_killed(cluster):
    """The last of this module: Spark starts another one in its place, some time later."""
    run = tm.run(word_count(some_words(None, 500), tm.sinks.Collect()), cluster, workers=2, display=False)
    lost = run.workers[1]
    os.kill(executor_of(lost.pid), signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(RunError, match=rf"Lost: .*process {lost.pid} on"):
        run.wait(30.0)
    assert time.monotonic() - began < 10.0


def test_a_cluster_inside_one_machine():
    with session_of("local-cluster[2,1,512]", spark_executor_memory="512m") as session:
        counts = tm.sinks.Collect()
        run = tm.run(word_count(some_words(2_000), counts), session, workers=2, display=False)
        assert len({executor_of(worker.pid) for worker in run.workers}) == 2
        run.wait(30.0)
    assert_counted(counts.rows, first_words(2_000))
