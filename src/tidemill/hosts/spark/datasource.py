"""`format("tidemill")`: Spark's streaming queries feed a run with it, and follow what comes out of one.

    df.writeStream.format("tidemill").option("stream", "orders")        into a `tm.sources.Feed`
    spark.readStream.format("tidemill").load("out/counts")              from a `tm.sinks.Parquet`; `spark.read` too

Spark pickles these classes and runs them in processes of its own, where Tidemill may not be on the path. So they are
made here by value, know where it is, and leave all that is to be done to modules that they import there.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
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


def data_source(feeds: dict[str, str]) -> Any:
    """The class that Spark registers."""
    from pyspark.sql import datasource as spark

    there = _finder()
    reader, stream_reader, stream_writer = _reader(there), _stream_reader(there), _stream_writer(there)

    class Tidemill(spark.DataSource):
        @classmethod
        def name(cls) -> str:
            return "tidemill"

        def schema(self) -> str:
            following = there("following")
            return str(following.schema_of(following.folder_of(self.options)))

        def reader(self, schema: Any) -> Any:
            return reader(there("following").folder_of(self.options), schema.names)

        def streamReader(self, schema: Any) -> Any:  # noqa: N802 - Spark's name
            return stream_reader(there("following").folder_of(self.options), schema.names)

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: ARG002, FBT001, N802 - Spark's names
            feeding = there("feeding")
            folder = feeding.folder_for(self.options, feeds)
            feeding.check_fits(folder, schema)
            return stream_writer(folder)

    return Tidemill


def _finder() -> Callable[[str], Any]:
    """Gives a module of this package, wherever it is asked to."""
    paths = import_paths()

    def there(module: str) -> Any:
        import importlib

        sys.path.extend(path for path in paths if path not in sys.path)
        return importlib.import_module(f"tidemill.hosts.spark.{module}")

    return there


def _reader(there: Callable[[str], Any]) -> Any:
    from pyspark.sql import datasource as spark

    class Reader(spark.DataSourceReader):
        def __init__(self, folder: str, names: list[str]) -> None:
            self.folder, self.names = folder, names

        def partitions(self) -> list[Any]:
            return [spark.InputPartition(tuple(part)) for part in there("following").parts(self.folder, -1, None)]

        def read(self, partition: Any) -> Iterator[Any]:
            return there("following").read(partition.value, self.names)  # type: ignore[no-any-return]

    return Reader


def _stream_reader(there: Callable[[str], Any]) -> Any:
    from pyspark.sql import datasource as spark

    class StreamReader(spark.DataSourceStreamReader):
        def __init__(self, folder: str, names: list[str]) -> None:
            self.folder, self.names = folder, names

        def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
            return {"epoch": -1}

        def latestOffset(self, *_: Any) -> dict[str, int]:  # noqa: N802 - before Spark 4.2 it was given nothing
            return {"epoch": there("following").newest(self.folder)}

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Any]:
            found = there("following").parts(self.folder, start["epoch"], end["epoch"])
            return [spark.InputPartition(tuple(part)) for part in found]

        def read(self, partition: Any) -> Iterator[Any]:
            return there("following").read(partition.value, self.names)  # type: ignore[no-any-return]

    return StreamReader


def _stream_writer(there: Callable[[str], Any]) -> Any:
    from pyspark.sql import datasource as spark

    # Before Spark 4.1 it is given rows.
    arrow: Any = getattr(spark, "DataSourceStreamArrowWriter", spark.DataSourceStreamWriter)

    class StreamWriter(arrow):  # type: ignore[misc]
        def __init__(self, folder: str) -> None:
            self.folder = folder

        def write(self, iterator: Iterator[Any]) -> Any:
            from pyspark import TaskContext

            context = TaskContext.get()
            assert context is not None, "this is a task"
            query = context.getLocalProperty("sql.streaming.queryId")
            batch = context.getLocalProperty("streaming.sql.batchId")
            fed = there("feeding").write(self.folder, iterator, query, batch, context.partitionId())
            message: Any = spark.WriterCommitMessage()
            message.fed = None if fed is None else tuple(fed)  # of plain values, which any process can unpickle
            return message

        def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's names
            there("feeding").commit(self.folder, [message.fed for message in messages if message is not None])

        def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's names
            there("feeding").abort(self.folder, [message.fed for message in messages if message is not None])

    return StreamWriter
