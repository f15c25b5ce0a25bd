"""A run in one line, for logs: "run word-count: running, 2 workers, 12,345 records/s in, lag 0.02 s"."""

from __future__ import annotations

from tidemill.observe.progress import ENDED, NodeProgress, Progress
from tidemill.observe.rates import Rates
from tidemill.observe.wording import clock, counted, one_line, seconds, whole


def summary(progress: Progress, rates: Rates | None) -> str:
    ended = progress.status in ENDED
    said = _ended(progress) if ended else _going_on(progress, rates)
    for count, what in (
        (sum(node.late for node in progress.nodes), "late"),
        (sum(node.malformed for node in progress.nodes), "malformed"),
        (progress.refused, "refused"),
    ):
        if count:
            said.append(f"{count:,} {what}")
    status = f"{progress.status} after {clock(progress.seconds)}" if ended else progress.status
    return one_line(f"run {progress.pipeline}: {', '.join([status, *said])}")


def handled(node: NodeProgress) -> int:
    """How many records a node has dealt with. A source lets out what it reads, whatever it counts as coming in."""
    return max(node.records_in, node.records_out) if node.kind == "source" else node.records_in


def _going_on(progress: Progress, rates: Rates | None) -> list[str]:
    said = [counted(len(progress.workers), "worker")]
    if rates is not None:
        fed = sum(max(rates.nodes[node.name]) for node in progress.nodes if node.kind == "source")
        said.append(f"{whole(fed)} records/s in")
    lags = [node.lag for node in progress.nodes if node.lag is not None]
    if lags:
        said.append(f"lag {seconds(max(lags))}")
    return said


def _ended(progress: Progress) -> list[str]:
    came = sum(handled(node) for node in progress.nodes if node.kind == "source")
    left = sum(handled(node) for node in progress.nodes if node.kind == "sink")
    return [f"{counted(came, 'record')} in", f"{whole(left)} out"]
