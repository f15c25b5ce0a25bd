"""A shop's orders and payments: totals by window, visits by session, and which order was paid when.

Every step here works on whole Arrow batches; no record passes through Python on its own, but for the fold.

python examples/shop.py
"""

import pyarrow.compute as pc

import tidemill as tm

SECOND = 1_000_000

ORDERS = [
    {"id": 1, "item": "tea", "amount": 12, "at": 1 * SECOND},
    {"id": 2, "item": "cup", "amount": 30, "at": 2 * SECOND},
    {"id": 3, "item": "tea", "amount": 8, "at": 9 * SECOND},
    {"id": 4, "item": "tea", "amount": 500, "at": 14 * SECOND},
    {"id": 5, "item": "cup", "amount": 31, "at": 44 * SECOND},
]
PAYMENTS = [
    {"order_id": 1, "paid": 12, "paid_at": 3 * SECOND},
    {"order_id": 4, "paid": 500, "paid_at": 15 * SECOND},
    {"order_id": 5, "paid": 31, "paid_at": 60 * SECOND},
]

pipeline = tm.Pipeline("shop")
orders = pipeline.source(
    "orders", tm.sources.Rows(ORDERS, "id long, item string, amount long, at long", timestamp="at")
)
payments = pipeline.source(
    "payments", tm.sources.Rows(PAYMENTS, "order_id long, paid long, paid_at long", timestamp="paid_at")
)

usual = orders.filter(pc.field("amount") < 100)
totals = usual.key_by("item").window(tm.tumbling("10s")).aggregate(n="count", total=("sum", "amount"))

visits = (
    orders.select("item", "amount", taxed=pc.field("amount") * 1.2)
    .key_by("item")
    .window(tm.session(gap="10s"), name="visits")
    .aggregate(
        orders="count",
        taxed=("sum", "taxed"),
        largest=tm.fold(0, lambda most, order: max(most, order.amount), "long", merge=max),
    )
)

paid = orders.key_by("id").join(payments.key_by("order_id"), within="5s", name="paid")

for stream in (totals, visits, paid):
    stream.to(tm.sinks.Collect())


def main():
    results = tm.testing.replay(pipeline, {"orders": ORDERS, "payments": PAYMENTS})
    for stream in (totals, visits, paid):
        print(f"{stream.label}:")
        for row in results[stream.label]:
            print("   ", ", ".join(f"{name} {_short(value)}" for name, value in row.items()))
    assert [row["total"] for row in results[totals.label]] == [20, 30, 31]
    assert [row["id"] for row in results["paid"]] == [1, 4]


def _short(value):
    return f"{value:%H:%M:%S}" if hasattr(value, "strftime") else value


if __name__ == "__main__":
    main()
