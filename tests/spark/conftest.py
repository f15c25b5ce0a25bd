"""Sessions of Spark for these tests, each for one module, and a watch for what a test leaves behind."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import tidemill as tm
from tests.spark import processes
from tidemill.observe.progress import ENDED

ROOT = Path(__file__).resolve().parents[2]

os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
"""Java starts in half the time when it does not mean to run for long."""


@contextlib.contextmanager
def session_of(master: str, **settings: str) -> Iterator[Any]:
    """A session as a user would make it."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.master(master).appName("tests")
        builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
        for key, value in settings.items():
            builder = builder.config(key.replace("_", "."), value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")  # tasks that die are what these tests are about
        try:
            yield session
        finally:
            session.stop()


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with session_of("local[3]") as session:
        yield session


@pytest.fixture
def live(spark: Any) -> Iterator[Any]:
    """Runs pipelines; those that a failing test left running are ended behind it."""
    made: list[tm.Run] = []

    def start(pipeline: tm.Pipeline, **how: Any) -> tm.Run:
        made.append(tm.run(pipeline, how.pop("spark", spark), display=False, **how))
        return made[-1]

    yield start
    for run in made:
        if run.status not in ENDED:
            run.abandon()


@pytest.fixture
def nothing_left(live: Any) -> Iterator[None]:  # noqa: ARG001 - with the session, whose own things are there before
    """The test leaves no process, port, thread or temporary file of Tidemill's behind."""
    before = left()
    yield
    processes.eventually(lambda: not (left() - before), 5.0, f"nothing new is left, and not {left() - before}")


def left() -> set[str]:
    """All that a run could leave behind, by name. Spark's own processes stay with the session."""
    me = os.getpid()
    ours = {pid for pid in processes.descendants(me) if not is_sparks(pid)}
    return {
        *(f"process {pid}: {processes.command_of(pid)}" for pid in ours),
        *(f"port {port}" for port in processes.listening_ports({me, *ours})),
        *(f"temporary {name}" for name in processes.temporary_things() if "tidemill" in name),
        *(f"thread {thread.name}" for thread in threading.enumerate() if thread.name.startswith("tidemill")),
    }


def is_sparks(pid: int) -> bool:
    command = processes.command_of(pid)
    return "java" in command.split(" ")[0] or processes.is_python_of_spark(pid) or not command


class Driver:
    """A program that runs a pipeline, in a process of its own: for what can't be done to the tests' own process."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.driver", *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.pid = self.process.pid

    def hear(self) -> Any:
        """The next thing that it says."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the driver ended: {self.process.communicate()[1]}"
        return json.loads(line)

    def end(self, within: float = 30.0) -> tuple[int, str]:
        _, said = self.process.communicate(timeout=within)
        return self.process.returncode, said

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def drive() -> Iterator[Any]:
    made: list[Driver] = []

    def start(*arguments: str, **environment: str) -> Driver:
        made.append(Driver(*arguments, **environment))
        return made[-1]

    yield start
    for driver in made:
        driver.close()
