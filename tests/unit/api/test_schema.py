"""Schemas in all their forms, and what an unreadable one is told."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.api.schema import array_of, ddl, read_schema, type_ddl
from tidemill.errors import SchemaError


def read(text):
    return read_schema(text)


def only_type(text):
    return read(f"it {text}").field("it").type


@pytest.mark.parametrize(
    ("written", "arrow"),
    [
        ("boolean", pa.bool_()),
        ("tinyint", pa.int8()),
        ("byte", pa.int8()),
        ("smallint", pa.int16()),
        ("short", pa.int16()),
        ("int", pa.int32()),
        ("INTEGER", pa.int32()),
        ("bigint", pa.int64()),
        ("Long", pa.int64()),
        ("real", pa.float32()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("string", pa.string()),
        ("string collate UNICODE", pa.string()),
        ("varchar(10)", pa.string()),
        ("char( 3 )", pa.string()),
        ("binary", pa.binary()),
        ("date", pa.date32()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestamp_ltz", pa.timestamp("us", tz="UTC")),
        ("timestamp_ntz", pa.timestamp("us")),
        ("decimal", pa.decimal128(10, 0)),
        ("dec(5)", pa.decimal128(5, 0)),
        ("numeric(38, 18)", pa.decimal128(38, 18)),
        ("array<int>", array_of(pa.int32())),
        ("array<array<map<string,array<long>>>>", array_of(array_of(pa.map_(pa.string(), array_of(pa.int64()))))),
        ("map<string, double>", pa.map_(pa.string(), pa.float64())),
        (
            "struct<a: int, b string not null>",
            pa.struct([("a", pa.int32()), pa.field("b", pa.string(), nullable=False)]),
        ),
        ("struct<>", pa.struct([])),
    ],
)
def test_the_types_of_spark(written, arrow):
    assert only_type(written) == arrow


def test_columns_as_spark_writes_them():
    schema = read("word string NOT NULL, n: long COMMENT 'how, many', `a``b c` int,\n date date, at timestamp not null")
    assert schema == pa.schema(
        [
            pa.field("word", pa.string(), nullable=False),
            ("n", pa.int64()),
            ("a`b c", pa.int32()),
            ("date", pa.date32()),
            pa.field("at", pa.timestamp("us", tz="UTC"), nullable=False),
        ]
    )


def test_a_struct_names_its_columns():
    assert read("struct<word:string,n:bigint>") == read("word string, n long")
    assert read("struct long").names == ["struct"]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("", "at position 0, a column's name is expected"),
        ("word", "at position 4, a type is expected"),
        ("word string,", "at position 12, a column's name is expected"),
        ("word strng, n long", "at position 5, 'strng' is no type. Did you mean 'string'? Types are: boolean, byte"),
        ("word string n long", "at position 12, ',' or the end is expected"),
        ("word string; n long", "at position 11, ';' has no meaning here"),
        ("größe int", "at position 2, 'ö' has no meaning here; a name of more than letters, digits and _ stands in `b"),
        ("12 string", "at position 0, a column's name is expected"),
        ("a array<int", "at position 11, '>' is missing"),
        ("a array", "at position 7, '<' is missing"),
        ("a map<int>", "at position 9, ',' is missing"),
        ("a struct<b int, c>", "at position 17, a type is expected"),
        ("a struct<b int", "at position 14, ',' or '>' is expected"),
        ("a decimal(39)", "at position 2, a decimal has 1 to 38 digits"),
        ("a decimal(3, 4)", "at position 2, a decimal has 1 to 38 digits"),
        ("a decimal(3, 2, 1)", "at position 16, 'decimal' takes 2 whole numbers at most"),
        ("a varchar(x)", "at position 10, 'varchar' takes 1 whole number at most"),
        ("a varchar", "at position 9, '(' is missing"),
        ("a int not nul", "at position 10, 'NULL' is expected after 'NOT'"),
        ("a int comment 5", "at position 14, a comment in quotes is expected"),
        ("a interval day to second", "at position 2, 'interval' is no type"),
        ("struct<a:int> b", "at position 14, nothing more is expected here"),
    ],
)
def test_what_cannot_be_read_is_shown(written, said):
    with pytest.raises(SchemaError) as refused:
        read_schema(written, "the Output declared at app.py:3")
    message = str(refused.value)
    assert message.startswith("The schema of the Output declared at app.py:3 can't be used: ")
    assert said in message


def test_the_place_is_pointed_at():
    with pytest.raises(SchemaError) as refused:
        read("word\n strng")
    *_, text, pointer = str(refused.value).split("\n")
    assert text[pointer.index("^") :] == "strng"


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("a int, b int, a long", "two columns are called 'a'. Its columns: 'a', 'b', 'a'. Rename one"),
        ("word int, Word long", "'word' and 'Word' differ in case only, which Spark does not tell apart"),
        ("a struct<b int, b int>", "two columns are called 'b'"),
        ("__at long", "the column name '__at' is reserved"),
        ("__AT long", "the column name '__AT' is reserved"),
        ("__arrival long", "the column name '__arrival' is reserved"),
        ("__scheduled long", "the column name '__scheduled' is reserved"),
        (pa.schema([]), "it has no columns; give a DDL string"),
        (
            pa.schema([("n", pa.uint8())]),
            "column 'n' has the Arrow type uint8, which Spark does not have. Cast it to one",
        ),
        (pa.schema([("at", pa.timestamp("ns"))]), "column 'at' has the Arrow type timestamp[ns]"),
        (pa.schema([("at", pa.timestamp("us", tz="Asia/Tokyo"))]), "timestamp[us, tz=Asia/Tokyo]"),
        (pa.schema([("a", pa.list_(pa.time32("s")))]), "an element of column 'a' has the Arrow type time32[s]"),
        (pa.schema([("a", pa.map_(pa.uint8(), pa.int8()))]), "a key of column 'a' has the Arrow type uint8"),
        (pa.schema([("a", pa.map_(pa.int8(), pa.null()))]), "a value of column 'a' has the Arrow type null"),
        (pa.schema([("a", pa.struct([("b", pa.uint8())]))]), "column 'a', field 'b' has the Arrow type uint8"),
        (3, "a int is no schema; give a DDL string such as"),
        (None, "a NoneType is no schema"),
    ],
)
def test_what_is_no_schema_of_spark(written, said):
    with pytest.raises(SchemaError) as refused:
        read(written)
    assert said in str(refused.value)


def test_an_arrow_schema_stays_as_it_is_without_its_metadata():
    schema = pa.schema([("a", pa.int32())], metadata={"pandas": "much"})
    assert read(schema) == schema
    assert read(schema).metadata is None


# ------------------------------------------------------------------------------------------------ Spark's own objects


class StructType:
    """Describes itself as Spark's class of that name does."""

    def __init__(self, fields):
        self._fields = fields

    def jsonValue(self):  # noqa: N802 - Spark's name
        return {"type": "struct", "fields": self._fields}


