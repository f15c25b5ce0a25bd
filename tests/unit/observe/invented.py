"""Progress of a run that never was."""

from __future__ import annotations

from tidemill.observe.progress import NodeProgress, Progress, WorkerProgress

BEGAN = 1_700_000_000_000_000


def node(name="words", kind="source", came=0, left=0, **more):
    facts = {"shards": 4, "late": 0, "malformed": 0, "queued": 0, "watermark": None, "lag": None, **more}
    return NodeProgress(name=name, kind=kind, records_in=came, records_out=left, **facts)


def worker(number=0, incarnation=1, *, cpu=0.0, host="10.0.0.4"):
    return WorkerProgress(number, incarnation, host, 4711 + number, 8, 150 * 2**20, cpu)


def progress(seconds, status="running", *, nodes=None, workers=(), refused=0, pipeline="word-count"):
    """Without nodes of its own: three, through which 1,000 records go in a second."""
    if nodes is None:
        count = round(seconds * 1000)
        nodes = (
            node("words", "source", count, count, watermark=BEGAN, lag=0.02),
            node("count", "computation", count, 2 * count, watermark=BEGAN, lag=0.25, queued=40),
            node("counts", "sink", 2 * count, 0),
        )
    at = BEGAN + round(seconds * 1e6)
    return Progress(pipeline, "retrace", status, at, seconds, tuple(nodes), tuple(workers), refused)
