"""Kinds of state: what is accepted, how it is first made, and what is refused why."""

import collections
import copy
import datetime as dt
import enum
from dataclasses import dataclass, field
from typing import Annotated, Optional

import msgspec
import numpy as np
import pytest

import tidemill as tm
from tidemill.api.state import state_of
from tidemill.core.graph import ColumnState, RowState
from tidemill.errors import SchemaError, StateTypeError


@dataclass
class Seen:
    n: int = 0
    words: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Fixed:
    n: int = 0


@dataclass
class Tree:
    children: "list[Tree]" = field(default_factory=list)


@pytest.mark.parametrize(
    ("declared", "first"),
    [
        (Seen, Seen()),
        (Fixed, Fixed()),
        (Tree, Tree()),
        (int, 0),
        (float, 0.0),
        (str, ""),
        (bytes, b""),
        (bool, False),
        (list, []),
        (list[int], []),
        (dict, {}),
        (dict[str, Seen], {}),
        (dict[tuple[str, int], dt.datetime], {}),
        (set[int], set()),
        (frozenset[str], frozenset()),
        (tuple[int, ...], ()),
        (int | None, None),
        (Optional[Seen], None),  # noqa: UP045 - the older spelling, too
        (int | str, 0),
        (Annotated[int, msgspec.Meta(ge=0)], 0),
    ],
)
def test_a_type_makes_its_first_value(declared, first):
    state = state_of(declared, "computation 'x'")
    assert isinstance(state, RowState)
    assert state.type is declared
    assert state.make() == first
    assert type(state.make()) is type(first)


def test_no_key_shares_its_first_value_with_another():
    for declared in (Seen, dict[str, int], list):
        state = state_of(declared, "x")
        assert isinstance(state, RowState)
        one, other = state.make(), state.make()
        assert one is not other
        assert getattr(one, "words", 1) is not getattr(other, "words", 2)


@dataclass
class Whole:
    tree: Tree | None = None
    colour: "Colour | None" = None
    seen: dict[str, list[Seen]] = field(default_factory=dict)


def test_a_checked_type_bears_no_note_that_could_not_travel():
    state_of(Whole, "x")
    decoder = msgspec.msgpack.Decoder(Whole)
    assert not hasattr(int, "__msgspec_cache__")
    assert hasattr(Seen, "__msgspec_cache__"), "msgspec keeps its notes elsewhere now: where?"
    state_of(Whole, "x")
    for noted in (Whole, Tree, Seen, Colour):
        assert not hasattr(noted, "__msgspec_cache__")
    assert decoder.decode(msgspec.msgpack.encode(Whole(seen={"a": [Seen(2)]}))).seen == {"a": [Seen(2)]}


def test_none_is_no_state():
    assert state_of(None, "x") is None


class Struct(msgspec.Struct):
    n: int = 0


class Plain:
    pass


@dataclass
class NoDefault:
    n: int


@dataclass
class Lying:
    n: int = None  # type: ignore[assignment]  # the point of the test


@dataclass
class Deep:
    inner: dict[str, list[np.ndarray]] = field(default_factory=dict)


@dataclass
class Mixed:
    either: Seen | Fixed | None = None


class Numbers(list):
    """Would come back as a plain list."""


@dataclass
class Failing:
    def __post_init__(self):
        raise ValueError("not today")


@dataclass
class Unresolved:
    n: "Nowhere" = None  # type: ignore[name-defined]  # noqa: F821 - the point of the test


class Colour(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (Seen(), "it is a value, and state is declared by its type. Write state = Seen"),
        (3, "can't be encoded"),
        ("int", "can't be the state"),
        (Plain, f"Plain is a {__name__}.Plain, which can't be encoded by its type"),
        (collections.Counter, "is a collections.Counter, which can't be encoded"),
        (Numbers, f"Numbers is a {__name__}.Numbers, which can't be encoded by its type"),
        (Deep, "Deep.inner[...][...] is a numpy.ndarray, which can't be encoded"),
        (dict[str, Plain], f"[...] is a {__name__}.Plain"),
        (tuple[int, Plain], f"is a {__name__}.Plain"),
        (list[Plain | None], f"is a {__name__}.Plain"),
        (Struct, "Struct is a msgspec.Struct, which loses its fields on the way to Spark. Make it a dataclass"),
        (list[Struct], "is a msgspec.Struct"),
        (NoDefault, "it can't be made without arguments (NoDefault.__init__() missing 1 required"),
        (dt.datetime, "can't be made without arguments"),
        (Colour, "can't be made without arguments"),
        (Failing, "can't be made without arguments (not today)"),
        (Lying, "what Lying makes without arguments can't be encoded and read back (Expected `int`"),
        (tuple[int, int], "can't be encoded and read back"),
        (Mixed, "it can't be encoded (Type unions may not contain more than one"),
        (Unresolved, "it can't be encoded (name 'Nowhere' is not defined)"),
    ],
)
def test_what_cannot_be_state(declared, said):
    with pytest.raises(StateTypeError) as refused:
        state_of(declared, "computation 'x'")
    message = str(refused.value)
    assert said in message
    assert "the state of computation 'x'" in message
    assert "State is a dataclass whose fields have defaults, or int" in message


# ------------------------------------------------------------------------------------------------------------ columns


def test_columns_become_numpy_types():
    columns = tm.Columns("a boolean, b byte, c short, d int, e long, f float, g double")
    assert state_of(columns, "x") == ColumnState(
        (
            ("a", "bool"),
            ("b", "int8"),
            ("c", "int16"),
            ("d", "int32"),
            ("e", "int64"),
            ("f", "float32"),
            ("g", "float64"),
        )
    )


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("n long, word string", "can't have column 'word' of type string: columns of state are boolean, byte"),
        ("at timestamp", "Keep times as long microseconds"),
        ("rows long", "can't have a column 'rows': as an attribute of the state that name is taken"),
        ("_n long", "can't have a column '_n'"),
        ("`n n` long", "can't have a column 'n n'"),
    ],
)
def test_columns_that_state_cannot_have(written, said):
    columns = tm.Columns(written)
    with pytest.raises(StateTypeError) as refused:
        state_of(columns, "computation 'x'")
    assert said in str(refused.value)
    assert f"The Columns (declared at {columns.declared_at}) of computation 'x'" in str(refused.value)
    assert columns.declared_at.startswith("test_state.py:")


def test_columns_that_cannot_be_read_are_refused_on_the_spot():
    with pytest.raises(SchemaError, match=r"The schema of the Columns declared at test_state.py:\d+ can't be used"):
        tm.Columns("n lung")


def test_columns_say_where_they_stand():
    assert repr(tm.Columns("n long")).startswith("<Columns declared at test_state.py:")
    assert copy.deepcopy(tm.Columns("n long")).schema == tm.Columns("n long").schema
