"""Counting words: the smallest pipeline with state, tried out, and then run on a cluster that fails.

python examples/word_count.py [SEED]
"""

import sys
from dataclasses import dataclass

import tidemill as tm


@dataclass
class Seen:
    n: int = 0


class WordCount(tm.Computation):
    words = tm.Input(key="word")
    counts = tm.Output("word string, n long")
    state = Seen

    def process_record(self, ctx, record):
        ctx.state.n += 1
        ctx.produce(self.counts, word=ctx.key, n=ctx.state.n)


TEXT = "it was the best of times it was the worst of times it was the age of wisdom it was the age of foolishness"
ROWS = [{"word": word, "at": place} for place, word in enumerate(TEXT.split())]

pipeline = tm.Pipeline("word-count")
pipeline.source("words", tm.sources.Rows(ROWS, "word string, at timestamp", timestamp="at"))
pipeline.add(WordCount)
pipeline.sink("counts", tm.sinks.Collect())


def last_counts(rows):
    """The highest count of each word."""
    return {row["word"]: row["n"] for row in sorted(rows, key=lambda row: row["n"])}


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    quiet = tm.testing.replay(pipeline, {"words": ROWS * 20})
    print("In one process: ", last_counts(quiet["counts"]))

    failing = tm.testing.simulate(pipeline, {"words": ROWS * 20}, seed=seed)
    print(f"On five simulated workers, recovered by {failing.recovery}, from seed {seed}:\n")
    print(failing)
    print(f"\n{failing.crashes} processes crashed. Counts: ", last_counts(failing.outputs["counts"]))

    def rows(outputs):
        return sorted((row["word"], row["n"]) for row in outputs["counts"])

    assert rows(failing.outputs) == rows(quiet), "a record was lost or repeated"
    print("Every record was counted, and counted once.")


if __name__ == "__main__":
    main()
