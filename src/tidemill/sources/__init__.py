"""Where records come from: each source is one file, and they know nothing of each other."""

from tidemill.sources.rows import Rows

__all__ = ["Rows"]
