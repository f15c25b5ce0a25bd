"""Kinds of state: a type of the user's for one key, or columns for vectorised computations.

A key's state is made without arguments when the key is first seen, and is encoded by its type alone. Both are proved
here by doing them once, because the other time to learn of it would be the first checkpoint.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Final, NoReturn, Union, get_args, get_origin

import msgspec
import pyarrow as pa

from tidemill.api.schema import read_schema
from tidemill.api.wording import declared_at
from tidemill.core.columns import ColumnarState
from tidemill.core.graph import ColumnState, RowState, TableState
from tidemill.errors import StateTypeError

_DTYPES: Final = {
    pa.bool_(): "bool",
    pa.int8(): "int8",
    pa.int16(): "int16",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.float32(): "float32",
    pa.float64(): "float64",
}

_REMEDY: Final = (
    "State is a dataclass whose fields have defaults, or int, float, str, bytes, list, dict[...], set[...]."
)

_NOTE: Final = "__msgspec_cache__"


class Columns:
    """State in columns, for `process_bundle`: one row a key, each column a numpy array, at first all zeros."""

    def __init__(self, schema: Any) -> None:
        self.declared_at: Final = declared_at()
        self.schema: Final[pa.Schema] = read_schema(schema, f"the Columns declared at {self.declared_at}")

    def __repr__(self) -> str:
        return f"<Columns declared at {self.declared_at}>"


class Table:
    """State in rows of a table, as many a key as wanted, for the built-in computations.

    `keys` are its columns that are the key, `due` an int64 column that says when a row will be asked for.
    """

    def __init__(self, schema: pa.Schema, keys: Sequence[str], due: str) -> None:
        self.schema: Final = schema
        self.keys: Final = tuple(keys)
        self.due: Final = due


def state_of(declared: Any, owner: str) -> RowState | ColumnState | TableState | None:
    """What the core is told of a computation's `state`. `owner` says in the error whose it is and where it stands."""
    if declared is None:
        return None
    if isinstance(declared, Table):
        return TableState(declared.schema, declared.keys, declared.due)
    if isinstance(declared, Columns):
        return _column_state(declared, owner)
    return _row_state(declared, owner)


def _column_state(declared: Columns, owner: str) -> ColumnState:
    where = f"The Columns (declared at {declared.declared_at}) of {owner}"
    for field in declared.schema:
        if field.type not in _DTYPES:
            raise StateTypeError(
                f"{where} can't have column '{field.name}' of type {field.type}: columns of state are boolean, byte, "
                "short, int, long, float or double. Keep times as long microseconds; for other types write "
                "process_record."
            )
        if hasattr(ColumnarState, field.name) or field.name.startswith("_") or not field.name.isidentifier():
            raise StateTypeError(
                f"{where} can't have a column '{field.name}': as an attribute of the state that name is taken, or "
                "can't be written. Call the column something else."
            )
    return ColumnState(tuple((field.name, _DTYPES[field.type]) for field in declared.schema))


def _row_state(declared: Any, owner: str) -> RowState:
    def refuse(why: str) -> NoReturn:
        raise StateTypeError(f"{_name(declared)} can't be the state of {owner}: {why}. {_REMEDY}") from None

    if dataclasses.is_dataclass(declared) and not isinstance(declared, type):
        refuse(f"it is a value, and state is declared by its type. Write state = {type(declared).__name__}")
    try:
        decoder = msgspec.msgpack.Decoder(declared)
        parts = list(_parts(msgspec.inspect.type_info(declared), _name(declared), []))
    except Exception as error:  # noqa: BLE001 - whatever the user's annotations lead to
        refuse(f"it can't be encoded ({error})")
    for path, part in parts:
        if isinstance(part, msgspec.inspect.CustomType):
            refuse(f"{path} is a {part.cls.__module__}.{part.cls.__qualname__}, which can't be encoded by its type")
        if isinstance(part, msgspec.inspect.StructType):
            refuse(f"{path} is a msgspec.Struct, which loses its fields on the way to Spark. Make it a dataclass")
    make = _maker(declared)
    try:
        made = make()
    except Exception as error:  # noqa: BLE001 - whatever the user's own code raises
        refuse(f"it can't be made without arguments ({error})")
    try:
        decoder.decode(msgspec.msgpack.encode(made))
    except Exception as error:  # noqa: BLE001 - as above
        refuse(f"what {_name(declared)} makes without arguments can't be encoded and read back ({error})")
    forget_encoding(declared)
    return RowState(declared, make)


def forget_encoding(declared: Any) -> None:
    """Takes off the user's classes what msgspec notes on them, so that they can be pickled by value again.

    A class of a notebook or a script goes to Spark with all its attributes, and that note is none that can travel.
    Whoever has a decoder of the type keeps it; the next one to be made writes the note anew.
    """
    for _, part in _parts(msgspec.inspect.type_info(declared), "", []):
        noted = getattr(part, "cls", None)
        if _NOTE in getattr(noted, "__dict__", ()):
            delattr(noted, _NOTE)


def _name(declared: Any) -> str:
    return declared.__qualname__ if isinstance(declared, type) and not get_args(declared) else repr(declared)


def _maker(declared: Any) -> Callable[[], Any]:
    """What makes a key's first state: the type, or a generic one's bare type. Where None is allowed, it is None."""
    origin = get_origin(declared)
    if origin is Annotated:
        return _maker(get_args(declared)[0])
    if origin is Union or isinstance(declared, types.UnionType):
        members = get_args(declared)
        return _nothing if type(None) in members else _maker(members[0])
    made: Callable[[], Any] = origin or declared
    return made


def _nothing() -> None:
    return None


def _parts(described: Any, path: str, seen: list[Any]) -> Iterator[tuple[str, Any]]:
    """All types that a type is made of, as msgspec describes them, and where each lies."""
    if any(described is other for other in seen):  # a type that contains itself
        return
    seen.append(described)
    yield path, described
    for name, child in _children(described):
        yield from _parts(child, f"{path}{name}", seen)


def _children(described: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(
        described, (msgspec.inspect.DataclassType, msgspec.inspect.TypedDictType, msgspec.inspect.NamedTupleType)
    ):
        for field in described.fields:
            yield f".{field.name}", field.type
        return
    for part in ("type", "key_type", "value_type", "item_type"):
        child = getattr(described, part, None)
        if isinstance(child, msgspec.inspect.Type):
            yield "[...]" if part != "type" else "", child
    for part in ("types", "item_types"):
        for child in getattr(described, part, ()):
            yield "", child
