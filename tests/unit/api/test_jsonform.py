"""Lines of JSON made columns: what fits, what does not, and how that is told."""

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.api.jsonform import JsonLines
from tidemill.api.schema import read_schema
from tidemill.core.ids import BEGINNING, LAST
from tidemill.errors import SchemaError

UTC = dt.timezone.utc


def read(schema, *lines, timestamp=None):
    given = [line if isinstance(line, bytes) else line.encode() for line in lines]
    found = JsonLines(read_schema(schema), timestamp, "it").read(given)
    found.batch.validate(full=True)
    assert found.batch.schema == read_schema(schema)
    assert len(found.times) == found.batch.num_rows
    return found


def value(type, text):
    found = read(f"n {type}", f'{{"n": {text}}}')
    assert found.problems == []
    return found.batch.column("n")[0].as_py()


def problem(type, text):
    found = read(f"n {type}", f'{{"n": {text}}}')
    assert found.batch.num_rows == 0
    ((place, why),) = found.problems
    assert place == 0
    return why


@pytest.mark.parametrize(
    ("type", "text", "found"),
    [
        ("boolean", "true", True),
        ("byte", "-128", -128),
        ("short", "32767", 32767),
        ("int", "-2147483648", -(2**31)),
        ("long", "9223372036854775807", 2**63 - 1),
        ("float", "0.5", 0.5),
        ("double", "1e300", 1e300),
        ("double", "5", 5.0),
        ("string", r'"\u00e9\n"', "é\n"),
        ("binary", '"aGk="', b"hi"),
        ("date", '"2020-02-29"', dt.date(2020, 2, 29)),
        ("timestamp", '"2020-02-29T12:00:00"', dt.datetime(2020, 2, 29, 12, tzinfo=UTC)),
        ("timestamp", '"2020-02-29T12:00:00.000001Z"', dt.datetime(2020, 2, 29, 12, 0, 0, 1, tzinfo=UTC)),
        ("timestamp", '"2020-02-29 12:00:00+02:00"', dt.datetime(2020, 2, 29, 10, tzinfo=UTC)),
        ("timestamp", "1000001", dt.datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC)),
        ("timestamp_ntz", '"2020-02-29T12:00:00+02:00"', dt.datetime(2020, 2, 29, 10)),  # noqa: DTZ001
        ("decimal(5, 2)", "1.25", Decimal("1.25")),
        ("decimal(38, 30)", '"1.000000000000000000000000000001"', Decimal("1.000000000000000000000000000001")),
        ("decimal(38, 30)", "1.000000000000000000000000000001", Decimal("1.000000000000000000000000000001")),
        ("decimal(5, 2)", "7", Decimal("7.00")),
        ("array<int>", "[1, null]", [1, None]),
        ("map<string, int>", '{"a": 1, "b": null}', [("a", 1), ("b", None)]),
        ("map<int, string>", '{"7": "a"}', [(7, "a")]),
        ("struct<a: int, b: string>", '{"a": 1, "c": 2}', {"a": 1, "b": None}),
        (
            "array<struct<a: decimal(3, 1), b: map<string, struct<at: timestamp>>>>",
            '[null, {"a": 1.5, "b": {"x": {"at": 5}}}]',
            [None, {"a": Decimal("1.5"), "b": [("x", {"at": dt.datetime(1970, 1, 1, 0, 0, 0, 5, tzinfo=UTC)})]}],
        ),
        ("long", "null", None),
    ],
    ids=str,
)
def test_what_fits(type, text, found):
    assert value(type, text) == found


@pytest.mark.parametrize(
    ("type", "text", "why"),
    [
        ("boolean", "1", "Expected `bool | null`, got `int` - at `$.n`"),
        ("byte", "128", "Expected `int` <= 127 - at `$.n`"),
        ("long", "9223372036854775808", "Expected `int` <= 9223372036854775807 - at `$.n`"),
        ("long", '"5"', "Expected `int | null`, got `str` - at `$.n`"),
        ("long", "5.0", "Expected `int | null`, got `float` - at `$.n`"),
        ("long", "true", "Expected `int | null`, got `bool` - at `$.n`"),
        ("double", '"5"', "Expected `float | null`, got `str` - at `$.n`"),
        ("double", "true", "Expected `float | null`, got `bool` - at `$.n`"),
        ("double", "NaN", "JSON is malformed"),
        ("double", "1e400", "Number out of range"),
        ("float", "1e39", "Expected `float` <= 3.4028234663852886e+38 - at `$.n`"),
        ("string", "5", "Expected `str | null`, got `int` - at `$.n`"),
        ("string", r'"\ud800"', "truncated"),
        ("binary", '"?"', "Invalid base64 encoded string - at `$.n`"),
        ("date", '"2021-02-29"', "Invalid RFC3339 encoded date - at `$.n`"),
        ("timestamp", '"yesterday"', "Invalid RFC3339 encoded datetime - at `$.n`"),
        ("timestamp", "1.5", "got `float` - at `$.n`"),
        ("decimal(5, 2)", "1.255", "column 'n' is Decimal('1.255'), and should be decimal(5, 2)"),
        ("decimal(5, 2)", "1000", "column 'n' is Decimal('1000'), and should be decimal(5, 2)"),
        ("decimal(5, 2)", '"NaN"', "column 'n' is Decimal('NaN'), and should be decimal(5, 2)"),
        ("decimal(5, 2)", "1e999999", "column 'n' is Decimal('1E+999999'), and should be decimal(5, 2)"),
        ("array<int>", "[1.5]", "got `float` - at `$.n[0]`"),
        ("struct<a: int>", "[1]", "Expected `object | null`, got `array` - at `$.n`"),
        ("struct<a: int NOT NULL>", "{}", "Object missing required field `a` - at `$.n`"),
        ("map<string, byte>", '{"a": 300}', "Expected `int` <= 127 - at `$.n[...]`"),
        ("long NOT NULL", "null", "Expected `int`, got `null` - at `$.n`"),
    ],
    ids=str,
)
def test_what_does_not_fit(type, text, why):
    assert why in problem(type, text)


