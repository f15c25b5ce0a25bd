"""Where records leave: each sink is one file, and they know nothing of each other."""

from tidemill.sinks.callback import Callback
from tidemill.sinks.collect import Collect
from tidemill.sinks.parquet import Parquet

__all__ = ["Callback", "Collect", "Parquet"]
