"""A stream that can't fail: a run must not end because a terminal is closed, a pipe has no reader, a disk is full."""

from __future__ import annotations

import contextlib
import io
from typing import TextIO


class CalmStream(io.TextIOBase):
    """Writes to another stream as long as that takes anything. Closing it leaves the other open."""

    def __init__(self, stream: TextIO | None) -> None:
        super().__init__()
        self._stream = stream  # there is none in a program without a console

    @property
    def encoding(self) -> str:  # type: ignore[override]  # it is a plain attribute there
        return getattr(self._stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):  # ValueError is what a closed file raises
            self._pass_on(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            if self._stream is not None:
                self._stream.flush()

    def isatty(self) -> bool:
        try:
            return self._stream is not None and self._stream.isatty()
        except (OSError, ValueError):
            return False

    def _pass_on(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(text)
        except UnicodeEncodeError:
            self._stream.write(text.encode(self.encoding, "replace").decode(self.encoding))
