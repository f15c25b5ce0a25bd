"""Keys and state come back from their bytes as what they were."""

import datetime as dt
import math
from dataclasses import dataclass, field
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.codec import StateCodec, decode_key, encode_key
from tidemill.core.keys import normal_key

ZONES = st.sampled_from([dt.timezone.utc, dt.timezone(dt.timedelta(hours=-5, minutes=30))])

SINGLE = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(width=64)
    | st.text()
    | st.binary()
    | st.dates()
    | st.datetimes()
    | st.datetimes(timezones=ZONES)
    | st.decimals(allow_nan=False, allow_infinity=False)
)
KEYS = st.recursive(SINGLE, lambda parts: st.lists(parts, max_size=3).map(tuple), max_leaves=6)


@given(KEYS)
def test_a_key_finds_its_row_again(key):
    rows = {normal_key(key): "its row"}
    again = decode_key(encode_key(normal_key(key)))
    assert rows[again] == "its row"
    assert type(again) is type(key)


@given(KEYS, KEYS)
def test_different_keys_have_different_bytes(one, other):
    if normal_key(one) != normal_key(other):
        assert encode_key(normal_key(one)) != encode_key(normal_key(other))


@pytest.mark.parametrize("key", [math.nan, (math.nan, "a"), -0.0, ((-0.0,),)])
def test_odd_numbers_are_found_also_when_they_were_decoded(key):
    rows = {decode_key(encode_key(key)): "its row"}
    assert rows[decode_key(encode_key(key))] == "its row"
    assert rows[normal_key(key)] == "its row"


def test_a_date_is_no_datetime_and_a_zone_is_kept():
    assert type(decode_key(encode_key(dt.date(2024, 5, 6)))) is dt.date
    naive = dt.datetime(2024, 5, 6, 7, 8)  # noqa: DTZ001 - Spark has such times
    assert decode_key(encode_key(naive)).tzinfo is None
    aware = dt.datetime(2024, 5, 6, 7, 8, tzinfo=dt.timezone.utc)
    assert decode_key(encode_key(aware)) == aware


def test_decimals_keep_every_digit():
    key = Decimal("123456789012345678901234567890.123456789")
    assert decode_key(encode_key(key)) == key


def test_what_is_no_key_is_refused():
    with pytest.raises(TypeError, match="a key of type set can't be encoded"):
        encode_key({1, 2})


@dataclass
class Basket:
    items: list[tuple[str, int]] = field(default_factory=list)
    at: dt.datetime | None = None
    owed: Decimal = Decimal(0)
    by_number: dict[int, str] = field(default_factory=dict)


def test_state_comes_back_by_its_type():
    basket = Basket([("a", 1)], dt.datetime(2024, 1, 2, tzinfo=dt.timezone.utc), Decimal("1.50"), {7: "seven"})
    codec = StateCodec(Basket)
    again = codec.decode(codec.encode(basket))
    assert again == basket
    assert type(again.items[0]) is tuple


@given(
    st.dictionaries(st.integers(), st.lists(st.floats(allow_nan=False))).filter(
        lambda d: all(-(2**63) <= k < 2**63 for k in d)
    )
)
def test_plain_types_are_state_too(state):
    codec = StateCodec(dict[int, list[float]])
    assert codec.decode(codec.encode(state)) == state
