"""Tables as a run asks for them; what Spark makes of it, see tests/spark."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

import tidemill as tm
from tests.unit.sources.test_table import dataframe
from tidemill.errors import RunError, StorageError
from tidemill.hosts.spark import tables


def graph_of(source: Any, **sinks: Any) -> Any:
    pipeline = tm.Pipeline("p")
    pipeline.source("rows", source)
    for sink in sinks.values():
        pipeline.sink("rows", sink)
    return pipeline.graph()


def session(master: str = "local[2]", *, stopped: bool = False) -> Any:
    conf = SimpleNamespace(get=lambda *_: master)
    return SimpleNamespace(conf=conf, sparkContext=SimpleNamespace(_jsc=None if stopped else object()))


def test_a_session_that_ended_with_its_run_has_no_tables():
    graph = graph_of(tm.sources.Rows([], "n long"), one=tm.sinks.Collect())
    with pytest.raises(RunError, match=r"was its own, and ended with it.*tm\.run\(pipeline, spark\)"):
        tables.table_of(graph, session(stopped=True), "rows")


def test_a_stream_that_is_no_table():
    graph = graph_of(tm.sources.Rows([], "n long"), one=tm.sinks.Callback(print))
    with pytest.raises(RunError, match=r"'p' has no table 'rows': .*Tables are: none"):
        tables.table_of(graph, session(), "rows")


def test_a_dataframe_on_several_machines_needs_a_folder_that_all_share():
    graph = graph_of(tm.sources.Table(dataframe()), one=tm.sinks.Collect())
    with contextlib.ExitStack() as undo, pytest.raises(StorageError, match=r"'rows' .*test_tables.* is a DataFrame"):
        tables.evaluated(graph, session("yarn"), 2, None, undo)


def test_a_pipeline_without_dataframes_is_left_as_it_is():
    graph = graph_of(tm.sources.Rows([], "n long"), one=tm.sinks.Collect())
    with contextlib.ExitStack() as undo:
        assert tables.evaluated(graph, session("yarn"), 2, None, undo) is graph
