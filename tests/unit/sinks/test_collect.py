"""The sink that is a list."""

import tidemill as tm
from tidemill.ports import Gathering, Sink


def test_rows_are_gathered_as_dicts_of_their_own():
    sink = tm.sinks.Collect()
    given = {"n": 1}
    sink.extend([given])
    sink.extend(iter([{"n": 2}]))
    given["n"] = 9
    assert sink.rows == [{"n": 1}, {"n": 2}]
    assert repr(sink) == "<Collect of 2 rows>"


def test_it_gathers_and_does_not_commit():
    sink: Gathering = tm.sinks.Collect()
    assert isinstance(sink, Gathering)
    assert not isinstance(sink, Sink)
