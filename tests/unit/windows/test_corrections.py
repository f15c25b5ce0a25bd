"""What leaves more than once: early results, late records, retractions; and what is too late for all of that."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidemill as tm
from tests.unit.windows.driving import asked, made_rows, plain, source
from tidemill.core.ids import BEGINNING, Micros
from tidemill.testing.inputs import batch_of

SEEDS = st.integers(0, 2**32)
SPANS = [tm.tumbling(20), tm.sliding(20, every=5), tm.sliding(20, every=8)]
AGGREGATES = {"n": "count", "total": ("sum", "n"), "least": ("min", "s"), "own": tm.fold(0, lambda v, _: v + 1, "long")}


def windows_of(span, at):
    last = at // span.every * span.every
    return [start for start in range(last, last - span.size, -span.every) if start + span.size > at]


def live(span, rows, seed, **options):
    """Feeds rows in any order with a mark that leaves many behind; also says what each window should have taken."""
    chance = random.Random(seed)
    pipeline = tm.Pipeline("test")
    made = source(pipeline).key_by("k").window(span, **options).aggregate(**AGGREGATES)
    made.to(tm.sinks.Collect())
    stage = tm.testing.Stage(pipeline)
    lateness = options.get("allowed_lateness", 0)
    mark, taken, late = BEGINNING, [], []
    while rows:
        many = chance.randint(1, 6)
        now, rows = rows[:many], rows[many:]
        stage.send_batch("rows", *batch_of(stage.graph, "rows", now, Micros(0)))
        for row in now:
            open_ = [start for start in windows_of(span, row["ts"]) if start + span.size + lateness > mark]
            taken += [row | {"window_start": start} for start in open_]
            late += [] if open_ else [row]
        if chance.random() < 0.6:
            mark = Micros(max(mark, chance.choice([row["ts"] for row in now])))
            stage.advance_watermark(mark)
    return stage, made.label, taken, late


def expected(taken):
    found: dict = {}
    for row in taken:
        found.setdefault((row["k"], row["window_start"]), []).append(row)
    return {
        key: (
            len(rows),
            sum(row["n"] for row in rows if row["n"] is not None) if any(r["n"] is not None for r in rows) else None,
            min((row["s"] for row in rows if row["s"] is not None), key=str.encode, default=None),
            len(rows),
        )
        for key, rows in found.items()
    }


def window_and_result(row):
    return (row["k"], plain(row["window_start"])), (row["n"], row["total"], row["least"], row["own"])


@settings(deadline=None, max_examples=80)
@given(SEEDS, st.sampled_from(SPANS), st.sampled_from([0, 7, 40]), st.sampled_from([None, 3, 15]), st.booleans())
def test_the_last_result_of_a_window_is_what_it_took(seed, span, lateness, early, two_phase):
    rows = made_rows(seed, 60, 60)
    options = {"allowed_lateness": lateness, "early": early, "two_phase": two_phase}
    stage, label, taken, late = live(span, rows, seed, **options)
    found = stage.finish()[label]
    assert dict(map(window_and_result, found)) == expected(taken)
    assert stage.late(label) == len(late)
    assert all(row.timestamp == plain(row["window_end"]) - 1 for row in found)
    if lateness == 0 and early is None:
        assert len(found) == len(expected(taken)), "each result leaves once"


@settings(deadline=None, max_examples=80)
@given(SEEDS, st.sampled_from(SPANS), st.sampled_from([(0, 3), (7, None), (40, 15)]), st.booleans())
def test_a_retraction_takes_back_what_left_before_and_stands_before_the_new_result(seed, span, options, two_phase):
    lateness, early = options
    rows = made_rows(seed, 60, 60)
    given_options = {"allowed_lateness": lateness, "early": early, "retract": True, "two_phase": two_phase}
    stage, label, taken, _ = live(span, rows, seed, **given_options)
    shown: dict = {}
    for row in stage.finish()[label]:
        window, result = window_and_result(row)
        if row["change"] == "-":
            assert shown.pop(window) == result
        else:
            assert row["change"] == "+"
            assert window not in shown
            shown[window] = result
    assert shown == expected(taken)


@settings(deadline=None, max_examples=40)
@given(SEEDS, st.sampled_from(SPANS), st.sampled_from([0, 7]))
def test_late_records_go_to_their_own_stream_as_they_came(seed, span, lateness):
    rows = made_rows(seed, 60, 60)
    stage, label, taken, late = live(span, rows, seed, allowed_lateness=lateness, late="too-late")
    found = stage.finish()
    assert dict(map(window_and_result, found[label])) == expected(taken)
    diverted = Counter(tuple(map(plain, row.values())) for row in found["too-late"])
    assert diverted == Counter(tuple(map(plain, row.values())) for row in late)
    assert all(row.timestamp == row["ts"] for row in found["too-late"])
    assert stage.late(label) == len(late)


def sent(stage, *given_rows):
    stage.send("rows", *({"k": k, "n": n, "ts": ts} for k, n, ts in given_rows))


def sums(span, **options):
    pipeline = tm.Pipeline("test")
    made = source(pipeline).key_by("k").window(span, **options).aggregate(total=("sum", "n"))
    made.to(tm.sinks.Collect())
    stage = tm.testing.Stage(pipeline)
    return stage, stage.outputs[made.label], made.label


def told(outputs):
    return [(row["k"], row.get("change"), plain(row["window_start"]), row["total"]) for row in outputs]


def test_early_results_leave_as_event_time_goes_on_if_something_has_changed():
    stage, outputs, _ = sums(tm.tumbling(100), early=10)
    stage.advance_watermark(0)
    sent(stage, ("a", 1, 5))
    stage.advance_watermark(9)
    assert told(outputs) == []
    stage.advance_watermark(10)
    assert told(outputs) == [("a", None, 0, 1)]
    stage.advance_watermark(95)
    sent(stage, ("a", 2, 97))
    assert len(outputs) == 1
    stage.advance_watermark(100)
    assert told(outputs)[1:] == [("a", None, 0, 3)]
    stage.finish()
    assert len(outputs) == 2


def test_a_late_record_corrects_the_result_at_once_and_then_is_late():
    stage, outputs, label = sums(tm.tumbling(10), allowed_lateness=20, retract=True)
    sent(stage, ("a", 1, 5), ("b", 7, 5))
    stage.advance_watermark(10)
    assert told(outputs) == [("a", "+", 0, 1), ("b", "+", 0, 7)]
    sent(stage, ("a", 2, 6), ("c", 9, 6))
    assert told(outputs)[2:] == [("a", "-", 0, 1), ("a", "+", 0, 3), ("c", "+", 0, 9)]
    stage.advance_watermark(30)
    sent(stage, ("a", 4, 9))
    assert len(outputs) == 5
    assert stage.late(label) == 1
    assert len(stage.state(label, "a")) == 0, "nothing is kept of what is over"


def test_a_record_that_an_open_session_reaches_is_not_late():
    stage, outputs, label = sums(tm.session(10))
    sent(stage, ("a", 1, 0), ("a", 2, 8), ("b", 5, 0))
    stage.advance_watermark(12)
    assert told(outputs) == [("b", None, 0, 5)]
    sent(stage, ("a", 4, 1), ("b", 6, 1), ("c", 6, 1))
    assert stage.late(label) == 2
    stage.finish()
    assert told(outputs)[1:] == [("a", None, 0, 7)]


def test_what_is_open_is_all_that_is_kept():
    stage, _, label = sums(tm.tumbling(10))
    for moment in range(0, 3_000, 10):
        sent(stage, *((key, 1, moment + 3) for key in "abcd"))
        stage.advance_watermark(moment + 5)
        assert len(stage.state(label, None)) <= 8


@pytest.mark.parametrize("two_phase", [True, False])
def test_results_are_never_late_for_the_next_window(two_phase):
    pipeline = tm.Pipeline("test")
    first = source(pipeline).key_by("k").window(tm.tumbling(10), two_phase=two_phase).aggregate(n="count")
    second = first.key_by("k").window(tm.tumbling(50), two_phase=two_phase).aggregate(total=("sum", "n"), of="count")
    second.to(tm.sinks.Collect())
    rows = made_rows(3, 200, 300)
    found = tm.testing.replay(pipeline, {"rows": rows})[second.label]
    theirs = asked(
        """SELECT k, count(*) AS total, count(DISTINCT floor(ts / 10.0)) AS of, (floor(ts / 50.0) * 50)::BIGINT AS start
        FROM events GROUP BY k, start""",
        events=rows,
    )
    assert Counter((row["k"], plain(row["window_start"]), row["total"], row["of"]) for row in found) == Counter(
        (row["k"], row["start"], row["total"], row["of"]) for row in theirs
    )


def sessions_of(rows, gap):
    found: list = []
    for key, at, n in sorted(rows, key=lambda row: (str(row[0]), row[1])):
        if found and found[-1][0] == key and at - found[-1][2] < gap:
            found[-1][2] = at
            found[-1][3] += n
        else:
            found.append([key, at, at, n])
    return Counter((key, first, last + gap, n) for key, first, last, n in found)


@settings(deadline=None, max_examples=150)
@given(SEEDS, st.sampled_from([(0, 3), (7, None), (40, 15), (400, 2), (400, None)]), st.booleans(), st.integers(3, 12))
def test_sessions_that_grow_take_back_what_they_were(seed, options, two_phase, gap):
    lateness, early = options
    chance = random.Random(seed)
    pipeline = tm.Pipeline("test")
    begun = source(pipeline).key_by("k")
    made = begun.window(
        tm.session(gap), allowed_lateness=lateness, early=early, retract=True, two_phase=two_phase
    ).aggregate(n="count", least=("min", "s"))
    made.to(tm.sinks.Collect())
    stage = tm.testing.Stage(pipeline)
    outputs, mark = stage.outputs[made.label], BEGINNING
    taken: list = []
    for row in made_rows(seed, 60, 60):
        before = stage.late(made.label)
        stage.send_batch("rows", *batch_of(stage.graph, "rows", [row], Micros(0)))
        is_late = stage.late(made.label) > before
        reached = [at for key, at, _ in taken if key == row["k"] and abs(at - row["ts"]) < gap]
        if row["ts"] + gap + lateness > mark:
            assert not is_late
        elif not reached:
            assert is_late
        taken += [] if is_late else [(row["k"], row["ts"], 1)]
        if chance.random() < 0.4:
            mark = Micros(max(mark, row["ts"] + chance.randint(-10, 5)))
            stage.advance_watermark(mark)
    shown: Counter = Counter()
    stage.finish()
    for row in outputs:
        session = (row["k"], plain(row["window_start"]), plain(row["window_end"]), row["n"])
        assert row.timestamp == session[2] - 1
        if row["change"] == "-":
            assert shown[session] == 1
            shown[session] -= 1
        else:
            shown[session] += 1
    assert sum(n for (*_, n), count in shown.items() for _ in range(count)) == len(taken)
    if lateness == 400:  # so long that nothing was over
        assert +shown == sessions_of(taken, gap)


def test_two_sessions_become_one():
    stage, outputs, _ = sums(tm.session(10), allowed_lateness=100, retract=True)
    sent(stage, ("a", 1, 0), ("a", 2, 15))
    stage.advance_watermark(30)
    assert told(outputs) == [("a", "+", 0, 1), ("a", "+", 15, 2)]
    sent(stage, ("a", 4, 7))
    assert told(outputs)[2:] == [("a", "-", 0, 1), ("a", "-", 15, 2), ("a", "+", 0, 7)]
    stage.finish()
    assert len(outputs) == 5
