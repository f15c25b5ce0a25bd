"""Schemas as users write them, and as everything behind the API knows them: `pa.Schema`.

A schema is a DDL string as Spark reads it ("word string, n long NOT NULL"), a `pa.Schema`, or an object that describes
itself as Spark's types do (`StructType`), which is taken by its `jsonValue()`, or else its `simpleString()`, so that
Spark need not be there. Whatever the form, only types that Spark SQL has come through, each in the Arrow form that
Spark gives it, because a pipeline must mean the same live and as a Spark plan. Spark's intervals, void and variant are
left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn

import pyarrow as pa

from tidemill.api.wording import listing, meant
from tidemill.core.graph import TIME_COLUMN
from tidemill.errors import SchemaError
from tidemill.ports import ARRIVAL, SCHEDULED

_RESERVED: Final = (TIME_COLUMN, ARRIVAL, SCHEDULED)

_NAMED: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}

_SYNONYMS: Final[Mapping[str, str]] = {
    "tinyint": "byte",
    "smallint": "short",
    "integer": "int",
    "bigint": "long",
    "real": "float",
    "timestamp_ltz": "timestamp",
}

_SIZED: Final = ("char", "character", "varchar")
_DECIMALS: Final = ("decimal", "dec", "numeric")
_NESTED: Final = ("array", "map", "struct")
_ALL: Final = (*_NAMED, *_SYNONYMS, *_SIZED, *_DECIMALS, *_NESTED)
_DDL_OF: Final = {arrow: name for name, arrow in _NAMED.items()}


def read_schema(given: Any, owner: str = "it") -> pa.Schema:
    """The schema that was meant. `owner` says in the error whose it is and where that was declared."""
    try:
        if isinstance(given, str):
            schema = _Reader(given).schema()
        elif isinstance(given, pa.Schema):
            schema = given.remove_metadata()
        elif hasattr(given, "jsonValue"):
            schema = _from_json(given.jsonValue())
        elif hasattr(given, "simpleString"):
            schema = _Reader(given.simpleString()).schema()
        else:
            _refuse(f"a {type(given).__name__} is no schema; {_REMEDY}")
        _check_columns(schema)
    except SchemaError as error:
        raise SchemaError(f"The schema of {owner} can't be used: {error}") from None
    return schema


_REMEDY: Final = 'give a DDL string such as "word string, n long", a pyarrow.Schema or a Spark StructType'


def ddl(schema: pa.Schema) -> str:
    """The schema as a DDL string that `read_schema` and Spark read back. DDL can't say that an array holds no nulls."""
    return ", ".join(_field_ddl(field, " ") for field in schema)


def type_ddl(type: pa.DataType) -> str:
    if type in _DDL_OF:
        return _DDL_OF[type]
    if pa.types.is_decimal128(type):
        return f"decimal({type.precision}, {type.scale})"
    if pa.types.is_struct(type):
        return f"struct<{', '.join(_field_ddl(field, ': ') for field in type)}>"
    if pa.types.is_list(type):
        return f"array<{type_ddl(type.value_type)}>"
    if pa.types.is_map(type):
        return f"map<{type_ddl(type.key_type)}, {type_ddl(type.item_type)}>"
    return str(type)


