"""A run as a picture for a terminal: a line that says what it is and how it is, its nodes, its workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidemill.observe.progress import ENDED, NodeProgress, Progress, Status, WorkerProgress
from tidemill.observe.rates import Rates
from tidemill.observe.summary import handled
from tidemill.observe.wording import UNKNOWN, clock, counted, one_line, seconds, size, whole

_COLOURS: Final[Mapping[Status, str]] = {
    "starting": "yellow",
    "running": "green",
    "stopping": "yellow",
    "finished": "bold green",
    "stopped": "bold",
    "failed": "bold red",
}


def panel(progress: Progress, rates: Rates | None) -> RenderableType:
    parts: list[RenderableType] = [_headline(progress)]
    if progress.nodes:
        parts += ["", _nodes(progress, rates)]
    if progress.workers:
        parts += ["", _workers(progress, rates)]
    return Group(*parts)


def _headline(progress: Progress) -> Text:
    said = Text(no_wrap=True, overflow="ellipsis")
    said.append(one_line(progress.pipeline), "bold")
    said.append(f"  {progress.status}", _COLOURS.get(progress.status, ""))
    said.append(f" {'after' if progress.status in ENDED else 'for'} {clock(progress.seconds)}")
    said.append(f"  recovery {one_line(progress.recovery)}", "dim")
    if not progress.workers and progress.status not in ENDED:
        said.append("  no workers yet", "yellow")
    if progress.refused:
        said.append(f"  {counted(progress.refused, 'message')} refused", "yellow")
    return said


def _nodes(progress: Progress, rates: Rates | None) -> Table:
    late = any(node.late for node in progress.nodes)
    malformed = any(node.malformed for node in progress.nodes)
    table = _table("node", "", numbers=["in/s", "out/s", "total", "backlog", "lag"])
    if late:
        _number_column(table, "late")
    if malformed:
        _number_column(table, "malformed")
    for node in progress.nodes:
        cells = [Text(one_line(node.name)), Text(node.kind, "dim"), *map(Text, _numbers(node, rates))]
        if late:
            cells.append(_warning(node.late))
        if malformed:
            cells.append(_warning(node.malformed))
        table.add_row(*cells)
    return table


def _numbers(node: NodeProgress, rates: Rates | None) -> list[str]:
    came, left = (UNKNOWN, UNKNOWN) if rates is None else map(whole, rates.nodes[node.name])
    return [came, left, whole(handled(node)), whole(node.queued), seconds(node.lag)]


def _workers(progress: Progress, rates: Rates | None) -> Table:
    table = _table("worker", "host", numbers=["pid", "shards", "memory", "CPU"])
    for worker in progress.workers:
        table.add_row(
            f"worker{worker.id}.{worker.incarnation}",
            Text(one_line(worker.host)),
            str(worker.pid),
            str(worker.shards),
            size(worker.memory),
            _cpu(worker, rates),
        )
    return table


def _cpu(worker: WorkerProgress, rates: Rates | None) -> str:
    used = None if rates is None else rates.cpu.get((worker.id, worker.incarnation))
    return UNKNOWN if used is None else f"{used:.0%}"


def _warning(count: int) -> Text:
    return Text(whole(count), "yellow" if count else "dim")


def _table(*words: str, numbers: list[str]) -> Table:
    """Where the terminal is narrow, words are shortened before numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in words:
        table.add_column(heading, no_wrap=True, overflow="ellipsis", max_width=40)
    for heading in numbers:
        _number_column(table, heading)
    return table


def _number_column(table: Table, heading: str) -> None:
    table.add_column(heading, justify="right", no_wrap=True, overflow="ellipsis", min_width=7)
