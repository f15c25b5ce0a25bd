"""Where records come from: each source is one file, and they know nothing of each other."""

from tidemill.ports import SCHEDULED
from tidemill.sources.feed import Feed
from tidemill.sources.files import Files
from tidemill.sources.generator import Generator
from tidemill.sources.rows import Rows
from tidemill.sources.table import Table

__all__ = ["SCHEDULED", "Feed", "Files", "Generator", "Rows", "Table"]
