"""Noticing what did not happen: a query that is searched for all the time falls silent.

A dip can't be told from a delay by looking at a clock. The low watermark tells them apart: once it has passed the end
of a second, all searches of that second have been counted, and a timer may judge it. The stage lets a test play both.

python examples/dips.py
"""

from dataclasses import dataclass, field

import tidemill as tm

SECOND = 1_000_000
EXPECTED = 3


@dataclass
class Buckets:
    searches: dict[int, int] = field(default_factory=dict)


class DipDetector(tm.Computation):
    queries = tm.Input(key="query")
    dips = tm.Output("query string, second long, searches long")
    state = Buckets

    def process_record(self, ctx, record):
        second = record.timestamp // SECOND
        ctx.state.searches[second] = ctx.state.searches.get(second, 0) + 1
        ctx.set_timer("judge", (second + 1) * SECOND)

    def process_timer(self, ctx, timer):
        second = timer.at // SECOND - 1
        searches = ctx.state.searches.pop(second, 0)
        if searches < EXPECTED:
            ctx.produce(self.dips, query=ctx.key, second=second, searches=searches)
        if searches:  # look at the next second too, even if nothing comes
            ctx.set_timer("judge", timer.at + SECOND)


pipeline = tm.Pipeline("dips")
pipeline.source("queries", tm.sources.Rows([], "query string, at timestamp", timestamp="at"))
pipeline.add(DipDetector)
pipeline.sink("dips", tm.sinks.Collect())


def search(stage, *moments):
    stage.send("queries", *({"query": "television listings", "at": int(at * SECOND)} for at in moments))


def main():
    stage = tm.testing.Stage(pipeline)
    search(stage, 0.1, 0.5, 0.9, 1.2)
    assert stage.outputs["dips"] == []  # one search in the second second so far, but more may be under way

    search(stage, 1.1, 1.3)  # they were only delayed
    stage.advance_watermark(2 * SECOND)
    assert stage.outputs["dips"] == []

    stage.advance_watermark(3 * SECOND)  # now it is known that nothing came
    print(stage.outputs["dips"])
    assert stage.outputs["dips"] == [{"query": "television listings", "second": 2, "searches": 0}]


if __name__ == "__main__":
    main()
