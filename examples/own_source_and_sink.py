"""A source and a sink of one's own: rows of an SQLite table in, files of JSON lines out, each commit whole or absent.

The source can be rewound: its position is the number of the last row that was read. The sink keeps a journal, a folder
in which each entry is made by one link that fails if somebody was faster. What an entry lists is visible, and nothing
else is. Here both are driven by hand, as a host would, through a rewind, a repeated commit and a coordinator that has
been replaced.

python examples/own_source_and_sink.py
"""

import json
import os
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pyarrow as pa

import tidemill as tm
from tidemill.core.ids import BEGINNING, END, Generation, Micros
from tidemill.errors import FencedError
from tidemill.ports import Chunk, Preparable, Sink, Source

# ---------------------------------------------------------------------------------------------------------- the source


@dataclass(frozen=True)
class Orders:
    """The table `orders`. It only grows, its rows are numbered in `id`, and `at` never decreases with them."""

    path: str
    count: int = 2
    last: int = 0  # the last row of this run

    schema = pa.schema([("id", pa.int64()), ("item", pa.string()), ("at", pa.timestamp("us", "UTC"))])
    timestamp = "at"

    def prepared(self, now):
        """What is inserted later is for another run: otherwise a rewind would find more than there was."""
        with closing(sqlite3.connect(self.path)) as table:
            (last,) = table.execute("SELECT coalesce(max(id), 0) FROM orders").fetchone()
        return replace(self, last=last)

    def splits(self):
        return [str(split) for split in range(self.count)]

    def open(self, split, position):
        return OrdersReader(self, int(split), position)


class OrdersReader:
    """The connection is the reader's: the source travels to the workers, and a connection can't."""

    def __init__(self, source, split, position):
        self.source, self.split, self.position = source, split, position
        self.mark = BEGINNING
        self.table = sqlite3.connect(source.path)

    def read(self, limit):
        rows = self.table.execute(
            "SELECT id, item, at FROM orders WHERE id > ? AND id <= ? AND id % ? = ? ORDER BY id LIMIT ?",
            (self.position, self.source.last, self.source.count, self.split, limit),
        ).fetchall()
        if rows:
            self.position, _, self.mark = rows[-1]
        ended = len(rows) < limit
        columns = list(zip(*rows, strict=True)) or [(), (), ()]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self.source.schema, strict=True)]
        return Chunk(
            batch=pa.RecordBatch.from_arrays(arrays, schema=self.source.schema),
            times=np.array(columns[2], np.int64),
            position=self.position,
            watermark=END if ended else Micros(self.mark),
            ended=ended,
            idle=False,
        )

    def close(self):
        self.table.close()


# ------------------------------------------------------------------------------------------------------------ the sink


@dataclass(frozen=True)
class JsonFiles:
    """Files of JSON lines in a folder, and a journal that says which of them count."""

    folder: str

    def open(self, schema, writer):
        return JsonWriter(Path(self.folder), writer)

    def committed(self, generation):
        """The claim is an entry like any other: who was here before finds its next place taken."""
        while True:
            entries = self._entries(generation)
            number = max((entry["number"] for entry in entries), default=0)
            if self._append(len(entries), {"generation": generation, "number": number, "files": []}):
                return number

    def commit(self, generation, number, prepared):
        files = [name.decode() for name in prepared if name]
        while True:
            entries = self._entries(generation)
            if any(entry["number"] >= number for entry in entries):
                return
            if self._append(len(entries), {"generation": generation, "number": number, "files": files}):
                return

    def rows(self):
        """What a reader of the folder sees."""
        names = [name for entry in self._entries() for name in entry["files"]]
        return [json.loads(line) for name in names for line in (Path(self.folder) / name).read_text().splitlines()]

    def _journal(self):
        journal = Path(self.folder) / "journal"
        journal.mkdir(parents=True, exist_ok=True)
        return journal

    def _entries(self, generation=None):
        entries = [json.loads(path.read_text()) for path in sorted(self._journal().glob("*.json"))]
        newest = max((entry["generation"] for entry in entries), default=0)
        if generation is not None and newest > generation:
            raise FencedError(f"{self.folder} belongs to generation {newest}; generation {generation} came too late")
        return entries

    def _append(self, place, entry):
        """Writes the entry at this place; False if another is there."""
        journal = self._journal()
        with tempfile.NamedTemporaryFile("w", dir=journal, suffix=".new") as file:
            json.dump(entry, file)
            make_durable(file)
            try:
                os.link(file.name, journal / f"{place:08}.json")  # whole, or not at all
            except FileExistsError:
                return False
        make_folder_durable(journal)
        return True


