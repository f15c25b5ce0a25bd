"""A program that counts words live and says, a JSON line each, who works for it and what came of it.

python -m tests.spark.driver --rate 500 --count 5000
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time

import tidemill as tm
from tests.spark.processes import coordinator_of
from tests.spark.programs import WordCount, word, word_count


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--master", default=None)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--count", type=int)
    parser.add_argument("--storage")
    parser.add_argument("--wide", type=int, default=0, metavar="BYTES", help="behind each word")
    parser.add_argument("--seconds-a-record", type=float, default=0.0, help="that counting it takes")
    return parser.parse_args()


class Slowly(WordCount):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def process_record(self, ctx, record):
        time.sleep(self.seconds)
        super().process_record(ctx, record)


def say(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main() -> None:
    given = arguments()
    rows: list[dict[str, object]] = []

    def take(row: dict[str, object]) -> None:
        rows.append(row | {"word": str(row["word"]).rstrip(".")})

    def make(i: int) -> dict[str, str]:
        return {"word": word(i)["word"] + "." * given.wide}

    timestamp = None if given.rate is None else tm.sources.SCHEDULED
    words = tm.sources.Generator(make, "word string", timestamp, rate=given.rate, count=given.count)
    counting = Slowly(given.seconds_a_record) if given.seconds_a_record else WordCount
    pipeline = word_count(words, tm.sinks.Callback(take), counting=counting)
    run = tm.run(pipeline, workers=given.workers, master=given.master, storage=given.storage, display=False)
    say(workers=[worker.pid for worker in run.workers], coordinator=coordinator_of(os.getpid()))
    try:
        run.wait()
    except KeyboardInterrupt:
        say(interrupted=True, status=run.status, rows=rows)
        raise SystemExit(130) from None
    say(status=run.status, rows=rows)


if __name__ == "__main__":
    main()
