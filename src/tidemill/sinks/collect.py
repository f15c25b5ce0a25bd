"""A sink that is a list in the program that runs the pipeline: for trying things, and for tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class Collect:
    """After a run, `rows` holds what the stream brought, each record a dict of its columns."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def extend(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self.rows.extend(map(dict, rows))

    def __repr__(self) -> str:
        return f"<Collect of {len(self.rows)} rows>"