def quoted(name: str) -> str:
    """A column's name as it may stand in SQL, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def _field_ddl(field: pa.Field, between: str) -> str:
    plain = re.fullmatch(r"[a-z_]\w*", field.name, re.ASCII | re.IGNORECASE)
    name = field.name if plain else quoted(field.name)
    return f"{name}{between}{type_ddl(field.type)}{'' if field.nullable else ' NOT NULL'}"


def array_of(element: pa.DataType, *, nullable: bool = True) -> pa.DataType:
    """A list type as Spark writes it to Arrow."""
    return pa.list_(pa.field("element", element, nullable=nullable))


def _map_of(key: pa.DataType, value: pa.DataType, *, nullable: bool = True) -> pa.DataType:
    return pa.map_(key, pa.field("value", value, nullable=nullable))


def _refuse(message: str) -> NoReturn:
    raise SchemaError(message)


# --------------------------------------------------------------------------------------------------------- the check


def _check_columns(schema: pa.Schema) -> None:
    if len(schema) == 0:
        _refuse(f"it has no columns; {_REMEDY}")
    for name in schema.names:
        if name.lower() in _RESERVED:
            _refuse(f"the column name '{name}' is reserved. Call the column something else.")
    _check_distinct(schema.names)
    for field in schema:
        _check_type(field.type, f"column '{field.name}'")


def _check_distinct(names: Sequence[str]) -> None:
    """Spark does not tell upper case from lower, so neither may these names."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.get(name.lower())
        if other is not None:
            clash = f"two columns are called '{name}'"
            if other != name:
                clash = f"the columns '{other}' and '{name}' differ in case only, which Spark does not tell apart"
            _refuse(f"{clash}. Its columns: {listing(names)}. Rename one of them.")
        seen[name.lower()] = name


def _check_type(type: pa.DataType, where: str) -> None:
    if pa.types.is_struct(type):
        _check_distinct([field.name for field in type])
        for field in type:
            _check_type(field.type, f"{where}, field '{field.name}'")
    elif pa.types.is_list(type):
        _check_type(type.value_type, f"an element of {where}")
    elif pa.types.is_map(type):
        _check_type(type.key_type, f"a key of {where}")
        _check_type(type.item_type, f"a value of {where}")
    elif type not in _DDL_OF and not pa.types.is_decimal128(type):
        known = ", ".join([*map(str, _DDL_OF), "decimal128, list, map, struct"])
        _refuse(f"{where} has the Arrow type {type}, which Spark does not have. Cast it to one of these: {known}.")


# -------------------------------------------------------------------------------------------- Spark's own description


def _from_json(described: Any) -> pa.Schema:
    if not isinstance(described, Mapping) or described.get("type") != "struct":
        _refuse(f"it is a {described!r}, and not a struct of columns; {_REMEDY}")
    return pa.schema(_json_fields(described))


def _json_fields(struct: Mapping[str, Any]) -> list[pa.Field]:
    return [pa.field(f["name"], _json_type(f["type"]), nullable=f.get("nullable", True)) for f in struct["fields"]]


def _json_type(described: Any) -> pa.DataType:
    if isinstance(described, str):
        return _Reader(described).only_type()
    kind = described["type"]
    if kind == "struct":
        return pa.struct(_json_fields(described))
    if kind == "array":
        return array_of(_json_type(described["elementType"]), nullable=described["containsNull"])
    if kind == "map":
        key, value = _json_type(described["keyType"]), _json_type(described["valueType"])
        return _map_of(key, value, nullable=described["valueContainsNull"])
    if kind == "udt":
        return _json_type(described["sqlType"])
    _refuse(f"it has a column of Spark's type {kind!r}, which is not supported; types are: {', '.join(_ALL)}")


# ------------------------------------------------------------------------------------------------------- DDL strings


_QUOTED: Final = "a name of more than letters, digits and _ stands in `backquotes`"


class _Token(NamedTuple):
    kind: str  # "name", "quoted", "text", "sign" or "end"
    value: str
    position: int


_TOKENS: Final = re.compile(
    r"""\s*(?:(?P<name>\w+)|`(?P<quoted>(?:[^`]|``)+)`|(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?P<sign>[<>(),:]))""",
    re.ASCII,  # Spark takes no other letters without backquotes
)


