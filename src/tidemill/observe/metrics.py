"""Metrics for Prometheus: the latest progress, as numbers that a server is asked for.

A counter must not fall, or Prometheus takes it for one that began again at zero and adds all of it a second time. The
counts of a run do fall: what a lost worker had counted is gone. So a fall is made up for, and the counter goes on.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from socketserver import TCPServer
from threading import Thread
from typing import Any, Final, get_args

from prometheus_client import CollectorRegistry, MetricsHandler
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from tidemill.errors import RunError
from tidemill.observe.progress import NodeProgress, Progress, Status, WorkerProgress

_POLL: Final = 0.05  # seconds, within which closing is noticed

_NODE: Final = ("pipeline", "node")
_WORKER: Final = ("worker", "host")

_NODE_COUNTS: Final[dict[str, tuple[str, Callable[[NodeProgress], int]]]] = {
    "tidemill_records_in": ("Records that came in.", lambda node: node.records_in),
    "tidemill_records_out": ("Records that went out.", lambda node: node.records_out),
    "tidemill_late": ("Records that came after the watermark had passed them.", lambda node: node.late),
    "tidemill_malformed": ("Records that could not be read.", lambda node: node.malformed),
}

_NODE_STATES: Final[dict[str, tuple[str, Callable[[NodeProgress], float | None]]]] = {
    "tidemill_queued": ("Records that wait to be handled or to leave.", lambda node: node.queued),
    "tidemill_watermark_seconds": (
        "The output watermark, in seconds since the epoch; absent while it is unknown.",
        lambda node: None if node.watermark is None else node.watermark / 1e6,
    ),
    "tidemill_watermark_lag_seconds": (
        "How far the watermark is behind the wall clock; absent while it is unknown.",
        lambda node: node.lag,
    ),
}


class MetricsServer:
    """Serves `/metrics` over HTTP, from the latest progress it was shown. Port 0 takes a free one: see `port`."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._latest = _Latest()
        registry = CollectorRegistry()
        registry.register(self._latest)
        try:
            self._server = _Server(port, host, registry)
        except (OSError, OverflowError) as error:  # OverflowError is what a number that is no port raises
            raise RunError(
                f"Metrics can't be served on port {port} of {host}: {error}. "
                "Give another port, or 0 for any that is free."
            ) from error
        self.port: int = self._server.server_address[1]
        self._thread = Thread(target=self._server.serve_forever, args=(_POLL,), name="tidemill metrics", daemon=True)
        self._thread.start()

    def show(self, progress: Progress) -> None:
        self._latest.show(progress)

    def close(self) -> None:
        """Frees the port. More than once does no harm."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    def __init__(self, port: int, host: str, registry: CollectorRegistry) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), MetricsHandler.factory(registry))

    def server_bind(self) -> None:
        """As the base's, but asks no name server what this machine is called: that may take many seconds."""
        TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever asked and did not wait for the answer is no matter for the terminal."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Rising:
    """Counters by name, each made up for what it fell."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, ...], int] = {}
        self._fallen: dict[tuple[str, ...], int] = {}

    def see(self, name: tuple[str, ...], value: int) -> None:
        last = self._last.get(name, 0)
        if value < last:
            self._fallen[name] = self._fallen.get(name, 0) + last - value
        self._last[name] = value

    def __getitem__(self, name: tuple[str, ...]) -> int:
        return self._last[name] + self._fallen.get(name, 0)


class _Latest:
    """What is told when Prometheus asks. Asking happens in threads of the server's own."""

    def __init__(self) -> None:
        self._metrics: list[Metric] = []
        self._counts = _Rising()

    def show(self, progress: Progress) -> None:
        counts = self._counts
        for node in progress.nodes:
            for name, (_, of) in _NODE_COUNTS.items():
                counts.see((name, progress.pipeline, node.name), of(node))
        counts.see(("tidemill_refused", progress.pipeline), progress.refused)
        self._metrics = [*_of_nodes(progress, counts), *_of_workers(progress), *_of_run(progress, counts)]

    def describe(self) -> list[Metric]:
        """The registry asks for names when it is given a collector; there are none before the first progress."""
        return []

    def collect(self) -> Iterator[Metric]:
        yield from self._metrics


def _of_nodes(progress: Progress, counts: _Rising) -> Iterator[Metric]:
    for name, (about, _) in _NODE_COUNTS.items():
        counter = CounterMetricFamily(name, about, labels=_NODE)
        for node in progress.nodes:
            counter.add_metric([progress.pipeline, node.name], counts[name, progress.pipeline, node.name])
        yield counter
    for name, (about, of) in _NODE_STATES.items():
        gauge = GaugeMetricFamily(name, about, labels=_NODE)
        for node in progress.nodes:
            value = of(node)
            if value is not None:
                gauge.add_metric([progress.pipeline, node.name], value)
        yield gauge


def _of_workers(progress: Progress) -> Iterator[Metric]:
    memory = GaugeMetricFamily("tidemill_worker_memory_bytes", "Resident memory of the process.", labels=_WORKER)
    cpu = CounterMetricFamily("tidemill_worker_cpu_seconds", "CPU time since the process began.", labels=_WORKER)
    for labels, worker in _newest(progress).items():
        memory.add_metric(labels, worker.memory)
        cpu.add_metric(labels, worker.cpu_seconds)
    yield memory
    yield cpu


def _newest(progress: Progress) -> dict[tuple[str, str], WorkerProgress]:
    """By labels. Of two processes in one place on one host, only the newer: Prometheus refuses a sample said twice."""
    ordered = sorted(progress.workers, key=lambda worker: (worker.id, worker.incarnation))
    return {(f"worker{worker.id}", worker.host): worker for worker in ordered}


def _of_run(progress: Progress, counts: _Rising) -> Iterator[Metric]:
    refused = CounterMetricFamily("tidemill_refused", "Messages that were not listened to.", labels=["pipeline"])
    refused.add_metric([progress.pipeline], counts["tidemill_refused", progress.pipeline])
    yield refused
    status = GaugeMetricFamily("tidemill_run_status", "1 for the run's status, else 0.", labels=["pipeline", "status"])
    for each in get_args(Status):
        status.add_metric([progress.pipeline, each], float(each == progress.status))
    yield status
