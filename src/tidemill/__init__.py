"""Tidemill: stateful streams and graphs in Python on Spark, with five ways to recover."""

from tidemill import errors, sinks, sources, testing
from tidemill.api.computation import Computation, Input, Output
from tidemill.api.state import Columns
from tidemill.errors import DataError, PipelineError, RunError, TidemillError
from tidemill.hosts.spark.datasource import register
from tidemill.hosts.spark.run import Run
from tidemill.launch import run
from tidemill.planned import Pipeline
from tidemill.ports import ARRIVAL
from tidemill.windows.fold import fold
from tidemill.windows.spans import count, session, sliding, tumbling

__all__ = [
    "ARRIVAL",
    "Columns",
    "Computation",
    "DataError",
    "Input",
    "Output",
    "Pipeline",
    "PipelineError",
    "Run",
    "RunError",
    "TidemillError",
    "count",
    "errors",
    "fold",
    "register",
    "run",
    "session",
    "sinks",
    "sliding",
    "sources",
    "testing",
    "tumbling",
]
