"""`tm.Pipeline`: the pipeline of the API, which can also become a DataFrame.

The API builds values and knows no Spark; what is added here is the one step from a pipeline to Spark's own plan. Where
it is to run live instead, `launch` is the way.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from tidemill.api import pipeline
from tidemill.api.settling import settled
from tidemill.core.ids import Micros, NodeName, StreamName
from tidemill.errors import PipelineError


class Pipeline(pipeline.Pipeline):
    __doc__ = pipeline.Pipeline.__doc__

    def as_dataframe(
        self,
        stream: str,
        inputs: Mapping[str, Any] | None = None,
        *,
        spark: Any = None,
        timestamp: str | None = None,
        now: Any = None,
        seed: int = 0,
    ) -> Any:
        """The stream as a lazy DataFrame, computed by nothing but Spark, from all of the input.

        `inputs` gives DataFrames in place of the pipeline's sources, by stream; a source that is given none is read to
        its end. `timestamp` adds the records' event times in a column of this name. `now` is what `ctx.now` says
        (this moment, unless given), `seed` what `ctx.random` follows from.
        """
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as all of Spark's users write it

        plan = self._plan(dict(inputs or {}), spark, now, seed)
        frame = plan.stream(StreamName(stream))
        times = F.timestamp_micros(frame["__at"])
        return frame.drop("__at") if timestamp is None else frame.withColumn(timestamp, times).drop("__at")

    def state_dataframe(
        self,
        computation: str,
        inputs: Mapping[str, Any] | None = None,
        *,
        until: Any = None,
        spark: Any = None,
        now: Any = None,
        seed: int = 0,
    ) -> Any:
        """What a computation's state is after all of the input, as a lazy DataFrame with a row for each key.

        `key` and `state` are there to be read, as JSON; the rest is what `tm.run(initial_state=...)` begins with. The
        timers that are due at the last record of a partition have fired, and those due at `until`; later ones are part
        of the state.
        """
        from tidemill.core.context import micros  # noqa: PLC0415 - as below

        plan = self._plan(dict(inputs or {}), spark, now, seed)
        return plan.state(NodeName(computation), None if until is None else micros(until))

    def _plan(self, inputs: dict[str, Any], spark: Any, now: Any, seed: int) -> Any:
        from tidemill.core.context import micros  # noqa: PLC0415
        from tidemill.hosts.spark.plan import Plan  # noqa: PLC0415

        at = Micros(time.time_ns() // 1_000) if now is None else micros(now)
        return Plan(settled(self.graph(), at), inputs, _session(spark, inputs), at, seed)


def _session(given: Any, inputs: Mapping[str, Any]) -> Any:
    from tidemill.hosts.spark.session import active_session, check_pyspark  # noqa: PLC0415

    if given is not None:
        return given
    for frame in inputs.values():
        if hasattr(frame, "sparkSession"):
            return frame.sparkSession
    check_pyspark()
    active = active_session()
    if active is None:
        raise PipelineError("as_dataframe needs a Spark session: give spark=, or make one first.")
    return active
