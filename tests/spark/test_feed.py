"""Streaming queries feed a live run: every row comes once, whatever becomes of tasks, queries and drivers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

import tidemill as tm
from tests.spark.conftest import ROOT, session_of
from tests.spark.feeder import SCHEMA
from tests.spark.processes import eventually
from tidemill.errors import PipelineError, UnknownStreamError
from tidemill.storage.feedlog import FeedLog, folder_of


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """Tasks may fail twice here."""
    with session_of("local[4,3]", spark_sql_shuffle_partitions="2") as session:
        yield session


def pipeline(sink: Any, **how: Any) -> tm.Pipeline:
    made = tm.Pipeline("orders")
    made.source("orders", tm.sources.Feed(SCHEMA, timestamp="at", **how))
    made.sink("orders", sink)
    return made


def put(folder: Path, name: str, numbers: Iterable[int]) -> None:
    """A file that whoever follows the folder finds whole."""
    folder.mkdir(exist_ok=True)
    made = folder / f".{name}"
    made.write_text("".join(json.dumps({"n": n, "at": f"2024-05-01T00:00:{n % 60:02}Z"}) + "\n" for n in numbers))
    made.rename(folder / f"{name}.json")


def fed_by(rows: Any, checkpoint: Path, *, once: bool = False, **options: Any) -> Any:
    writer = rows.writeStream.format("tidemill").option("stream", "orders").options(**options)
    writer = writer.option("checkpointLocation", str(checkpoint))
    query = (writer.trigger(availableNow=True) if once else writer.trigger(processingTime="100 milliseconds")).start()
    if once:
        query.awaitTermination()
    return query


def followed(spark: Any, folder: Path) -> Any:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder))


def dying(flag: Path) -> Any:
    """A step whose process dies in the middle of its rows, once."""

    def die(batches: Any) -> Any:
        for batch in batches:
            yield batch.slice(0, 3)
            with contextlib.suppress(FileExistsError):
                flag.touch(exist_ok=False)
                os._exit(1)
            yield batch.slice(3)

    return die


def numbers_of(collected: Any) -> list[int]:
    return sorted(row["n"] for row in collected.rows)


def test_two_queries_whose_tasks_die_and_who_are_stopped_and_started_again(live, spark, tmp_path):
    storage, first, second = tmp_path / "storage", tmp_path / "first", tmp_path / "second"
    collected = tm.sinks.Collect()
    run = live(pipeline(collected, splits=2), workers=1, storage=storage)
    put(first, "a", range(100))
    put(second, "a", range(1_000, 1_100))
    rows = followed(spark, first).repartition(2).mapInArrow(dying(tmp_path / "died"), SCHEMA)
    one = fed_by(rows, tmp_path / "one")
    other = fed_by(followed(spark, second), tmp_path / "other")
    eventually(lambda: len(collected.rows) == 200, 40.0, f"rows came {numbers_of(collected)} {one.exception()}")
    assert (tmp_path / "died").exists()
    for name in "bcd":
        put(first, name, range(ord(name) * 10_000, ord(name) * 10_000 + 10))
    time.sleep(0.3)  # it is somewhere in the middle of a batch now
    one.stop()
    fed_by(rows, tmp_path / "one", once=True)
    other.stop()
    last = max((tmp_path / "one" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    (last.parent / f".{last.name}.crc").unlink()
    last.unlink()  # as if it had been killed when the batch was in the log, and before it noted that
    before = FeedLog(folder_of(storage, "orders")).find(0, 10**9)
    fed_by(rows, tmp_path / "one", once=True)
    assert last.exists()
    assert FeedLog(folder_of(storage, "orders")).find(0, 10**9) == before
    run.end_feed("orders")
    run.wait(30)
    assert run.status == "finished"
    assert Counter(numbers_of(collected)) == Counter(
        [*range(100), *range(1_000, 1_100), *(ord(name) * 10_000 + n for name in "bcd" for n in range(10))]
    )
    listed = {file.name for n in range(before + 1) for file in entry_of(storage, n).files}
    data = folder_of(storage, "orders") / "data"
    assert {str(path.relative_to(data)) for path in data.rglob("*.arrow")} == listed  # nothing else is left


def entry_of(storage: Path, number: int) -> Any:
    return FeedLog(folder_of(storage, "orders")).entry(number)


def test_a_driver_that_is_killed_in_the_middle_of_a_batch(live, tmp_path):
    """While nobody runs: what is fed waits in the log, and the next run of this storage reads it from its beginning."""
    storage, given, gate = tmp_path / "storage", tmp_path / "given", tmp_path / "gate"
    tm.sources.Feed(SCHEMA, timestamp="at").housed(folder_of(storage, "orders"))  # as a run did before
    gate.mkdir()
    (gate / "closed").touch()
    put(given, "a", range(400))
    driver = feeder(given, storage, tmp_path / "checkpoint", gate)
    data = folder_of(storage, "orders") / "data"
    try:
        eventually(lambda: (gate / "waits").exists() and list(data.rglob("*.arrow")), 60.0, "one task is done")
        os.killpg(driver.pid, signal.SIGKILL)  # it leads a group of its own: with its Java
        driver.wait()
    finally:
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
    (left,) = data.rglob("*.arrow")
    assert entry_of(storage, 0) is None
    (gate / "closed").unlink()
    assert feeder(given, storage, tmp_path / "checkpoint", gate).wait(60) == 0
    assert not left.exists()  # what the killed one wrote is no part of the batch
    collected = tm.sinks.Collect()
    run = live(pipeline(collected), workers=1, storage=storage)
    run.end_feed("orders")
    run.wait(30)
    assert numbers_of(collected) == list(range(400))


def feeder(*paths: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.spark.feeder", *map(str, paths)]
    return subprocess.Popen(command, cwd=ROOT, start_new_session=True, stdout=subprocess.DEVNULL)


def test_what_does_not_fit_is_refused_with_a_remedy(live, spark, tmp_path):
    with pytest.raises(PipelineError, match=r"source of 'orders' .*test_feed.* is a Feed.*storage="):
        live(pipeline(tm.sinks.Collect()))
    put(tmp_path / "given", "a", range(5))
    rows = followed(spark, tmp_path / "given")
    run = live(pipeline(tm.sinks.Collect()), workers=1, storage=tmp_path / "storage")
    for wrong, options, said in [
        (rows, {"stream": "ordres"}, r"no run of this session has a Feed of 'ordres'; feeds are: orders"),
        (rows, {"path": str(tmp_path)}, r"there is no feed in .*start that first"),
        (rows.drop("at"), {}, "lacks the column 'at'"),
        (rows.withColumn("n", rows.n.cast("string")), {}, "'n' is of type string, and the stream's of type long"),
        (rows.selectExpr("n", "cast(null as timestamp) as at"), {}, "no event time: column 'at' is null"),
    ]:
        with pytest.raises(PySparkException, match=said):
            fed_by(wrong, tmp_path / said[:9], once=True, **options)
    with pytest.raises(UnknownStreamError, match="feeds are: orders"):
        run.end_feed("ordres")
    run.end_feed("orders")
    run.wait(30)
    with pytest.raises(PySparkException, match="has ended: it takes no more rows"):
        fed_by(rows, tmp_path / "late", once=True)
