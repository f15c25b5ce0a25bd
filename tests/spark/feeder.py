"""A program of its own that feeds a run from a folder of JSON files, and can be made to stop in the middle of a batch.

python -m tests.spark.feeder INPUT STORAGE CHECKPOINT GATE

While there is a file GATE/closed, the second task of each batch waits, and says so in GATE/waits.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import tidemill as tm
from tests.spark.conftest import session_of

SCHEMA = "n long, at timestamp"


def gated(gate: str) -> Any:
    def wait(batches: Any) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        for batch in batches:
            if context is not None and context.partitionId() == 1:
                while (Path(gate) / "closed").exists():
                    (Path(gate) / "waits").touch()
                    time.sleep(0.05)
            yield batch

    return wait


def main() -> None:
    given, storage, checkpoint, gate = sys.argv[1:]
    with session_of("local[2]", spark_sql_shuffle_partitions="2") as spark:
        tm.register(spark)
        rows = spark.readStream.schema(SCHEMA).json(given).repartition(2).mapInArrow(gated(gate), SCHEMA)
        feeding = rows.writeStream.format("tidemill").option("stream", "orders").option("path", storage)
        feeding.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
