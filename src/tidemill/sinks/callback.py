"""A sink that calls a function with each row: for a dashboard, an alert, or whatever a program does with results.

The function is called in the program that runs the pipeline, with rows that are final, each once, and in the order of
their key. What it does with a row is outside of the run: if the program dies in the middle of a call, nobody knows how
far the call came. Where that matters, write a sink with commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tidemill.api.wording import declared_at
from tidemill.errors import PipelineError


class Callback:
    """`function` is called with each row, a dict of its columns; with `batches`, with lists of them, never empty.

    What it raises ends the run.
    """

    def __init__(self, function: Callable[[Any], object], *, batches: bool = False) -> None:
        if not callable(function):
            raise PipelineError(
                f"The Callback declared at {declared_at()} can't call {function!r}. Give it a function of "
                f"{'a list of rows' if batches else 'a row'}."
            )
        self._function = function
        self._batches = batches

    def extend(self, rows: Iterable[Mapping[str, Any]]) -> None:
        if not self._batches:
            for row in rows:
                self._function(dict(row))
        elif batch := list(map(dict, rows)):
            self._function(batch)

    def __repr__(self) -> str:
        return f"<Callback of {getattr(self._function, '__qualname__', repr(self._function))}>"
