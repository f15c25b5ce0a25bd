"""`format("tidemill")`: Spark's streaming queries feed a run with it, and follow what comes out of one.

    df.writeStream.format("tidemill").option("stream", "orders")        into a `tm.sources.Feed`
    spark.readStream.format("tidemill").load("out/counts")              from a `tm.sinks.Parquet`; `spark.read` too

Spark pickles these classes and runs them in processes of its own, where Tidemill may not be on the path. So they are
made here by value, know where it is, and leave all that is to be done to modules that they import there.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from typing import Any

from tidemill.hosts.spark.attendance import import_paths

_feeds: dict[str, str] = {}
_registered: weakref.WeakKeyDictionary[Any, dict[str, str]] = weakref.WeakKeyDictionary()


def register(spark: Any) -> None:
    """Makes `format("tidemill")` known to a session. `tm.run` does that for its own.

    Feeds of runs that this program started are found by their stream; others by `.option("path", storage)`.
    """
    if _registered.get(spark) != _feeds:
        spark.dataSource.register(data_source(dict(_feeds)))
        _registered[spark] = dict(_feeds)


def know(feeds: dict[str, str]) -> None:
    """From now on these streams' feeds are found in these folders."""
    _feeds.update(feeds)


def data_source(feeds: dict[str, str]) -> Any:  # noqa: C901 - classes within it, each of which is plain
    from pyspark.sql import datasource as spark

    paths = import_paths()

    def ready() -> None:
        sys.path.extend(path for path in paths if path not in sys.path)

    class Commit(spark.InputPartition):
        pass

    class Reader(spark.DataSourceReader):
        def __init__(self, folder: str, names: list[str]) -> None:
            self.folder, self.names = folder, names

        def partitions(self) -> list[Any]:
            ready()
            from tidemill.hosts.spark import following

            return [Commit(tuple(part)) for part in following.parts(self.folder, following.BEGINNING, None)]

        def read(self, partition: Any) -> Iterator[Any]:
            ready()
            from tidemill.hosts.spark import following

            return following.read(following.Part(*partition.value), self.names)

    class StreamReader(spark.DataSourceStreamReader):
        def __init__(self, folder: str, names: list[str]) -> None:
            self.folder, self.names = folder, names

        def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
            return {"epoch": -1}

        def latestOffset(self, *_: Any) -> dict[str, int]:  # noqa: N802 - before Spark 4.2 it was given nothing
            ready()
            from tidemill.hosts.spark import following

            return {"epoch": following.newest(self.folder)}

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Any]:
            ready()
            from tidemill.hosts.spark import following

            return [Commit(tuple(part)) for part in following.parts(self.folder, start["epoch"], end["epoch"])]

        def read(self, partition: Any) -> Iterator[Any]:
            ready()
            from tidemill.hosts.spark import following

            return following.read(following.Part(*partition.value), self.names)

    # Before Spark 4.1 it is given rows.
    batches: Any = getattr(spark, "DataSourceStreamArrowWriter", spark.DataSourceStreamWriter)

    class StreamWriter(batches):  # type: ignore[misc]
        def __init__(self, folder: str) -> None:
            self.folder = folder

        def write(self, iterator: Iterator[Any]) -> Any:
            ready()
            from pyspark import TaskContext

            from tidemill.hosts.spark import feeding

            context = TaskContext.get()
            assert context is not None, "this is a task"
            query = context.getLocalProperty("sql.streaming.queryId")
            batch = context.getLocalProperty("streaming.sql.batchId")
            message: Any = spark.WriterCommitMessage()
            fed = feeding.write(self.folder, iterator, query, batch, context.partitionId())
            message.fed = None if fed is None else tuple(fed)  # of plain values, which any process can unpickle
            return message

        def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's names
            ready()
            from tidemill.hosts.spark import feeding

            feeding.commit(self.folder, self.told(messages))

        def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's names
            ready()
            from tidemill.hosts.spark import feeding

            feeding.abort(self.folder, self.told(messages))

        def told(self, messages: list[Any]) -> list[Any]:
            from tidemill.hosts.spark import feeding

            return [feeding.Fed(*message.fed) for message in messages if message is not None and message.fed]

    class Tidemill(spark.DataSource):
        @classmethod
        def name(cls) -> str:
            return "tidemill"

        def schema(self) -> str:
            ready()
            from tidemill.hosts.spark import following

            return following.schema_of(following.folder_of(self.options))

        def reader(self, schema: Any) -> Any:
            ready()
            from tidemill.hosts.spark import following

            return Reader(following.folder_of(self.options), schema.names)

        def streamReader(self, schema: Any) -> Any:  # noqa: N802 - Spark's name
            ready()
            from tidemill.hosts.spark import following

            return StreamReader(following.folder_of(self.options), schema.names)

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: ARG002, FBT001, N802 - Spark's names
            ready()
            from tidemill.hosts.spark import feeding

            folder = feeding.folder_for(self.options, feeds)
            feeding.check_fits(folder, schema)
            return StreamWriter(folder)

    return Tidemill
