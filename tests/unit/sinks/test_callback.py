"""The sink that calls a function."""

import pytest

import tidemill as tm
from tidemill.errors import PipelineError
from tidemill.ports import Gathering, Sink


def test_it_gathers_and_does_not_commit():
    sink: Gathering = tm.sinks.Callback(print)
    assert isinstance(sink, Gathering)
    assert not isinstance(sink, Sink)
    assert repr(sink) == "<Callback of print>"


def test_the_function_is_called_with_each_row_in_order():
    rows: list[dict] = []
    sink = tm.sinks.Callback(rows.append)
    given = {"n": 1}
    sink.extend([given, {"n": 2}])
    sink.extend(iter([{"n": 3}]))
    sink.extend([])
    given["n"] = 9
    assert rows == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_or_with_lists_of_rows_that_are_never_empty():
    batches: list[list[dict]] = []
    sink = tm.sinks.Callback(batches.append, batches=True)
    given = {"n": 1}
    sink.extend(iter([given, {"n": 2}]))
    sink.extend([])
    sink.extend([{"n": 3}])
    given["n"] = 9
    assert batches == [[{"n": 1}, {"n": 2}], [{"n": 3}]]


@pytest.mark.parametrize("batches", [False, True])
def test_what_the_function_raises_is_raised(batches):
    called = []

    def fail(given):
        called.append(given)
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        tm.sinks.Callback(fail, batches=batches).extend([{"n": 1}, {"n": 2}])
    assert len(called) == 1


@pytest.mark.parametrize(("batches", "of", "given"), [(False, "a row", 5), (True, "a list of rows", 5)])
def test_what_cannot_be_called_is_refused(batches, of, given):
    with pytest.raises(
        PipelineError,
        match=rf"^The Callback declared at test_callback.py:\d+ can't call 5. Give it a function of {of}\.",
    ):
        tm.sinks.Callback(given, batches=batches)


def test_a_pipeline_takes_it():
    pipeline = tm.Pipeline("through")
    pipeline.source("words", tm.sources.Rows([("a",)], "word string"))
    pipeline.sink("words", tm.sinks.Callback(print))
    assert len(pipeline.graph().of_kind("sink")) == 1
