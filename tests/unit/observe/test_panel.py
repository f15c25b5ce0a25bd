"""The picture of a run: what is in it, and what is left out."""

from __future__ import annotations

import io

from rich.console import Console

from tests.unit.observe.invented import node, progress, worker
from tidemill.observe.panel import panel
from tidemill.observe.rates import Pace


def drawn(*shown, width=120):
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True)
    pace = Pace()
    pictures = [panel(each, pace.of(each)) for each in shown]
    console.print(pictures[-1])
    return [line.rstrip() for line in console.export_text().rstrip("\n").split("\n")]


def cells(lines):
    return [line.split() for line in lines]


def test_a_run():
    before = progress(59, workers=[worker(0, cpu=10.0)])
    lines = drawn(before, progress(61, workers=[worker(0, cpu=11.5), worker(1, 3, host="elsewhere")]))
    assert lines[0] == "word-count  running for 1:01  recovery retrace"
    assert cells(lines[2:6]) == [
        ["node", "in/s", "out/s", "total", "backlog", "lag"],
        ["words", "source", "1,000", "1,000", "61,000", "0", "0.02", "s"],
        ["count", "computation", "1,000", "2,000", "61,000", "40", "0.25", "s"],
        ["counts", "sink", "2,000", "0", "122,000", "0", "-"],
    ]
    assert cells(lines[7:]) == [
        ["worker", "host", "pid", "shards", "memory", "CPU"],
        ["worker0.1", "10.0.0.4", "4711", "8", "150", "MiB", "75%"],
        ["worker1.3", "elsewhere", "4712", "8", "150", "MiB", "-"],
    ]


def test_before_anything_is_known():
    assert drawn(progress(0, "starting", nodes=[])) == [
        "word-count  starting for 0:00  recovery retrace  no workers yet"
    ]


def test_speeds_are_unknown_at_first():
    assert cells(drawn(progress(5)))[3] == ["words", "source", "-", "-", "5,000", "0", "0.02", "s"]


def test_after_the_end():
    lines = drawn(progress(1), progress(2, "failed"))
    assert lines[0] == "word-count  failed after 0:02  recovery retrace"
    assert cells(lines)[3][2:5] == ["-", "-", "2,000"]


def test_late_and_malformed_have_columns_if_there_are_any():
    lines = cells(drawn(progress(0, nodes=[node(malformed=3), node("count", "computation")])))
    assert lines[2][-2:] == ["lag", "malformed"]
    assert (lines[3][-1], lines[4][-1]) == ("3", "0")
    lines = cells(drawn(progress(0, nodes=[node(), node("count", "computation", late=5)])))
    assert lines[2][-2:] == ["lag", "late"]


def test_refused_messages():
    assert drawn(progress(0, nodes=[], refused=12))[0].endswith("12 messages refused")


def test_names_are_no_markup():
    lines = drawn(progress(0, nodes=[node("[/red]:smile:")], workers=[worker(host="[b]\x1b[2J")], pipeline="[x]"))
    assert lines[0].startswith("[x]  running")
    assert lines[3].startswith("[/red]:smile:")
    assert "[b] [2J" in lines[-1]


def test_a_narrow_terminal():
    lines = drawn(progress(5, workers=[worker()]), width=50)
    assert all(len(line) <= 50 for line in lines)
    assert len(lines) == 9
