"""A Spark session that is none: what jobs ask of one, with each task in a process of its own, or as a test says."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

RUN = """
import pickle, sys
sys.path[:] = {paths}
task = pickle.load(sys.stdin.buffer)
print([batch.to_pylist() for batch in task(iter([]))][0][0]["ended"], flush=True)
"""


class Session:
    """`run` is what becomes of a task; without it, a process."""

    def __init__(self, run=None, *, master="local[4]", slots=4, busy=0, **conf):
        self._run = run or self._in_a_process
        self.settings = {"spark.master": master, **{key.replace("_", "."): value for key, value in conf.items()}}
        self.conf = SimpleNamespace(get=lambda key, default=None: self.settings.get(key, default))
        self.tags: list = []
        self.groups: list = []
        self.interrupted: list = []
        self.tasks: list = []
        self.processes: list[subprocess.Popen] = []
        self.stopped = 0
        self.sparkContext = _Context(self, master)
        self.sources: list = []
        self.dataSource = SimpleNamespace(register=self.sources.append)
        self.executors = [SimpleNamespace(maxTasks=lambda: slots)]
        self.running = {"driver": busy}

    # What jobs do

    def addTag(self, tag):  # noqa: N802 - Spark's name
        self.tags.append((threading.current_thread().name, tag))

    def interruptTag(self, tag):  # noqa: N802 - Spark's name
        self.interrupted.append(tag)
        for process in self.processes:
            process.kill()

    def range(self, start, end, step, partitions):
        assert (start, end, step, partitions) == (0, 1, 1, 1), "one task"
        return self

    def mapInArrow(self, task, schema):  # noqa: N802 - Spark's name
        assert schema == "worker int, ended string"
        return SimpleNamespace(collect=lambda: self._collect(task))

    def stop(self):
        self.stopped += 1

    def _collect(self, task):
        self.tasks.append(task)
        ended = self._run(task)
        return [] if ended is None else [{"worker": 0, "ended": ended}]

    def _in_a_process(self, task):
        from pyspark import cloudpickle

        pickled: Any = cloudpickle
        code = RUN.format(paths=[path or str(Path.cwd()) for path in sys.path])
        process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.processes.append(process)
        out, _ = process.communicate(pickled.dumps(task))
        if process.returncode:
            how = signal.Signals(-process.returncode).name if process.returncode < 0 else process.returncode
            raise RuntimeError(f"the task ended with {how}")
        return out.decode().strip()


class _Context:
    def __init__(self, session, master):
        self._session = session
        self.master = master
        scheduler = SimpleNamespace(runningTasksByExecutors=lambda: session.running)
        listed = SimpleNamespace(size=lambda: len(session.executors), apply=lambda place: session.executors[place])
        store = SimpleNamespace(executorList=lambda active: listed if active else None)
        self._jsc = SimpleNamespace(
            sc=lambda: SimpleNamespace(statusStore=lambda: store, taskScheduler=lambda: scheduler)
        )
        converters = SimpleNamespace(asJava=dict)
        javaapi = SimpleNamespace(CollectionConverters=converters)
        self._jvm = SimpleNamespace(scala=SimpleNamespace(jdk=SimpleNamespace(javaapi=javaapi)))

    def setJobGroup(self, group, what, interruptOnCancel=False):  # noqa: N802, N803 - Spark's names
        self._session.groups.append((group, what, interruptOnCancel))
