"""Where records leave: each sink is one file, and they know nothing of each other."""

from tidemill.sinks.collect import Collect

__all__ = ["Collect"]
