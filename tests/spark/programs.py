"""The pipelines that run on a real Spark in these tests, and what must come of them.

They stand in a module of their own so that the tests, the drivers that tests start, and the workers find the same ones.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tidemill as tm

TEXT = "it was the best of times it was the worst of times it was the age of wisdom it was the age of foolishness"
WORDS = TEXT.split()


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


def word(i):
    return {"word": WORDS[i % len(WORDS)]}


def some_words(count: int | None, rate: float | None = None, splits: int = 2) -> tm.sources.Generator:
    timestamp = None if rate is None else tm.sources.SCHEDULED
    return tm.sources.Generator(word, "word string", timestamp, rate=rate, count=count, splits=splits)


def word_count(source: Any, sink: Any, name: str = "word-count", counting: Any = WordCount) -> tm.Pipeline:
    pipeline = tm.Pipeline(name)
    pipeline.source("words", source)
    pipeline.add(counting)
    pipeline.sink("counts", sink)
    return pipeline


def assert_counted(rows: Iterable[dict[str, Any]], words: Iterable[str]) -> None:
    """Each word was counted from 1 to as often as it is there: none lost, none twice, none out of order."""
    counted = defaultdict(list)
    for row in rows:
        counted[row["word"]].append(row["n"])
    expected = {word: list(range(1, n + 1)) for word, n in Counter(words).items()}
    assert {word: len(ns) for word, ns in counted.items()} == {word: len(ns) for word, ns in expected.items()}
    assert dict(counted) == expected


def first_words(count: int) -> list[str]:
    return [WORDS[i % len(WORDS)] for i in range(count)]


class Lines:
    """A sink that writes each bundle, and when it came, to a file of the worker's own: no driver is needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, schema: Any, writer: str) -> LinesWriter:
        return LinesWriter(self.folder / f"{writer}.jsonl")

    def commit(self, generation: int, number: int, prepared: Sequence[bytes]) -> None:
        """What was written is visible as it is."""

    def committed(self, generation: int) -> int:
        return 0

    def rows(self) -> list[dict[str, Any]]:
        return [row for bundle in self.bundles() for row in bundle["rows"]]

    def bundles(self) -> list[dict[str, Any]]:
        files = [file.read_text().splitlines() for file in sorted(self.folder.glob("*.jsonl"))]
        return [json.loads(line) for lines in files for line in lines]


class LinesWriter:
    def __init__(self, path: Path) -> None:
        self.file = path.open("a")

    def write(self, batch: Any) -> None:
        print(json.dumps({"at": time.time(), "rows": batch.to_pylist()}), file=self.file, flush=True)

    def prepare(self) -> bytes:
        return b"all of it"

    def close(self) -> None:
        self.file.close()
