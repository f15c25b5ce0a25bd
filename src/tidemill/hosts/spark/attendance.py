"""The coordinator's process as the driver sees it: started, listened to, and ended.

The driver binds the ports that the coordinator listens on and hands them over, so that the workers' jobs can be
submitted before the coordinator is up. What it says is heard by a thread of the driver's own.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import zmq

from tidemill.errors import RunError
from tidemill.hosts.spark import protocol
from tidemill.hosts.spark.coordinator import DRIVER
from tidemill.hosts.spark.orders import CoordinatorOrders
from tidemill.hosts.spark.secrets import Secrets
from tidemill.hosts.spark.sockets import bound_port, connected
from tidemill.hosts.spark.transport import CONTROL

MAIN: Final = "from tidemill.hosts.spark.coordinator import main; main()"

GRACE: Final = 5.0
"""Seconds that the coordinator has to end by itself."""


class Attendance:
    def __init__(self, host: str, secrets: Secrets) -> None:
        self._secrets = secrets
        self._door = bound_port(host)
        self._lifelines = bound_port(host)
        self.address = f"tcp://{host}:{self._door.getsockname()[1]}"
        self.lifeline: tuple[str, int] = (host, self._lifelines.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._context: zmq.Context[Any] = zmq.Context()
        self._outbox: list[protocol.Control] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(
        self,
        orders: CoordinatorOrders,
        pickled: Callable[[Any], bytes],
        *,
        hear: Callable[[protocol.Control], None],
        died: Callable[[str], None],
    ) -> None:
        door, lifelines = self._door.fileno(), self._lifelines.fileno()
        data = pickled(replace(orders, door=door, lifelines=lifelines))
        self._process = subprocess.Popen(  # noqa: S603 - this very program, once more
            [sys.executable, "-c", f"import sys; sys.path[:] = {import_paths()}; {MAIN}"],
            stdin=subprocess.PIPE,
            pass_fds=(door, lifelines),
            start_new_session=True,  # Ctrl-C on the terminal is the driver's
        )
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(len(data).to_bytes(8, "big") + data)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise RunError("the coordinator's process did not start; what it said stands above") from None
        self._door.close()
        self._lifelines.close()
        self._thread = threading.Thread(target=self._listen, args=(hear, died), name="tidemill-listen", daemon=True)
        self._thread.start()

    def say(self, message: protocol.Control) -> None:
        """From any thread; it leaves within some milliseconds."""
        with self._lock:
            self._outbox.append(message)

    def _listen(self, hear: Callable[[protocol.Control], None], died: Callable[[str], None]) -> None:
        way = connected(self._context, self._secrets, self.address, identity=DRIVER)
        try:
            self._go_on_listening(way, hear)
            ended = f"the coordinator's process ended with {self._process.returncode}" if self._process else ""
        except Exception as error:  # noqa: BLE001 - whoever looks on may raise what they like, and a run must end
            ended = f"listening to the coordinator's process raised {type(error).__name__}: {error}"
        finally:
            way.close(0)
        if not self._closing.is_set():
            died(ended)

    def _go_on_listening(self, way: zmq.Socket[Any], hear: Callable[[protocol.Control], None]) -> None:
        """Until the process has ended, and all that it said was heard: this thread may have slept meanwhile."""
        assert self._process is not None
        way.send(CONTROL + protocol.encode(protocol.Attach(protocol.VERSION)))
        patience = 20
        while True:
            with self._lock:
                waiting, self._outbox = self._outbox, []
            for message in waiting:
                way.send(CONTROL + protocol.encode(message))
            if way.poll(patience):
                heard = protocol.decode(memoryview(way.recv())[1:])
                hear(heard)
                if isinstance(heard, protocol.Ended):
                    self.say(protocol.Heard())
            elif patience > 20:
                return
            elif self._process.poll() is not None:
                patience = 200

    def close(self, *, grace: float = GRACE) -> None:
        """Lets the coordinator end by itself, or ends it."""
        self._closing.set()
        self._door.close()
        self._lifelines.close()
        if self._process is not None:
            assert self._process.stdin is not None
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace)
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            if self._process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(1.0)
                self._process.kill()
            self._process.wait()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(GRACE)
        self._context.destroy(0)


def import_paths() -> list[str]:
    """Where this program imports from: what is there for its other processes too, is found by them too."""
    return [os.path.abspath(path) for path in sys.path]  # noqa: PTH100 - `resolve` would follow links


def pickled(value: Any) -> bytes:
    """By reference where the class can be imported, else by value."""
    from pyspark import cloudpickle

    data: bytes = cloudpickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)  # type: ignore[no-untyped-call]
    return data