class _Reader:
    """A descent through a DDL string. Every error shows the place."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._cut()
        self._next = 0

    def schema(self) -> pa.Schema:
        first, second = self._tokens[0], self._tokens[min(1, len(self._tokens) - 1)]
        if first.value.lower() == "struct" and second.value == "<":  # how a StructType names itself
            return pa.schema(list(self.only_type()))
        fields = self._fields("end")
        return pa.schema(fields)

    def only_type(self) -> pa.DataType:
        found = self._type()
        if self._peek().kind != "end":
            self._fail(self._peek(), "nothing more is expected here")
        return found

    def _cut(self) -> list[_Token]:
        tokens, position = [], 0
        end = len(self._text.rstrip())
        while position < end:
            match = _TOKENS.match(self._text, position)
            if match is None:
                start = position + len(self._text[position:]) - len(self._text[position:].lstrip())
                self._fail(_Token("sign", "", start), f"{self._text[start]!r} has no meaning here; {_QUOTED}")
            kind = str(match.lastgroup)
            tokens.append(_Token(kind, match[kind], match.start(kind) - (kind == "quoted")))
            position = match.end()
        return [*tokens, _Token("end", "", end)]

    def _fail(self, token: _Token, why: str) -> NoReturn:
        one_line = re.sub(r"\s", " ", self._text)
        _refuse(f"at position {token.position}, {why}.\n    {one_line}\n    {' ' * token.position}^")

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._peek()
        self._next += token.kind != "end"
        return token

    def _took(self, value: str) -> bool:
        """Steps over this sign or word if it is what comes next."""
        token = self._peek()
        found = token.kind in ("sign", "name") and token.value.lower() == value
        self._next += found
        return found

    def _expect(self, sign: str) -> None:
        if not self._took(sign):
            self._fail(self._peek(), f"'{sign}' is missing")

    def _fields(self, end: str) -> list[pa.Field]:
        fields = [self._field()]
        while self._took(","):
            fields.append(self._field())
        closed = self._peek().kind == "end" if end == "end" else self._took(end)
        if not closed:
            self._fail(self._peek(), f"',' or {'the end' if end == 'end' else repr(end)} is expected")
        return fields

    def _field(self) -> pa.Field:
        token = self._take()
        name = token.value.replace("``", "`") if token.kind == "quoted" else token.value
        if token.kind not in ("name", "quoted") or (token.kind == "name" and name.isdecimal()):
            self._fail(token, "a column's name is expected")
        self._took(":")
        found = self._type()
        required = self._took("not")
        if required and not self._took("null"):
            self._fail(self._peek(), "'NULL' is expected after 'NOT'")
        if self._took("comment") and self._take().kind != "text":
            self._fail(self._tokens[self._next - 1], "a comment in quotes is expected")
        return pa.field(name, found, nullable=not required)

    def _type(self) -> pa.DataType:
        token = self._take()
        name = token.value.lower()
        if token.kind != "name":
            self._fail(token, "a type is expected")
        if name in _NESTED:
            return self._nested(name)
        if name in _DECIMALS:
            return self._decimal(token)
        if name in _SIZED:
            self._numbers(token, 1)
            return pa.string()
        if name == "string" and self._took("collate"):
            self._take()
        name = _SYNONYMS.get(name, name)
        if name not in _NAMED:
            self._fail(token, f"'{token.value}' is no type.{meant(name, _ALL)} Types are: {', '.join(_ALL)}")
        return _NAMED[name]

    def _nested(self, name: str) -> pa.DataType:
        self._expect("<")
        if name == "struct":
            return pa.struct([] if self._took(">") else self._fields(">"))
        first = self._type()
        if name == "array":
            self._expect(">")
            return array_of(first)
        self._expect(",")
        second = self._type()
        self._expect(">")
        return _map_of(first, second)

    def _decimal(self, token: _Token) -> pa.DataType:
        numbers = self._numbers(token, 2) if self._peek().value == "(" else []
        precision, scale = (*numbers, 10, 0)[:2] if not numbers else (*numbers, 0)[:2]
        if not 1 <= precision <= 38 or scale > precision:
            self._fail(token, f"a decimal has 1 to 38 digits, and no more of them behind the point: not {numbers}")
        return pa.decimal128(precision, scale)

    def _numbers(self, token: _Token, most: int) -> list[int]:
        self._expect("(")
        numbers: list[int] = []
        while not numbers or self._took(","):
            number = self._take()
            if not number.value.isdecimal() or len(numbers) == most:
                self._fail(number, f"'{token.value}' takes {most} whole number{'s' if most > 1 else ''} at most")
            numbers.append(int(number.value))
        self._expect(")")
        return numbers
