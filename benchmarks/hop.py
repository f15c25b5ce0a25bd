"""A bare hop: one record as Arrow over ZeroMQ from one Spark task to another and back. What any host must pay."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa


def measure(spark: Any, count: int) -> np.ndarray:
    """Microseconds there and back, for each of `count` records."""
    import zmq

    probe = zmq.Context.instance().socket(zmq.PAIR)
    port = probe.bind_to_random_port("tcp://127.0.0.1")
    probe.close(0)
    echo = threading.Thread(target=lambda: _run(spark, _echo, port, count))
    echo.start()
    rows = _run(spark, _call, port, count)
    echo.join()
    return np.array([row["micros"] for row in rows], np.int64)


def _run(spark: Any, task: Any, port: int, count: int) -> Any:
    def body(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        yield pa.RecordBatch.from_arrays([pa.array(task(port, count), pa.int64())], ["micros"])

    return spark.range(0, 1, 1, 1).mapInArrow(body, "micros long").collect()


def _echo(port: int, count: int) -> list[int]:
    import zmq

    with zmq.Context() as context, context.socket(zmq.PAIR) as line:
        line.linger = 500
        line.bind(f"tcp://127.0.0.1:{port}")
        for _ in range(count):
            with pa.ipc.open_stream(line.recv()) as stream:
                batch = stream.read_next_batch()
            line.send(_bytes(batch))
    return []


def _call(port: int, count: int) -> list[int]:
    import zmq

    took = []
    with zmq.Context() as context, context.socket(zmq.PAIR) as line:
        line.linger = 500
        line.connect(f"tcp://127.0.0.1:{port}")
        for number in range(count):
            began = time.perf_counter_ns()
            line.send(_bytes(pa.RecordBatch.from_arrays([pa.array([number])], ["item"])))
            with pa.ipc.open_stream(line.recv()) as stream:
                stream.read_next_batch()
            took.append((time.perf_counter_ns() - began) // 1_000)
            time.sleep(0.0005)
    return took


def _bytes(batch: pa.RecordBatch) -> bytes:
    into = pa.BufferOutputStream()
    with pa.ipc.new_stream(into, batch.schema) as stream:
        stream.write_batch(batch)
    return into.getvalue().to_pybytes()
