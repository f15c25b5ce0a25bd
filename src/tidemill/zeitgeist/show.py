"""The demonstration from beginning to end, each step with a line that says what it is about to do."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import tidemill as tm
from tidemill.hosts.spark import session as sessions
from tidemill.hosts.spark import slots
from tidemill.zeitgeist import tables, trends
from tidemill.zeitgeist.judging import Verdict, judge
from tidemill.zeitgeist.replay import Replay

MEMORY: Final = 512
"""MiB for each executor: what Spark wants at least, and more than these tables need."""

QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java that does not mean to run for long starts in half the time."""

LEAD: Final = 4
"""Seconds that the workers have to come before the first search does. If they take longer, they have to catch up."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Choices:
    seconds: int
    seed: int
    workers: int
    master: str | None
    folder: Path
    display: bool
    say: Say
    began: float = field(default_factory=time.monotonic)

    def tell(self, text: str) -> None:
        passed = int(time.monotonic() - self.began)
        self.say(f"{passed // 60}:{passed % 60:02}  {text}")


def show(chosen: Choices) -> Verdict:
    """Runs it in a Spark session of its own."""
    master = chosen.master or f"local-cluster[{chosen.workers},1,{MEMORY}]"
    slots.check_master(master, chosen.workers)
    chosen.folder.mkdir(parents=True, exist_ok=True)
    chosen.tell(f"starting Spark: {master}")
    with _spark(master, chosen.folder) as session:
        rows = _tables(chosen, session)
        models = _models(chosen, session)
        begins = _live(chosen, session, models, rows["searches"])
        chosen.tell("Spark SQL: what was planted against what was found")
        return judge(session, chosen.folder, begins)


@contextlib.contextmanager
def _spark(master: str, folder: Path) -> Iterator[Any]:
    sessions.check_pyspark()
    log = folder / "spark-events"
    log.mkdir()
    own = sessions.new_session(master, "tidemill demo", _settings(log), QUICK)
    session = own.session
    application = session.sparkContext.applicationId
    try:
        yield session
    finally:
        own.close()
        _tidy(application)


def _settings(log: Path) -> Mapping[str, str]:
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": log.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.executor.memory": f"{MEMORY}m",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",  # the tables are small
        "spark.ui.enabled": "false",
    }


def _tidy(application: str) -> None:
    """Of each executor of a local-cluster Spark leaves a folder with its logs beside itself."""
    import pyspark

    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    shutil.rmtree(home / "work" / application, ignore_errors=True)
    with contextlib.suppress(OSError):
        (home / "work").rmdir()


def _tables(chosen: Choices, session: Any) -> Mapping[str, int]:
    chosen.tell(f"Spark makes the tables, from seed {chosen.seed}")
    tables.described(session, "zeitgeist: tables from a seed")
    rows = tables.make_tables(session, chosen.folder, chosen.seed, chosen.seconds, chosen.workers)
    chosen.tell(
        f"{rows['queries']} queries, {rows['history']:,} counts of two months by the hour, {rows['searches']:,} "
        f"searches to come, {rows['planted']} spikes and dips planted among them"
    )
    return rows


def _models(chosen: Choices, session: Any) -> Any:
    chosen.tell("the pipeline as a Spark plan: from the two months, a model of each query")
    tables.described(session, "zeitgeist: models from history, as a plan")
    folder = chosen.folder / "models"
    history = trends.of_history(session.table("history"))
    history.state_dataframe(trends.MODELS, spark=session).write.parquet(str(folder))
    return session.read.parquet(str(folder))


def _live(chosen: Choices, session: Any, models: Any, searches: int) -> int:
    """When the live part began, in microseconds since the epoch."""
    begins = (int(time.time()) + LEAD + 1) * trends.SECOND
    source = Replay(chosen.folder / "searches", begins, tables.JITTER)
    chosen.tell(
        f"the pipeline live, with these models, on {chosen.workers} workers: {chosen.seconds} seconds of "
        f"{searches / chosen.seconds:,.0f} searches each"
    )

    def tell(found: Mapping[str, Any]) -> None:
        text = (
            f"{found['kind']}: {found['query']}, {found['searches']} in this second where {found['usual']:g} are usual"
        )
        chosen.tell(f"  {text}")

    run = tm.run(
        trends.live(source, begins, chosen.seconds, chosen.folder, tell),
        session,
        workers=chosen.workers,
        initial_state={trends.MODELS: models},
        storage=chosen.folder / "run",
        display=chosen.display,
        seed=chosen.seed,
    )
    run.wait()
    return begins


@contextlib.contextmanager
def kept_or_not(keep: Path | None) -> Iterator[Path]:
    """The folder for all that is written: one to stay, which must be new or empty, or one that goes with the demo."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="tidemill-demo-") as made:
            yield Path(made)
    elif keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise tm.errors.StorageError(f"'{keep}' is there already. Give --keep a folder that is new or empty.")
    else:
        yield keep.absolute()
