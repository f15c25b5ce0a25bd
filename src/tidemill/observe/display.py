"""What a run shows while it goes on: a live display on a terminal, a line now and then everywhere else.

It is fed with progress, seldom or often, and draws at its own pace. There is no thread: what is not due waits for the
next progress, or for the end. The last state stays on the screen.
"""

from __future__ import annotations

import atexit
import os
import sys
from threading import RLock
from time import monotonic
from types import TracebackType
from typing import IO, Final, TextIO, cast, final

from rich.console import Console
from rich.file_proxy import FileProxy
from rich.live import Live
from rich.text import Text

from tidemill.observe.panel import panel
from tidemill.observe.progress import ENDED, Progress
from tidemill.observe.rates import Pace, Rates
from tidemill.observe.stream import CalmStream
from tidemill.observe.summary import summary
from tidemill.observe.wording import one_line

REDRAW: Final = 0.25
"""Seconds between two drawings, at least."""

LINE: Final = 10.0
"""Seconds between two lines while the status is the same, at least."""


@final
class Display:
    """Shows the progress of one run on a stream: standard error, unless another is given. Never raises for its sake."""

    def __init__(self, stream: TextIO | None = None, *, force_terminal: bool | None = None) -> None:
        shown_on = sys.stderr if stream is None else stream
        calm = CalmStream(shown_on)
        terminal = calm.isatty() if force_terminal is None else force_terminal
        if os.environ.get("TERM", "").lower() in ("dumb", "unknown"):
            terminal = False  # it can't go back to what it has drawn
        if isinstance(shown_on, FileProxy):
            terminal = False  # another live display has it, and lets lines through
        self._form: _Drawing | _Lines = _Drawing(calm) if terminal else _Lines(calm)
        self._pace = Pace()
        self._status: str | None = None
        self._closed = False
        self._lock = RLock()

    def show(self, progress: Progress) -> None:
        with self._lock:
            if self._closed:
                return
            rates = self._pace.of(progress)
            changed, self._status = progress.status != self._status, progress.status
            self._form.show(progress, rates, changed=changed)

    def say(self, text: str) -> None:
        """One line, above the live display. It is written after `close` too."""
        with self._lock:
            self._form.say(one_line(text))

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                self._form.close()

    def __enter__(self) -> Display:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Lines:
    """For logs: a line at each change of status, and one now and then in between."""

    def __init__(self, stream: CalmStream) -> None:
        self._stream = stream
        self._said = -LINE

    def show(self, progress: Progress, rates: Rates | None, *, changed: bool) -> None:
        due = progress.status not in ENDED and monotonic() - self._said >= LINE
        if changed or due:
            self._said = monotonic()
            self.say(summary(progress, rates))

    def say(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()

    def close(self) -> None:
        pass


class _Drawing:
    """For people: drawn again and again at the same place, below all that is said meanwhile."""

    def __init__(self, stream: CalmStream) -> None:
        self._console = Console(
            file=cast("IO[str]", stream),
            force_terminal=True,
            force_interactive=True,
            force_jupyter=False,
            markup=False,
            emoji=False,
            highlight=False,
        )
        self._live: Live | None = None
        self._drawn = -REDRAW
        self._waiting: tuple[Progress, Rates | None] | None = None

    def show(self, progress: Progress, rates: Rates | None, *, changed: bool) -> None:
        self._waiting = (progress, rates)
        if changed or monotonic() - self._drawn >= REDRAW:
            self._draw()

    def say(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)

    def close(self) -> None:
        self._draw()
        if self._live is not None:
            for proxy in (sys.stdout, sys.stderr):
                if isinstance(proxy, FileProxy):
                    proxy.flush()  # a line that was begun would be lost with it
            self._live.stop()
            self._live = None
            atexit.unregister(self.close)

    def _draw(self) -> None:
        if self._waiting is None:
            return
        picture, self._waiting = panel(*self._waiting), None
        self._drawn = monotonic()
        if self._live is not None:
            self._live.update(picture, refresh=True)
            return
        # What the program prints meanwhile must appear above; what goes into a file must go on going there.
        self._live = Live(
            picture,
            console=self._console,
            auto_refresh=False,
            redirect_stdout=CalmStream(sys.stdout).isatty(),
            redirect_stderr=CalmStream(sys.stderr).isatty(),
        )
        atexit.register(self.close)  # a program that ends without closing would leave the cursor hidden
        self._live.start(refresh=True)
