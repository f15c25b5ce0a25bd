"""Joining: orders and payments meet by customer, whichever comes first, and each pair leaves once.

Two sources of different speed feed one computation, whose state is lists that grow. Each pair is seen a second time, by
another key, so that a pair that was produced twice is caught also between computations.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tidemill.api.computation import Computation, Input, Output
from tidemill.api.pipeline import Pipeline
from tidemill.hosts.simulator.workloads.workload import Oracle, Row, Shown, Workload, compare, none
from tidemill.sinks.collect import Collect
from tidemill.sources.rows import Rows

CUSTOMERS = 60
ORDERS = 240
PAYMENTS = 180


@dataclass
class Both:
    orders: list[int] = field(default_factory=list)
    payments: list[int] = field(default_factory=list)


class Join(Computation):
    orders = Input(key="customer")
    payments = Input(key="customer")
    pairs = Output("customer long, order long, payment long")
    state = Both

    def process_record(self, ctx: Any, record: Any) -> None:
        if record.stream == "orders":
            ctx.state.orders.append(record.order)
            new = [(record.order, payment) for payment in ctx.state.payments]
        else:
            ctx.state.payments.append(record.payment)
            new = [(order, record.payment) for order in ctx.state.orders]
        for order, payment in new:
            ctx.produce(self.pairs, customer=ctx.key, order=order, payment=payment)


class ByPayment(Computation):
    """For each payment, the orders that it met: a plain list, so that one too many would stay in it."""

    pairs = Input(key="payment")
    met = Output("payment long, order long, nth long")
    repeated = Output("payment long, order long")
    state = list[int]

    def process_record(self, ctx: Any, record: Any) -> None:
        if record.order in ctx.state:
            ctx.produce(self.repeated, payment=ctx.key, order=record.order)
        ctx.state = [*ctx.state, record.order]  # assigned, where the others change their state in place
        ctx.produce(self.met, payment=ctx.key, order=record.order, nth=len(ctx.state))


def build(seed: int) -> tuple[Pipeline, Oracle]:
    chance = random.Random(f"joining {seed}")
    orders = _rows(chance, "order", ORDERS, chance.choice((1, 50)))
    payments = _rows(chance, "payment", PAYMENTS, chance.choice((1, 50)))
    pipeline = Pipeline("joining", late="process")
    pipeline.source("orders", Rows(orders, "customer long, order long, at long", timestamp="at", splits=2))
    pipeline.source("payments", Rows(payments, "customer long, payment long, at long", timestamp="at", splits=1))
    pipeline.add(Join)
    pipeline.add(ByPayment)
    for stream in ("pairs", "met", "repeated"):
        pipeline.sink(stream, Collect())
    return pipeline, lambda shown: _complaints(orders, payments, shown)


def _rows(chance: random.Random, what: str, count: int, step: int) -> list[Row]:
    return [{"customer": chance.randrange(CUSTOMERS), what: n, "at": n * step} for n in range(count)]


def _complaints(orders: list[Row], payments: list[Row], shown: Shown) -> Iterator[str]:
    wanted = [
        (order["customer"], order["order"], payment["payment"])
        for order in orders
        for payment in payments
        if order["customer"] == payment["customer"]
    ]
    pairs = shown.rows("pairs")
    yield from compare("pairs", ((row["customer"], row["order"], row["payment"]) for row in pairs), wanted)
    met = shown.rows("met")
    yield from compare(
        "pairs by payment", ((r["payment"], r["order"]) for r in met), ((pay, order) for _, order, pay in wanted)
    )
    counts: dict[int, int] = {}
    for _, _, payment in wanted:
        counts[payment] = counts.get(payment, 0) + 1
    yield from compare(
        "places in the lists",
        ((row["payment"], row["nth"]) for row in met),
        ((payment, n) for payment, count in counts.items() for n in range(1, count + 1)),
    )
    yield from none("a pair came twice", shown.rows("repeated"))


joining = Workload("joining", "joins two sources of different speed by key, with lists as state", build)
