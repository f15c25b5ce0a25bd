"""Counting words live: workers that are Spark tasks, a source that never waits for a batch, an answer in milliseconds.

python examples/live_word_count.py [SECONDS]
"""

import sys
import time
from dataclasses import dataclass

import tidemill as tm

TEXT = "it was the best of times it was the worst of times it was the age of wisdom it was the age of foolishness"
WORDS = TEXT.split()
RATE = 2_000  # words a second


@dataclass
class Seen:
    n: int = 0


class WordCount(tm.Computation):
    words = tm.Input(key="word")
    counts = tm.Output("word string, n long, due long")
    state = Seen

    def process_record(self, ctx, record):
        ctx.state.n += 1
        ctx.produce(self.counts, word=ctx.key, n=ctx.state.n, due=record.timestamp)


def word(i):
    return {"word": WORDS[i % len(WORDS)]}


class Board:
    """What the sink is given: the newest count of each word, and how old it was when it came."""

    def __init__(self):
        self.counts = {}
        self.ages = []

    def show(self, row):
        self.counts[row["word"]] = row["n"]
        self.ages.append(time.time() * 1e3 - row["due"] / 1e3)


def pipeline_of(board, seconds):
    pipeline = tm.Pipeline("live-word-count")
    words = tm.sources.Generator(word, "word string", tm.sources.SCHEDULED, rate=RATE, count=RATE * seconds)
    pipeline.source("words", words)
    pipeline.add(WordCount)
    pipeline.sink("counts", tm.sinks.Callback(board.show))
    return pipeline


def main():
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    board = Board()
    print(f"Counting {RATE:,} words a second for {seconds} s, in two Spark tasks that stay.", flush=True)
    run = tm.run(pipeline_of(board, seconds), workers=2)
    run.wait()
    print("Counts: ", board.counts)
    assert sum(board.counts.values()) == RATE * seconds, "a word was lost or counted twice"
    ages = sorted(board.ages)
    print(f"Every word was counted once. Half of the counts were in this program within {ages[len(ages) // 2]:.1f} ms")
    print(f"of the moment at which their word was due, and 99 % within {ages[len(ages) * 99 // 100]:.1f} ms.")


if __name__ == "__main__":
    main()
