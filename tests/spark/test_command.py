"""`tidemill run` as somebody at a terminal uses it: a file, a run on Spark, its rows, its story, its metrics."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest

from tests.spark.conftest import ROOT
from tests.spark.processes import descendants, eventually, is_alive
from tests.spark.programs import assert_counted, first_words

FILE = """
import tidemill as tm
from dataclasses import dataclass

TEXT = "it was the best of times it was the worst of times it was the age of wisdom it was the age of foolishness"
WORDS = TEXT.split()


@dataclass
class Seen:
    n: int = 0


class WordCount(tm.Computation):
    words = tm.Input(key="word")
    counts = tm.Output("word string, n long")
    state = Seen

    def process_record(self, ctx, record):
        ctx.state.n += 1
        ctx.produce(self.counts, word=ctx.key, n=ctx.state.n)


def counted(name, **how):
    pipeline = tm.Pipeline(name)
    pipeline.source("words", tm.sources.Generator(lambda i: (WORDS[i % len(WORDS)],), "word string", **how))
    pipeline.add(WordCount)
    pipeline.sink("counts", tm.sinks.Collect())
    return pipeline


bounded = counted("bounded", count=1_000)
endless = counted("endless", rate=500)

if __name__ == "__main__":
    raise SystemExit("this is for those who run the file itself")
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Somewhere else than where the workers look for modules."""
    path = tmp_path / "jobs" / "words.py"
    path.parent.mkdir()
    path.write_text(FILE)
    return path


@pytest.fixture
def command():
    made = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        made.append(
            subprocess.Popen(
                [sys.executable, "-m", "tidemill.cli", *arguments],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        )
        return made[-1]

    yield start
    for process in made:
        if process.poll() is None:
            process.kill()
        process.communicate()


def rows_of(printed: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in printed.splitlines()]


def test_a_bounded_run_prints_its_rows_and_can_be_told_of_afterwards(command, file, tmp_path):
    storage = str(tmp_path / "storage")
    where = f"{file}:bounded"
    run = command("run", where, "--workers", "2", "--master", "local[2]", "--storage", storage)
    printed, said = run.communicate(timeout=60.0)
    assert run.returncode == 0, said
    assert_counted(rows_of(printed), first_words(1_000))
    assert "run bounded: finished" in said
    told = command("inspect", storage)
    story = told.communicate(timeout=20.0)[0]
    assert told.returncode == 0
    for part in ("joined", "begins with 2 workers", "the run is over: finished"):
        assert part in story, story


def free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_an_endless_run_is_watched_and_stopped(command, file):
    port = free_port()
    run = command("run", f"{file}:endless", "--master", "local[2]", "--metrics-port", str(port), "--quiet")

    def counted() -> float:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2.0) as answer:
                metrics = answer.read().decode()
        except OSError:
            return 0.0
        found = re.search(r'^\w*records_in\w*\{[^}]*"sink:counts"[^}]*\} (\S+)$', metrics, re.MULTILINE)
        return float(found[1]) if found else 0.0

    eventually(lambda: counted() > 200, 40.0, "the metrics tell of 200 records")
    family = descendants(run.pid)
    os.kill(run.pid, signal.SIGTERM)
    printed, said = run.communicate(timeout=20.0)
    assert run.returncode == 0, said
    assert "tidemill: stopped" in said
    rows = rows_of(printed)
    assert len(rows) > 200
    assert_counted(rows, first_words(len(rows)))
    eventually(lambda: not any(map(is_alive, family)), 5.0, "nothing of it is left")


def test_what_is_wrong_is_one_line_and_a_failure(command, file):
    for arguments, problem in (
        ([f"{file}"], "has 2 pipelines (bounded, endless). Say which one"),
        ([f"{file}:other"], "There is no 'other'"),
        ([f"{file.parent}/nothing.py:x"], "There is no file"),
        ([f"{file}:bounded", "--workers", "3", "--master", "local[2]"], "3 workers need 3 free task slots"),
        ([f"{file}:bounded", "--workers", "0"], "a run needs at least one worker"),
    ):
        run = command("run", *arguments)
        printed, said = run.communicate(timeout=20.0)
        assert run.returncode == 1
        assert printed == ""
        assert said.startswith("tidemill: "), said
        assert problem in said
        assert len(said.splitlines()) == 1
