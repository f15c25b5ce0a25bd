"""How errors speak of the user's program: where a thing was declared, what exists, and what was probably meant."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from pathlib import PurePath
from typing import Final

_OWN: Final = ("tidemill.api.", "tidemill.windows.", "tidemill.sources.", "tidemill.sinks.")


def declared_at() -> str:
    """`file.py:12` of the call that led here from outside: the user's line, however deep our own code is."""
    frame = sys._getframe(1)  # noqa: SLF001 - `inspect.stack` reads source files for every frame
    while frame.f_globals.get("__name__", "").startswith(_OWN) and frame.f_back is not None:
        frame = frame.f_back
    return f"{PurePath(frame.f_code.co_filename).name}:{frame.f_lineno}"


def listing(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"


def meant(name: str, names: Iterable[str]) -> str:
    """A sentence that suggests the near match, or nothing."""
    by_folded = {other.lower(): other for other in names}
    near = difflib.get_close_matches(name.lower(), by_folded, n=1)
    return f" Did you mean '{by_folded[near[0]]}'?" if near else ""


def sentence(words: str) -> str:
    """The words as a sentence begins: `str.capitalize` would change the names among them."""
    return words[:1].upper() + words[1:]
