"""What the built-in computations have in common: the streams they read, each through chains of steps, and their names.

A stream may be read through several chains (the union of two parts of it, say), so reading is a mapping from streams to
chains.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.api.computation import Computation, Input, Output
from tidemill.windows.aggregates import Rows
from tidemill.windows.groups import Int64s
from tidemill.windows.steps import Chain

Chains = Mapping[str, tuple[Chain, ...]]


class Reading(Computation):
    """Its inputs and outputs are the instance's own, because they depend on what it is made for."""

    def read(self, chains: Chains, keys: Mapping[str, tuple[str, ...]] | None = None, **options: Any) -> None:
        """`keys` are by stream. Without them records are not keyed, and what is late is for those behind to judge."""
        self.chains = dict(chains)
        if not keys:
            options["late"] = "self"
        self.inputs = [Input(stream, key=keys[stream] if keys else None, **options) for stream in chains]
        for place, port in enumerate(self.inputs):
            setattr(self, f"input_{place}", port)

    def rows(self, ctx: Any, batch: pa.RecordBatch) -> Iterator[Rows]:
        """What the chains make of a bundle."""
        for chain in self.chains[ctx.stream]:
            rows = chain.apply(Rows(batch, ctx.timestamps))
            if len(rows.times):
                yield rows


class Steps(Reading):
    """Chains of steps as a computation of their own. Records are not keyed: each shard takes what comes."""

    def __init__(self, chains: Chains, schema: pa.Schema, stream: str) -> None:
        self.read(chains)
        self.made = Output(schema, stream)

    def process_bundle(self, ctx: Any, batch: pa.RecordBatch) -> None:
        for rows in self.rows(ctx, batch):
            produced = rows.batch if rows.batch.schema == self.made.schema else rows.batch.cast(self.made.schema)
            ctx.produce_batch(self.made, produced, rows.times)


def times_array(values: Int64s) -> pa.Array:
    return pa.array(values).view(pa.timestamp("us", tz="UTC"))


def chosen(mask: Any) -> pa.Array:
    return pa.array(np.flatnonzero(mask))
