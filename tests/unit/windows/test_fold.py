"""Folds: any aggregate of a window that a function computes."""

from collections import Counter

import pytest

import tidemill as tm
from tests.unit.windows.driving import made_rows, plain, source
from tidemill import errors

ROWS = [{"k": "a", "s": text, "ts": at} for text, at in (("x", 1), ("z", 12), ("y", 3), ("w", 15))]


def folded(fold, rows=ROWS, **options):
    pipeline = tm.Pipeline("test")
    made = source(pipeline).key_by("k").window(tm.tumbling(10), **options).aggregate(value=fold)
    made.to(tm.sinks.Collect())
    stage = tm.testing.Stage(pipeline)
    for row in rows:
        stage.send("rows", row)
    return [row["value"] for row in stage.finish()[made.label]]


def test_records_come_in_the_order_of_event_time():
    assert folded(tm.fold("", lambda text, record: text + record.s, "string")) == ["xy", "zw"]
    backwards = folded(tm.fold("", lambda text, record: text + record.s, "string"), rows=ROWS[::-1])
    assert backwards == ["xy", "zw"]


def test_a_record_is_what_computations_see():
    def fn(value, record):
        return [*value, record.timestamp, record["s"], record.n]

    assert folded(tm.fold([], lambda v, r: [*v, str(fn([], r))], "array<string>"), rows=ROWS[:1]) == [
        ["[1, 'x', None]"]
    ]


@pytest.mark.parametrize("init", [list, []])
def test_each_window_begins_with_its_own_value(init):
    def add(value, record):
        value.append(record.ts)
        return value

    assert folded(tm.fold(init, add, "array<long>")) == [[1, 3], [12, 15]]


@pytest.mark.parametrize("two_phase", [True, False, "auto"])
def test_merged_and_finished(two_phase):
    mean = tm.fold(
        (0, 0),
        lambda value, record: (value[0] + record.ts, value[1] + 1),
        "double",
        merge=lambda one, other: (one[0] + other[0], one[1] + other[1]),
        finish=lambda value: value[0] / value[1],
    )
    assert folded(mean, two_phase=two_phase) == [2.0, 13.5]


def test_without_merge_records_are_kept_and_with_it_values():
    pipeline = tm.Pipeline("test")
    begun = source(pipeline).key_by("k").window(tm.tumbling(10))
    begun.aggregate(kept=tm.fold(0, lambda v, _: v, "long")).to(tm.sinks.Collect())
    begun.aggregate(kept=tm.fold(0, lambda v, _: v, "long", merge=max)).to(tm.sinks.Collect())
    streams = {str(name): stream for name, stream in pipeline.graph().streams.items()}
    assert "rows-by-k-tumbling-10us-partials" not in streams
    assert streams["rows-by-k-tumbling-10us-2-partials"].schema.names[-1] == "kept_value"


def test_a_result_of_another_type():
    with pytest.raises(
        errors.DataError, match=r"A result of the fold declared at test_fold.py:\d+ does not fit: column"
    ):
        folded(tm.fold("", lambda text, record: text + record.s, "long"))


def test_a_function_that_raises():
    with pytest.raises(errors.UserCodeError, match="raised ZeroDivisionError"):
        folded(tm.fold(0, lambda value, _: value / 0, "long"))


def test_in_sessions_and_count_windows():
    for span, size in ((tm.session(5), None), (tm.count(4), 4)):
        pipeline = tm.Pipeline("test")
        made = source(pipeline).key_by("k").window(span).aggregate(n="count", ts=tm.fold(list, _add, "array<long>"))
        made.to(tm.sinks.Collect())
        rows = sorted(made_rows(5, 100, 60), key=lambda row: row["ts"])
        found = tm.testing.replay(pipeline, {"rows": rows})[made.label]
        assert all(len(row["ts"]) == row["n"] == (size or row["n"]) for row in found)
        if size is None:
            assert Counter((row["k"], at) for row in found for at in row["ts"]) == Counter(
                (r["k"], r["ts"]) for r in rows
            )
            assert all(row["ts"][0] == plain(row["window_start"]) for row in found)


def _add(value, record):
    return [*value, record.ts]
