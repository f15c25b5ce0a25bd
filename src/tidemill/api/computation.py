"""How a user writes a computation: a class with inputs, outputs and a kind of state as attributes.

These are values. What they say is proved sound in `shape` and `check`, once the whole pipeline is known; only a
schema that can't be read is refused at once, on the user's own line.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final
from weakref import WeakValueDictionary

import pyarrow as pa

from tidemill.api.schema import read_schema
from tidemill.api.wording import declared_at
from tidemill.core.graph import InSql, LateChoice
from tidemill.core.ids import Micros
from tidemill.errors import ComputationError

KeyChoice = str | tuple[str, ...] | Callable[[Any], Any]
ChooseLate = Callable[[Any, Micros], LateChoice]


class Output:
    """A stream that a computation produces. User code hands the object itself to `ctx.produce`.

    Outputs are told apart by identity, so the object must stay one and the same: a copy of a computation shares its
    outputs, and one that is pickled with its class, or apart from it, is the class's own object where it arrives.
    """

    def __init__(self, schema: Any, stream: str | None = None) -> None:
        self.declared_at: Final = declared_at()
        self.schema: pa.Schema = read_schema(schema, f"the Output declared at {self.declared_at}")
        self.given_stream: Final = stream
        self._home: tuple[str, str, str] | None = None  # module, class and attribute that it first stood under
        self._token = uuid.uuid4().hex
        _OUTPUTS[self._token] = self

    def __set_name__(self, owner: type, name: str) -> None:
        self.settle(owner, name)

    def settle(self, owner: type, name: str) -> None:
        """Takes its name from the first attribute it stands under; later ones change nothing."""
        if self._home is None:
            self._home = (owner.__module__, owner.__qualname__, name)

    @property
    def stream(self) -> str:
        if self.given_stream is not None:
            return self.given_stream
        if self._home is None:
            raise ComputationError(
                f"The Output declared at {self.declared_at} has no name. Make it an attribute of the computation's "
                "class, or give it stream=."
            )
        return self._home[2]

    def __repr__(self) -> str:
        name = self.given_stream or (self._home[2] if self._home else "unnamed")
        return f"<Output '{name}' declared at {self.declared_at}>"

    def __copy__(self) -> Output:
        return self

    def __deepcopy__(self, memo: Any) -> Output:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _same_output, (self._token, self._home, dict(self.__dict__))


_OUTPUTS: Final[WeakValueDictionary[str, Output]] = WeakValueDictionary()


def _same_output(token: str, home: tuple[str, str, str] | None, values: dict[str, Any]) -> Output:
    """The one object in this process that stands for a pickled output.

    It is the very one, or the one of the same class where that was imported here, or a new one for all who ask.
    """
    output = _OUTPUTS.get(token) or _imported_output(home, values)
    if output is None:
        output = Output.__new__(Output)
        output.__dict__.update(values)
    _OUTPUTS[token] = output
    return output


def _imported_output(home: tuple[str, str, str] | None, values: dict[str, Any]) -> Output | None:
    if home is None:
        return None
    try:
        found: Any = import_module(home[0])
    except ImportError:
        return None
    for name in (*home[1].split("."), home[2]):
        found = getattr(found, name, None)
    if not isinstance(found, Output):
        return None
    same = found.schema == values["schema"] and found.given_stream == values["given_stream"]
    return found if same else None


class Input:
    """A stream that a computation reads, and how a record's key is found: a column, several, or a function.

    `late` says what becomes of records behind the mark: "drop", "process", an `Output` of the same computation that
    they are diverted to, or a function of the record and the watermark that answers "drop", "process" or "divert" (to
    the Output `divert`). Without it the pipeline's own choice holds. With "self", a vectorised computation is given all
    of them and judges by itself what is late: `ctx.count_late(records)`.

    With `key=None` a vectorised computation without state takes records as they come, in whichever shard.
    """

    def __init__(
        self,
        stream: str | None = None,
        *,
        key: KeyChoice | None,
        late: str | Output | ChooseLate | None = None,
        divert: str | Output | None = None,
    ) -> None:
        self.declared_at: Final = declared_at()
        self.stream: Final = stream
        self.key: Final = key
        self.late: Final = late
        self.divert: Final = divert

    def __repr__(self) -> str:
        return f"<Input declared at {self.declared_at}>"


class Computation:
    """The user's code over keyed streams, for one key at a time: `process_record`, and `process_timer` for timers.

    Or, in its vectorised form, for a whole bundle of a shard: `process_bundle`, and `process_watermark` where needed.
    """

    state: Any = None
    """The type of a key's state; `tm.Columns` in the vectorised form; None for none."""

    reads: Mapping[str, tuple[str, ...]] | None = None
    """By stream, the columns that it looks at. What is not named may come as nulls, where that saves moving it; what a
    stream is keyed by always comes. None: all of them.
    """

    in_sql: InSql | None = None
    """The same in the words of Spark SQL, if it can be said so: then a plan lets Spark do it."""

    def process_record(self, ctx: Any, record: Any) -> None:  # noqa: ARG002 - they are for subclasses
        raise ComputationError(f"{type(self).__name__} has no process_record(self, ctx, record)")

    def process_timer(self, ctx: Any, timer: Any) -> None:  # noqa: ARG002 - they are for subclasses
        raise ComputationError(f"{type(self).__name__} sets timers but has no process_timer(self, ctx, timer)")

    def process_bundle(self, ctx: Any, batch: Any) -> None:  # noqa: ARG002 - they are for subclasses
        raise ComputationError(f"{type(self).__name__} has no process_bundle(self, ctx, batch)")

    def process_watermark(self, ctx: Any) -> None:
        """Called when the input mark has risen. By default there is nothing to do."""


def attributes(computation: Computation | type[Computation], kind: type[Any]) -> dict[str, Any]:
    """The inputs or outputs it has, by attribute: inherited ones first, then its class's, then the instance's own."""
    owner = computation if isinstance(computation, type) else type(computation)
    found: dict[str, Any] = {}
    for base in reversed(owner.__mro__):
        found.update(vars(base))
    if not isinstance(computation, type):
        found.update(getattr(computation, "__dict__", {}))
    return {name: value for name, value in found.items() if isinstance(value, kind)}