class JsonWriter:
    def __init__(self, folder, writer):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.writer = folder, quote(writer, safe="")
        self.rows, self.pieces = [], 0

    def write(self, batch):
        self.rows += batch.to_pylist()

    def prepare(self):
        """A file that no journal entry lists yet. Its name is what `commit` is told."""
        if not self.rows:
            return b""
        self.pieces += 1
        name = f"{self.writer}-{self.pieces}.jsonl"
        with (self.folder / name).open("w") as file:
            for row in self.rows:
                file.write(json.dumps(row, default=str) + "\n")
            make_durable(file)
        make_folder_durable(self.folder)
        self.rows = []
        return name.encode()

    def close(self):
        self.rows = []


def make_durable(file):
    file.flush()
    os.fsync(file.fileno())


def make_folder_durable(folder):
    """A new name in a folder is durable when the folder is."""
    handle = os.open(folder, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


# ----------------------------------------------------------------------------------------------------------- by hand


def fill(path, *items):
    with closing(sqlite3.connect(path)) as table, table:
        table.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, item TEXT, at INTEGER)")
        table.executemany("INSERT INTO orders (item, at) VALUES (?, ?)", [(item, 1000) for item in items])


def read_from(source, split, position):
    """All chunks from a position to the end."""
    with closing(source.open(split, position)) as reader:
        chunks = [reader.read(2)]
        while not chunks[-1].ended:
            chunks.append(reader.read(2))
    return chunks


def items(chunks):
    return [item for chunk in chunks for item in chunk.batch.column("item").to_pylist()]


def check_source(path):
    source = Orders(path).prepared(Micros(0))
    assert isinstance(source, Source)
    assert isinstance(source, Preparable)
    fill(path, "too late for this run")

    chunks = {split: read_from(source, split, 0) for split in source.splits()}
    assert {split: items(read) for split, read in chunks.items()} == {"0": ["b", "d", "f"], "1": ["a", "c", "e", "g"]}
    for split, read in chunks.items():
        for place, chunk in enumerate(read[:-1], 1):  # a rewind to any position gives the same again
            assert items(read_from(source, split, chunk.position)) == items(read[place:])
    return chunks


def check_sink(sink, schema, chunks):
    assert isinstance(sink, Sink)
    old, new = Generation(1), Generation(2)
    assert sink.committed(old) == 0

    writers = {split: sink.open(schema, f"writer-{split}") for split in chunks}
    for split, read in chunks.items():
        writers[split].write(read[0].batch)
    prepared = [writer.prepare() for writer in writers.values()]
    assert sink.rows() == []  # durable, and not visible

    sink.commit(old, 1, prepared)
    sink.commit(old, 1, prepared)  # the coordinator did not hear the answer
    assert [row["item"] for row in sink.rows()] == ["b", "d", "a", "c"]

    assert sink.committed(new) == 1  # another coordinator takes over
    writers["0"].write(chunks["0"][1].batch)
    rest = [writer.prepare() for writer in writers.values()]
    try:
        sink.commit(old, 2, rest)
    except FencedError as refusal:
        print(str(refusal).replace(sink.folder, "the sink"))
    else:
        raise AssertionError("a coordinator that was replaced must not commit")
    sink.commit(new, 2, rest)
    assert [row["item"] for row in sink.rows()] == ["b", "d", "a", "c", "f"]
    for writer in writers.values():
        writer.close()


def pipeline_of(source, sink):
    pipeline = tm.Pipeline("own")
    pipeline.source("orders", source)
    pipeline.sink("orders", sink)
    return pipeline


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/orders.db"
        fill(path, *"abcdefg")
        sink = JsonFiles(f"{folder}/out")
        chunks = check_source(path)
        check_sink(sink, Orders.schema, chunks)
        assert pipeline_of(Orders(path), sink).graph().of_kind("source")
        print(f"{len(sink.rows())} rows are visible, each once")


if __name__ == "__main__":
    main()
