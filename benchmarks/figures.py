"""The README's table of figures, made of what the benchmarks wrote to `results/`: none of them is typed by hand.

    python -m benchmarks latency --json benchmarks/results/latency.json
    python -m benchmarks.figures

A test holds the README to it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results")

ROWS = {
    "latency": """
        source to sink, through a shuffle and a stateful Python step, each record from when it is due: at 1,000
        records/s {p50_ms[1000]:.2f} ms (p50) and {p99_ms[1000]:.2f} ms (p99), at 10,000 {p50_ms[10000]:.2f} and
        {p99_ms[10000]:.2f} ms. The same step in PySpark's `transformWithState`:
        {transform_with_state_ms[1000][p50]:,.0f} and {transform_with_state_ms[1000][p99]:,.0f} ms""",
    "throughput": """
        two workers, one shuffle: record by record {record_per_second:,.0f} records/s, {record_ratio:.2f} x the same
        function in a bare loop; a windowed sum over whole bundles {vector_per_second:,.0f}, {vector_ratio:.2f} x bare
        numpy""",
    "tables": """
        {rows:,} rows through a windowed sum: a plan takes {plan_ratio:.2f} x the time of Spark's own `groupBy(window)`;
        a live run has {live_speedup:.0f} x the rate of Structured Streaming""",
    "startup": "from `tm.run` to the first output, on a warm session: {first_output_s:.2f} s",
    "backpressure": """
        a source ten times faster than its consumer, for {seconds} s: memory grew by {memory_mib:.0f} MiB, and the
        consumer ran at {rate_ratio:.0%} of its rate alone""",
    "core": "what the core costs a bundle of one record: {bundle_us:.0f} us",
    "simulator": """
        {seeds:,} clusters of five workers that fail, {events:,} events, a crash that landed in {crashed_share:.0%} of
        them, {violations} promises broken: {seconds:.0f} s""",
}


def table() -> str:
    rows = [f"| `{name}` | {' '.join(text.split()).format(**_read(name))} |" for name, text in ROWS.items()]
    return "\n".join(["| | |", "|---|---|", *rows])


def _read(name: str) -> dict[str, Any]:
    text = (RESULTS / f"{name}.json").read_text()
    found: dict[str, Any] = json.loads(text, object_hook=_with_rates)
    assert not found["quick"], f"{name}: a quick look is no figure"
    return found


def _with_rates(found: dict[str, Any]) -> dict[Any, Any]:
    """Rates are keys too, and JSON's are text."""
    return {int(key) if key.isdecimal() else key: value for key, value in found.items()}


if __name__ == "__main__":
    print(table())
