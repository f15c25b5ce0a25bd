"""Windows and joins on a cluster that crashes, moves and splits ranges give what they give in one process."""

from collections import Counter

import pyarrow.compute as pc
import pytest

import tidemill as tm
from tests.unit.windows.driving import made_rows, plain, source


def build():
    pipeline = tm.Pipeline("windows")
    rows, others = source(pipeline), source(pipeline, "others")
    both = rows.filter(pc.field("ts") > -200).union(others.filter(pc.field("n") > 0))
    made = [
        both.key_by("k").window(tm.tumbling(20)).aggregate(n="count", total=("sum", "n"), most=("max", "s")),
        rows.key_by("k", "f").window(tm.sliding(30, every=10), two_phase=False).aggregate(kinds=("distinct", "s")),
        rows.key_by("k").window(tm.session(9)).aggregate(all=tm.fold(list, lambda v, r: [*v, r.ts], "array<long>")),
        rows.select("k", m="n", then="ts").key_by("k", "m").join(others.key_by("k", "n"), within=5),
    ]
    for stream in made:
        stream.to(tm.sinks.Collect())
    return pipeline, [stream.label for stream in made]


def counted(rows):
    return Counter(tuple(str(plain(value)) for value in row.values()) for row in rows)


@pytest.mark.parametrize("seed", [1, 2, 3, 7, 10, 11])
def test_a_cluster_that_fails_gives_the_same(seed):
    pipeline, labels = build()
    inputs = {"rows": made_rows(seed, 150, 300), "others": made_rows(seed + 1000, 80, 300)}
    wanted = tm.testing.replay(pipeline, inputs)
    found = tm.testing.simulate(pipeline, inputs, seed=seed).outputs
    for label in labels:
        assert counted(found[label]) == counted(wanted[label]), label
