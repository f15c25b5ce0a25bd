"""Ends a worker's process whose coordinator is gone, even if user code never comes back.

The worker's own loop looks at its lifeline between two bundles, and one bundle may take minutes. A thread waits at the
same lifeline: when it is cut, the loop has some time to end in good order, and then the process ends as it is. Nobody
is left to take what it does.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from typing import Final

GRACE: Final = 2.0
"""Seconds that the loop has to end by itself."""


class OrphanWatch:
    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._ended = threading.Event()
        self._reader, self._writer = os.pipe()
        self._thread = threading.Thread(target=self._watch, name="tidemill-orphan", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        waiting = select.poll()  # unlike `select`, for any number of open files
        waiting.register(self._line, select.POLLIN)
        waiting.register(self._reader, select.POLLIN)
        waiting.poll()
        if not self._ended.wait(GRACE):
            os._exit(1)

    def close(self) -> None:
        """The loop has ended. Spark may use this process again."""
        self._ended.set()
        os.write(self._writer, b"\0")
        self._thread.join()
        os.close(self._reader)
        os.close(self._writer)
