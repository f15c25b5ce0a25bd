"""The Spark session that a run lives in: the user's, or a local one that is made for the run and closed with it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from tidemill.errors import RunError


def active_session() -> Any:
    """The session that there is; None if there is none."""
    _check_pyspark()
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def new_session(master: str, name: str) -> Any:
    """A session of our own. The workers' Python is this one."""
    _check_pyspark()
    _check_java()
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in _settings(master).items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except (PySparkException, OSError, RuntimeError) as error:
        raise RunError(f"Spark did not start with master {master!r}: {error}") from error
    session.sparkContext.setLogLevel("ERROR")
    return session


def _settings(master: str) -> dict[str, str]:
    settings = {"spark.ui.showConsoleProgress": "false"}
    if master.startswith("local"):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return settings


def _check_pyspark() -> None:
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


def driver_host(session: Any) -> str:
    """An address of this machine that the executors reach."""
    if is_remote(session):
        import socket

        return socket.gethostbyname(socket.gethostname())
    host = session.conf.get("spark.driver.host", "127.0.0.1")
    master = session.conf.get("spark.master", "")
    return "127.0.0.1" if master.startswith(("local[", "local-cluster")) or master == "local" else str(host)
