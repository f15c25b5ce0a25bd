"""For those who write pipelines: try them in one process, with the clock in hand, and put them through failures.

`replay` gives the outputs for some rows. `Stage` goes step by step: send records, move the watermark or the clock and
look. `simulate` runs the pipeline on a simulated cluster that fails, from a seed.
"""

from tidemill.hosts.simulator.faults import CrashPoint, Faults
from tidemill.testing.replay import replay
from tidemill.testing.simulate import Simulated, simulate
from tidemill.testing.stage import Row, Stage

__all__ = ["CrashPoint", "Faults", "Row", "Simulated", "Stage", "replay", "simulate"]
