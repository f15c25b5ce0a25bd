"""`tidemill demo`, shorter than usual: Spark's own log says what Spark did, and plain Spark reads what it printed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import ROOT

SECONDS = 10
LINE = re.compile(r"(spike|dip) +(\w+(?: \w+)+) +([\d.]+) s +([\d.]+) +([\d.]+) s +(\d+) +([\d.]+)")


@dataclass
class Log:
    """What Spark wrote down of its tasks, by what their job was called."""

    read: Counter[str] = field(default_factory=Counter)
    shuffled: Counter[str] = field(default_factory=Counter)
    executors: dict[str, set[str]] = field(default_factory=dict)


def log_in(folder: Path) -> Log:
    (file,) = folder.iterdir()
    found = Log()
    jobs: dict[int, str] = {}
    for event in map(json.loads, file.read_text().splitlines()):
        if event["Event"] == "SparkListenerJobStart":
            jobs |= dict.fromkeys(event["Stage IDs"], event["Properties"].get("spark.job.description", ""))
        elif event["Event"] == "SparkListenerTaskEnd":
            job, metrics = jobs[event["Stage ID"]], event["Task Metrics"]
            found.read[job] += metrics["Input Metrics"]["Bytes Read"]
            found.shuffled[job] += metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"]
            found.executors.setdefault(job, set()).add(event["Task Info"]["Executor ID"])
    return found


@pytest.fixture(scope="module")
def shown(tmp_path_factory: Any) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("demo") / "kept"
    command = ["demo", "--seconds", str(SECONDS), "--seed", "3", "--keep", str(folder)]
    ran = subprocess.run(
        [sys.executable, "-m", "tidemill.cli", *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder, ran.stdout


def test_spark_reads_shuffles_and_has_the_workers_on_two_executors(shown):
    log = log_in(shown[0] / "spark-events")
    plan, end = "zeitgeist: models from history, as a plan", "zeitgeist: planted against found"
    for job in (plan, end):
        assert log.read[job] > 0
        assert log.shuffled[job] > 0
    assert log.shuffled["zeitgeist: tables from a seed"] > 0
    (first,), (second,) = (log.executors[f"tidemill zeitgeist: worker {place}"] for place in range(2))
    assert {first, second} == {"0", "1"}


def test_plain_spark_reads_what_was_printed(shown, spark):
    folder, printed = shown
    for name in ("planted", "searches", "windows", "anomalies", "late"):
        spark.read.parquet(str(folder / name)).createOrReplaceTempView(name)
    found = {
        (row.kind, row.query): (row.searches, row.usual, row.found.timestamp())
        for row in spark.table("anomalies").orderBy("found", ascending=False).collect()
    }
    planted = {(row.kind, row.query): row for row in spark.table("planted").collect()}
    lines = {(match[1], match[2]): match for match in map(LINE.fullmatch, printed.splitlines()) if match}
    assert set(lines) == set(planted)
    assert {kind for kind, _ in planted} == {"spike", "dip"}
    began = None
    for one, match in lines.items():
        searches, usual, at = found[one]
        assert (float(match[3]), float(match[4])) == pytest.approx(
            (planted[one].starts, planted[one].factor), abs=0.005
        )
        assert (int(match[6]), float(match[7])) == (searches, usual)
        began = began or round(at - float(match[5]) - planted[one].starts)
        assert at - began - planted[one].starts == pytest.approx(float(match[5]), abs=0.006)
    made, late = (spark.table(name).count() for name in ("searches", "late"))
    counted = spark.sql("SELECT sum(searches) FROM windows").first()[0]
    assert late > 0
    assert made == counted + late
    assert (
        f"{made:,} searches = {counted:,} in their buckets, where Spark SQL counts the same, + {late:,} late."
        in printed
    )


def test_the_story_of_its_run_is_kept(shown):
    folder, printed = shown
    assert f"  tidemill inspect {folder}/run" in printed
    assert '"finished"' in (folder / "run" / "journal.jsonl").read_text()