class Simple:
    def simpleString(self):  # noqa: N802 - Spark's name
        return "struct<word:string,counts:map<string,array<bigint>>>"


def column(name, type, *, nullable=True):
    return {"name": name, "type": type, "nullable": nullable, "metadata": {}}


def test_a_struct_type_is_taken_by_its_json():
    described = StructType(
        [
            column("my word", "string", nullable=False),
            column("price", "decimal(7,2)"),
            column("small", "integer"),
            column("at", "timestamp"),
            column("tags", {"type": "array", "elementType": "string", "containsNull": False}),
            column("by", {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": False}),
            column("place", {"type": "struct", "fields": [column("x", "double", nullable=False)]}),
            column(
                "vector", {"type": "udt", "class": "x.Y", "sqlType": {**StructType([column("v", "byte")]).jsonValue()}}
            ),
        ]
    )
    assert read(described) == pa.schema(
        [
            pa.field("my word", pa.string(), nullable=False),
            ("price", pa.decimal128(7, 2)),
            ("small", pa.int32()),
            ("at", pa.timestamp("us", tz="UTC")),
            ("tags", array_of(pa.string(), nullable=False)),
            ("by", pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))),
            ("place", pa.struct([pa.field("x", pa.float64(), nullable=False)])),
            ("vector", pa.struct([("v", pa.int8())])),
        ]
    )


def test_or_by_its_simple_string():
    assert read(Simple()) == read("word string, counts map<string, array<long>>")


@pytest.mark.parametrize(
    ("type", "said"),
    [("variant", "'variant' is no type"), ({"type": "geometry"}, "a column of Spark's type 'geometry'")],
)
def test_types_that_are_not_supported(type, said):
    with pytest.raises(SchemaError) as refused:
        read(StructType([column("it", type)]))
    assert said in str(refused.value)


def test_a_type_that_is_no_struct():
    class Long:
        def jsonValue(self):  # noqa: N802 - Spark's name
            return "long"

    with pytest.raises(SchemaError, match="it is a 'long', and not a struct of columns"):
        read(Long())


# ------------------------------------------------------------------------------------------------------ there and back

FLAT = st.sampled_from(
    [
        only_type(name)
        for name in "boolean byte short int long float double string binary date timestamp timestamp_ntz".split()
    ]
) | st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: pa.decimal128(p, s)))

NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1).filter(
    lambda name: name.lower() not in ("__at", "__arrival", "__scheduled")
)


def fields(types):
    field = st.builds(pa.field, NAMES, types, nullable=st.booleans())
    return st.lists(field, min_size=1, max_size=4, unique_by=lambda field: field.name.lower())


TYPES = st.recursive(
    FLAT,
    lambda inner: inner.map(array_of) | st.builds(pa.map_, FLAT, inner) | fields(inner).map(pa.struct),
    max_leaves=6,
)


@given(fields(TYPES).map(pa.schema))
def test_every_schema_is_read_back_from_its_ddl(schema):
    assert read(ddl(schema)) == schema


def test_a_type_without_a_name_in_spark_keeps_its_own():
    assert type_ddl(pa.uint8()) == "uint8"
