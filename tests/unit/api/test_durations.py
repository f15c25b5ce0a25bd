"""Durations are read exactly, or refused with the way to write them."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.api.durations import duration
from tidemill.errors import PipelineError


@pytest.mark.parametrize(
    ("written", "micros"),
    [
        ("3s", 3_000_000),
        ("500ms", 500_000),
        ("2 min", 120_000_000),
        ("250us", 250),
        ("1.5 Seconds", 1_500_000),
        ("1 minute 30 seconds", 90_000_000),
        ("1h30m", 5_400_000_000),
        (" 2 days ", 172_800_000_000),
        ("1 week", 604_800_000_000),
        ("0s", 0),
        (timedelta(seconds=2, microseconds=1), 2_000_001),
        (7, 7),
    ],
)
def test_what_people_write(written, micros):
    assert duration(written) == micros


@given(st.timedeltas(timedelta(0), timedelta(days=10**8)))
def test_a_timedelta_is_exact(length):
    assert timedelta(microseconds=duration(length)) == length


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("", "'' at position 0"),
        ("s", "'s' at position 0"),
        ("3", "'3' at position 0"),
        ("3s, 2ms", "'3s, 2ms' at position 2"),
        ("-3s", "'-3s' at position 0"),
        ("3 fortnights", "the unit 'fortnights'; units are us, ms, s"),
        ("0.5us", "no whole number of microseconds"),
        (-1, "must not be negative"),
        (timedelta(seconds=-1), "must not be negative"),
        (2**63, "nor longer than time lasts"),
        (True, "True"),
        (3.0, "3.0"),
        (None, "None"),
    ],
)
def test_what_is_refused(written, said):
    with pytest.raises(PipelineError) as refused:
        duration(written, "The delay")
    assert said in str(refused.value)
    assert str(refused.value).startswith("The delay")
    assert 'Write it as "3s", "500ms" or "2 min"' in str(refused.value)