def test_what_is_left_out_is_null_and_what_is_no_column_is_passed_over():
    found = read("n long, word string", '{"word": "a", "more": {"n": [1]}}', '{"n": 1}', "{}", ' {"n":2} \r')
    assert found.batch.to_pydict() == {"n": [None, 1, None, 2], "word": ["a", None, None, None]}
    ((_, why),) = read("n long NOT NULL", "{}").problems
    assert why == "Object missing required field `n`"


def test_problems_are_told_by_line_and_blank_lines_are_none():
    lines = ["", '{"n": 1}', "nonsense", " \t\r", '{"n": 12345}', '{"n": "x"}', '{"n": 2}', "[1]", '{"n": 3} {"n": 4}']
    found = read("n decimal(3, 0)", *lines)
    assert found.batch.to_pydict() == {"n": [1, 2]}
    assert [place for place, _ in found.problems] == [2, 4, 5, 7, 8]


def test_what_is_no_text_is_a_problem_wherever_it_is():
    lines = [b'{"n": 1}', b'{"n": 2, "gone": "\xff"}', b'{"n": 3, "gone": "\xc3', b'\xa9"}', b"\xff", b'{"n": 4}']
    found = read("n long", *lines)
    assert found.batch.to_pydict() == {"n": [1, 4]}
    assert found.problems == [(place, "it is not text in UTF-8") for place in (1, 2, 3, 4)]


def test_nesting_without_end_is_a_problem():
    found = read("n long", '{"m": ' + "[" * 100_000 + "]" * 100_000 + "}", '{"n": 1}')
    assert (found.batch.num_rows, [place for place, _ in found.problems]) == (1, [0])


@pytest.mark.parametrize("type", ["timestamp", "timestamp_ntz", "long"])
def test_a_record_without_its_time_is_a_problem(type):
    lines = ['{"n": 1, "at": 5}', '{"n": 2}', '{"n": 3, "at": 9223372036854775807}', f'{{"n": 4, "at": {LAST}}}']
    found = read(f"n long, at {type}", *lines, timestamp="at")
    assert found.times.tolist() == [5, LAST]
    assert found.batch.column("n").to_pylist() == [1, 4]
    assert [place for place, _ in found.problems] == [1, 2]
    assert found.problems[0].why.startswith("column 'at' is null, and should be a time, ")
    assert found.problems[1].why.startswith("column 'at' is 9223372036854775807, and should be a time, ")


def test_times_of_all_forms_in_one_column():
    lines = ['{"at": 1000000}', '{"at": "1970-01-01T00:00:02"}', '{"at": "1970-01-01T02:00:03+02:00"}']
    assert read("at timestamp", *lines, timestamp="at").times.tolist() == [1_000_000, 2_000_000, 3_000_000]


def test_without_a_time_column_records_are_as_old_as_can_be():
    assert read("n long", "{}", "{}").times.tolist() == [BEGINNING] * 2


def test_columns_may_be_called_anything_that_json_says_plainly():
    schema = pa.schema([(name, pa.int64()) for name in ("class", "_n", "a b", "é", "c1", "c0", "None")])
    line = json.dumps({name: number for number, name in enumerate(schema.names)}, ensure_ascii=False).encode()
    found = JsonLines(schema, None, "it").read([line])
    assert found.batch.to_pylist() == [{name: number for number, name in enumerate(schema.names)}]


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb"])
def test_a_name_that_json_has_to_escape_is_refused(name):
    nested = pa.schema([("n", pa.list_(pa.struct([(name, pa.int64())])))])
    for schema in (pa.schema([(name, pa.int64())]), nested):
        with pytest.raises(SchemaError, match=r"^The schema of it can't be used: the name .* has a quote, a backslash"):
            JsonLines(schema, None, "it")


@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "n": st.none() | st.integers(-(2**63), 2**63 - 1),
                "x": st.none() | st.floats(allow_nan=False, allow_infinity=False),
                "s": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
                "l": st.none() | st.lists(st.none() | st.booleans()),
                "more": st.none(),
            },
        )
    )
)
def test_what_json_writes_is_read(rows):
    found = read("n long, x double, s string, l array<boolean>", *map(json.dumps, rows))
    assert found.problems == []
    assert found.batch.to_pylist() == [{name: row.get(name) for name in ("n", "x", "s", "l")} for row in rows]
