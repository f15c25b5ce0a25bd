"""One computation, checked by itself: its form, its inputs and outputs, its state, and how a shard gets its own."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tidemill.api.computation import Computation, Input, Output, attributes
from tidemill.api.declarations import ComputationDeclaration
from tidemill.api.state import Columns, Table, state_of
from tidemill.api.wording import listing, meant, sentence
from tidemill.core.graph import ColumnState, Node, Program, RowState, TableState
from tidemill.core.ids import NodeName, StreamName
from tidemill.errors import ComputationError, DuplicateNameError

_METHODS: Final = ("process_record", "process_timer", "process_bundle", "process_watermark")


@dataclass(frozen=True)
class Shape:
    """What a computation says of itself. Sound by itself; what it says of streams is not checked yet."""

    declared: ComputationDeclaration
    inputs: dict[StreamName, Input]
    outputs: dict[str, Output]
    """By attribute, so that `late=` may name one."""

    methods: frozenset[str]
    """Those that the user wrote."""

    make: Callable[[], Program]
    state: RowState | ColumnState | TableState | None

    def __str__(self) -> str:
        return str(self.declared)

    @property
    def name(self) -> NodeName:
        return NodeName(self.declared.name)

    @property
    def needs_time(self) -> str | None:
        """The method, if any, that is never called where records have no event time."""
        return next((name for name in ("process_timer", "process_watermark") if name in self.methods), None)

    def node(self) -> Node:
        ports = tuple(self.outputs.values())
        return Node(
            self.name,
            "computation",
            outputs=tuple(StreamName(port.stream) for port in ports),
            ports=ports,
            make=self.make,
            state=self.state,
            vectorised="process_bundle" in self.methods,
            declared_at=self.declared.declared_at,
            reads=self.declared.computation.reads,
            in_sql=self.declared.computation.in_sql,
        )


def shape_of(declared: ComputationDeclaration) -> Shape:
    owner, given = str(declared), declared.computation
    kind = given if isinstance(given, type) else type(given)
    if not issubclass(kind, Computation):
        raise ComputationError(
            f"pipeline.add at {declared.declared_at} was given {given!r}, which is no computation. Give it a "
            "subclass of tidemill.Computation, or an instance of one."
        )
    methods = _methods(kind, owner)
    state = given.state
    _check_form(methods, state, owner)
    return Shape(
        declared,
        _inputs(given, owner),
        _outputs(given, owner),
        methods,
        _maker(given, owner),
        state_of(state, owner),
    )


# ---------------------------------------------------------------------------------------------------------- its form


def _methods(kind: type[Computation], owner: str) -> frozenset[str]:
    found = frozenset(name for name in _METHODS if getattr(kind, name) is not getattr(Computation, name))
    for name in sorted(found):
        method = getattr(kind, name)
        if (
            inspect.iscoroutinefunction(method)
            or inspect.isgeneratorfunction(method)
            or inspect.isasyncgenfunction(method)
        ):
            raise ComputationError(
                f"{name} of {owner} is asynchronous or a generator, so calling it would do nothing. Write a plain "
                "function, and call ctx.produce for each record it makes."
            )
    if not found & {"process_record", "process_bundle"}:
        mine = sorted(name for name in dir(kind) if not name.startswith("_") and not hasattr(Computation, name))
        near = meant("process_record", mine) or meant("process_bundle", mine)
        raise ComputationError(
            f"{sentence(owner)} has neither process_record nor process_bundle; its own attributes are: "
            f"{listing(mine)}.{near} Define process_record(self, ctx, record)."
        )
    return found


def _check_form(methods: frozenset[str], state: Any, owner: str) -> None:
    vectorised = "process_bundle" in methods
    if vectorised and "process_record" in methods:
        why = "process_record and process_bundle. Keep one: a computation sees records, or whole bundles"
    elif vectorised and "process_timer" in methods:
        why = "process_bundle and process_timer. Timers belong to keys: use process_record, or process_watermark"
    elif not vectorised and "process_watermark" in methods:
        why = "process_record and process_watermark, which goes with process_bundle. Set timers, use process_timer"
    elif vectorised and state is not None and not isinstance(state, (Columns, Table)):
        why = (
            f'process_bundle and state = {state!r}. Declare the state in columns, tm.Columns("n long"), or leave it out'
        )
    elif not vectorised and isinstance(state, (Columns, Table)):
        why = "process_record and state in tm.Columns. Make the state a dataclass, or define process_bundle instead"
    else:
        return
    raise ComputationError(f"{sentence(owner)} defines {why}.")


# ------------------------------------------------------------------------------------------------ inputs and outputs


def _inputs(given: Any, owner: str) -> dict[StreamName, Input]:
    inputs: dict[StreamName, Input] = {}
    for attribute, port in attributes(given, Input).items():
        stream = StreamName(attribute if port.stream is None else port.stream)
        _check_stream(stream, port, owner)
        if stream in inputs:
            raise ComputationError(
                f"{sentence(owner)} reads stream '{stream}' twice: by the Inputs declared at "
                f"{inputs[stream].declared_at} and {port.declared_at}. Keep one; to read it by another key, add "
                "another computation."
            )
        inputs[stream] = port
    if not inputs:
        raise ComputationError(f'{sentence(owner)} has no Input. Give its class one: words = tm.Input(key="word").')
    return inputs


def _check_stream(stream: Any, port: Input | Output, owner: str) -> None:
    if not isinstance(stream, str) or not stream:
        kind = type(port).__name__
        raise ComputationError(
            f"The {kind} (declared at {port.declared_at}) of {owner} has stream={stream!r}. A stream goes by its name: "
            f'stream="words", or the name of the attribute if the {kind} has none.'
        )


def _outputs(given: Any, owner: str) -> dict[str, Output]:
    kind = given if isinstance(given, type) else type(given)
    outputs: dict[str, Output] = attributes(given, Output)
    by_stream: dict[str, tuple[str, Output]] = {}
    for attribute, port in outputs.items():
        port.settle(kind, attribute)
        _check_stream(port.stream, port, owner)
        first, other = by_stream.setdefault(port.stream, (attribute, port))
        if first == attribute:
            continue
        if other is port:
            raise ComputationError(
                f"One Output (declared at {port.declared_at}) is both '{first}' and '{attribute}' of {owner}. Keep "
                "one, or make two Outputs."
            )
        raise DuplicateNameError(
            f"{sentence(owner)} has two Outputs for stream '{port.stream}': '{first}', declared at "
            f"{other.declared_at}, and '{attribute}', declared at {port.declared_at}. Give one of them another stream=."
        )
    return outputs


# ---------------------------------------------------------------------------------------------------- a shard's own


def _maker(given: Any, owner: str) -> Callable[[], Program]:
    if isinstance(given, type):
        try:
            inspect.signature(given).bind()
        except TypeError as error:
            raise ComputationError(
                f"{sentence(owner)} was added as a class, and making a {given.__name__} needs arguments ({error}). Add "
                f"an instance: pipeline.add({given.__name__}(...)); each shard gets a copy of it."
            ) from None
        made: Callable[[], Program] = given
        return made
    try:
        model = copy.deepcopy(given)  # what becomes of the user's own from now on changes no shard
    except Exception as error:  # noqa: BLE001 - whatever the user's object holds
        raise ComputationError(
            f"The instance given as {owner} can't be copied for each shard ({error}). Keep only plain values in it, "
            "and open connections where they are used."
        ) from None
    return functools.partial(copy.deepcopy, model)
