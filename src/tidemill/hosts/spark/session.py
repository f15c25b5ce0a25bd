"""The Spark session that a run lives in: the user's, or a local one that is made for the run and closed with it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from tidemill.errors import RunError

QUIET: Final = Path(__file__).with_name("log4j2.properties")
"""For where nobody has configured Spark's logging: its start is no news."""

JAVA_ENDS: Final = 3.0
"""Seconds that Spark's own process has to end by itself."""


def active_session() -> Any:
    """The session that there is; None if there is none."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is None and SparkContext._active_spark_context is not None:  # noqa: SLF001 - nothing else tells
        active = SparkSession.builder.getOrCreate()  # made by another thread
    return active


def new_session(master: str, name: str, settings: Mapping[str, str] | None = None, java: str = "") -> OwnSession:
    """A session of our own. The workers' Python is this one. `java` has options for Spark's own processes."""
    _check_java()
    from py4j.protocol import Py4JError
    from pyspark import SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    starts_java = SparkContext._gateway is None  # noqa: SLF001 - nothing else tells
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in (_settings(master, java) | dict(settings or {})).items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except (PySparkException, Py4JError, OSError, RuntimeError) as error:
        if starts_java:
            _end_java()
        raise RunError(f"Spark did not start with master {master!r}: {_first_line(error)}") from error
    session.sparkContext.setLogLevel("ERROR")
    return OwnSession(session, starts_java=starts_java)


class OwnSession(NamedTuple):
    """A session that was made for one run."""

    session: Any
    starts_java: bool

    def close(self) -> None:
        with contextlib.suppress(Exception):  # a cluster that gave the program up has ended Java already
            self.session.stop()
        if self.starts_java:
            _end_java()


def _end_java() -> None:
    """Spark's own process outlives its session, for the next one in this program. A run leaves nothing behind."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._active_spark_context = SparkSession._instantiatedSession = None  # noqa: SLF001 - if Java died, they are left
    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None  # noqa: SLF001 - Spark has no other way
    if gateway is None:
        return
    process = getattr(gateway, "proc", None)
    with contextlib.suppress(Exception):
        gateway.shutdown()
    if process is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()  # it ends with its parent's word
        try:
            process.wait(JAVA_ENDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _first_line(error: Exception) -> str:
    """Of an error of Java's: what it says, without its stack."""
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage() if java is not None and java.getMessage() else error)
    return text.strip().splitlines()[0] if text.strip() else type(error).__name__


def _settings(master: str, java: str) -> dict[str, str]:
    settings = {"spark.ui.showConsoleProgress": "false"}
    if master.startswith("local"):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if java:
        settings["spark.executor.extraJavaOptions"] = java
    if "SPARK_CONF_DIR" not in os.environ and "SPARK_HOME" not in os.environ:
        java = f"-Dlog4j2.configurationFile={QUIET.as_uri()} {java}".strip()
    if java:
        settings["spark.driver.extraJavaOptions"] = java
    return settings


def check_pyspark() -> None:
    try:
        import pyspark  # noqa: F401 - only to see that it is there
    except ImportError:
        raise RunError("a live run needs PySpark, which is not installed here: pip install 'tidemill[spark]'") from None


def _check_java() -> None:
    """Spark's own message for a missing Java does not name it."""
    home = os.environ.get("JAVA_HOME")
    if home:
        if not (Path(home) / "bin" / "java").exists():
            raise RunError(f"JAVA_HOME is {home!r}, where there is no bin/java. Unset it, or name a Java 17 or newer.")
    elif shutil.which("java") is None:
        raise RunError(
            "Spark needs Java, and there is none on the path. Install Java 17 or newer (Debian and Ubuntu: "
            "apt-get install openjdk-17-jre-headless), or set JAVA_HOME."
        )


def is_remote(session: Any) -> bool:
    """Whether it is a Spark Connect session, which has no context in this process."""
    return "connect" in type(session).__module__


def is_local(session: Any) -> bool:
    """Whether all of its executors are on this machine."""
    return not is_remote(session) and str(session.conf.get("spark.master", "")).startswith("local")


def driver_host(session: Any) -> str:
    """An address of this machine that the executors reach."""
    if is_remote(session):
        import socket

        return socket.gethostbyname(socket.gethostname())
    host = session.conf.get("spark.driver.host", "127.0.0.1")
    master = session.conf.get("spark.master", "")
    return "127.0.0.1" if master.startswith(("local[", "local-cluster")) or master == "local" else str(host)
