"""The same stateful Python step in Structured Streaming: `transformWithState`, in micro-batches as fast as they go."""

from __future__ import annotations

import tempfile
import time
from typing import Any

import numpy as np

KEYS = 1_000


def measure(spark: Any, rate: int, seconds: int) -> np.ndarray:
    """Microseconds from when a record was made until a query has handed on its batch, the first ten seconds aside."""
    from pyspark.sql.functions import col, unix_micros

    late: list[np.ndarray] = []
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    spark.conf.set(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    records = spark.readStream.format("rate").option("rowsPerSecond", rate).option("numPartitions", 1).load()
    keyed = records.select((col("value") % KEYS).alias("item"), unix_micros(col("timestamp")).alias("due"))
    counted = keyed.groupBy("item").transformWithStateInPandas(
        _counter(), outputStructType="item long, n long, due long", outputMode="update", timeMode="none"
    )

    def hand_on(batch: Any, _: int) -> None:
        due = batch.select("due").toArrow().column("due").to_numpy()
        late.append(time.time_ns() // 1_000 - due)

    with tempfile.TemporaryDirectory() as folder:
        query = (
            counted.writeStream.foreachBatch(hand_on).option("checkpointLocation", folder).outputMode("update").start()
        )
        until = time.monotonic() + 10
        while time.monotonic() < until:
            time.sleep(0.1)
        warm = len(late)
        time.sleep(seconds)
        query.stop()
        if query.exception() is not None:
            raise RuntimeError(str(query.exception()))
    return np.concatenate(late[warm:] or late or [np.array([0])])


def _counter() -> Any:
    """Defined in here, for PySpark must be there before it can be."""
    import pandas as pd
    from pyspark.sql.streaming import StatefulProcessor

    class Counter(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._n = handle.getValueState("n", "n long")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803 - Spark's names
            n = self._n.get()[0] if self._n.exists() else 0
            for frame in rows:
                counts = range(n + 1, n + 1 + len(frame))
                n += len(frame)
                yield pd.DataFrame({"item": key[0], "n": list(counts), "due": frame["due"]})
            self._n.update((n,))

        def close(self) -> None:
            """Nothing is held."""

    return Counter()
