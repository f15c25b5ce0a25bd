"""Metrics as Prometheus sees them: names, labels, counters that never fall; a port in use, and one that is freed."""

from __future__ import annotations

import socket
import struct
import threading
import urllib.request

import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.observe.invented import BEGAN, node, progress, worker
from tidemill.errors import RunError
from tidemill.observe.metrics import MetricsServer


@pytest.fixture
def server():
    made = MetricsServer(0)
    yield made
    made.close()


def asked(server):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
        return answer.read().decode()


def samples(server):
    """By name and labels: pipeline and node, status and pipeline, worker and host."""
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels, reverse=True))): sample.value
        for family in text_string_to_metric_families(asked(server))
        for sample in family.samples
    }


def test_nothing_before_the_first_progress(server):
    assert asked(server) == ""


def test_a_run(server):
    nodes = [
        node("words", came=10, left=9, malformed=1),
        node("count", "computation", 9, 18, late=2, queued=3, watermark=BEGAN, lag=0.5),
    ]
    server.show(progress(1, nodes=nodes, workers=[worker(2, cpu=1.5)], refused=4))
    told = samples(server)
    statuses = {name[1]: told.pop(name) for name in list(told) if name[0] == "tidemill_run_status"}
    assert statuses == {"starting": 0, "running": 1, "stopping": 0, "finished": 0, "stopped": 0, "failed": 0}
    words, count = ("word-count", "words"), ("word-count", "count")
    assert told == {
        ("tidemill_records_in_total", *words): 10,
        ("tidemill_records_in_total", *count): 9,
        ("tidemill_records_out_total", *words): 9,
        ("tidemill_records_out_total", *count): 18,
        ("tidemill_late_total", *words): 0,
        ("tidemill_late_total", *count): 2,
        ("tidemill_malformed_total", *words): 1,
        ("tidemill_malformed_total", *count): 0,
        ("tidemill_queued", *words): 0,
        ("tidemill_queued", *count): 3,
        ("tidemill_watermark_seconds", *count): BEGAN / 1e6,
        ("tidemill_watermark_lag_seconds", *count): 0.5,
        ("tidemill_worker_memory_bytes", "worker2", "10.0.0.4"): 150 * 2**20,
        ("tidemill_worker_cpu_seconds_total", "worker2", "10.0.0.4"): 1.5,
        ("tidemill_refused_total", "word-count"): 4,
    }


def test_the_labels_have_names(server):
    server.show(progress(1, workers=[worker()]))
    text = asked(server)
    assert 'tidemill_records_in_total{node="words",pipeline="word-count"} 1000.0' in text
    assert 'tidemill_worker_memory_bytes{host="10.0.0.4",worker="worker0"}' in text
    assert 'tidemill_run_status{pipeline="word-count",status="running"} 1.0' in text
    assert "# TYPE tidemill_records_in_total counter" in text


def test_the_latest_counts(server):
    server.show(progress(1))
    server.show(progress(2, "finished"))
    told = samples(server)
    assert told["tidemill_records_in_total", "word-count", "words"] == 2000
    assert told["tidemill_run_status", "finished", "word-count"] == 1


def test_a_counter_never_falls(server):
    totals = []
    for came in (100, 250, 30, 60, 10, 11):  # twice a worker is lost, and its count with it
        server.show(progress(1, nodes=[node(came=came)], refused=came))
        told = samples(server)
        totals.append(told["tidemill_records_in_total", "word-count", "words"])
        assert told["tidemill_refused_total", "word-count"] == totals[-1]
    assert totals == [100, 250, 250, 280, 280, 281]


def test_two_processes_in_one_place_are_told_once(server):
    server.show(progress(1, workers=[worker(0, 2, cpu=2), worker(0, 1, cpu=1), worker(0, 1, host="b", cpu=3)]))
    assert asked(server).count('tidemill_worker_cpu_seconds_total{host="10.0.0.4"') == 1
    assert samples(server)["tidemill_worker_cpu_seconds_total", "worker0", "10.0.0.4"] == 2


def test_names_are_escaped(server):
    server.show(progress(1, nodes=[], pipeline='a "b"\n\\c'))
    assert ("tidemill_refused_total", 'a "b"\n\\c') in samples(server)


def test_the_registry_of_all_is_left_alone(server):
    server.show(progress(1))
    assert [metric.name for metric in REGISTRY.collect() if metric.name.startswith("tidemill")] == []


def test_two_runs_have_a_server_each(server):
    other = MetricsServer(0)
    assert other.port != server.port
    other.close()


def test_a_port_in_use(server):
    with pytest.raises(RunError) as caught:
        MetricsServer(server.port)
    assert str(caught.value) == (
        f"Metrics can't be served on port {server.port} of 127.0.0.1: [Errno 98] Address already in use. "
        "Give another port, or 0 for any that is free."
    )


@pytest.mark.parametrize(("port", "host"), [(-1, "127.0.0.1"), (70_000, "127.0.0.1"), (0, "203.0.113.1")])
def test_a_place_that_can_not_be(port, host):
    with pytest.raises(RunError, match=f"^Metrics can't be served on port {port} of {host}: .* Give another port"):
        MetricsServer(port, host)


def test_who_does_not_wait_for_the_answer(server, capsys):
    server.show(progress(1))
    for _ in range(4):
        with socket.create_connection(("127.0.0.1", server.port)) as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            other.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
    assert asked(server)
    assert capsys.readouterr().err == ""


def test_another_address():
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        server = MetricsServer(0, "::1")
    except RunError:
        pytest.skip("no IPv6 here")
    with urllib.request.urlopen(f"http://[::1]:{server.port}/metrics") as answer:
        assert answer.status == 200
    server.close()


def test_closing_frees_the_port_at_once():
    server = MetricsServer(0)
    server.show(progress(1))
    asked(server)
    server.close()
    server.close()
    MetricsServer(server.port).close()
    with socket.socket() as other:
        assert other.connect_ex(("127.0.0.1", server.port)) != 0
    server.show(progress(2))
    assert "tidemill metrics" not in [thread.name for thread in threading.enumerate()]
