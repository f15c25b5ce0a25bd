"""A sink that writes Parquet files, and commits them as Spark's own file sink does.

Workers write files that nobody sees. A commit is one entry in the folder's log (`storage/sparklog`), after which
`spark.read.parquet` sees exactly the files that the log lists. A claim is an entry too: that of a newer coordinator, or
of another run, takes the place that an older one would have written its next commit to.

An epoch that brought no rows needs no entry: its number is skipped, and the next commit has a later one.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tidemill.api.schema import ddl, type_ddl
from tidemill.api.wording import declared_at, listing, meant
from tidemill.core.ids import Generation
from tidemill.errors import FencedError, PipelineError, StorageError
from tidemill.storage.entries import make_durable, make_folder_durable, reaching
from tidemill.storage.sparklog import METADATA, File, Mark, SparkLog

LARGE: Final = 32 * 1024 * 1024
"""Bytes in memory that are written as files of their own, before anyone asks for a piece."""

OURS: Final = re.compile(r"tidemill-([0-9a-f]+)-[\w.-]+\.parquet")
NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"

_ESCAPED: Final = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{}\[\]^]")
_FOLDERS: Final = (
    pa.types.is_string,
    pa.types.is_integer,
    pa.types.is_decimal,
    pa.types.is_boolean,
    pa.types.is_date,
)
_COMPRESSIONS: Final = ("snappy", "zstd", "gzip", "lz4", "none")


class Piece(msgspec.Struct, frozen=True):
    """What a writer prepared: files that are whole and that nobody sees."""

    files: tuple[File, ...]
    run: str


_piece = msgspec.msgpack.Decoder(Piece).decode


class Parquet:
    """A folder of Parquet files that Spark reads: `spark.read.parquet(path)` sees what is committed, and nothing else.

    `partition_by` names the columns whose values become folders, as Spark's `partitionBy` does. The folder must be
    new, empty, or one that Tidemill wrote with the same columns before: then the rows are added to it. All workers must
    reach it under this path. `compression` is one of snappy, zstd, gzip, lz4 and none.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, partition_by: str | Sequence[str] = (), compression: str = "snappy"
    ) -> None:
        self._owner = f"The Parquet sink declared at {declared_at()}"
        self.path = self._local(path)
        self.partition_by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        if compression not in _COMPRESSIONS:
            raise PipelineError(
                f"{self._owner} has compression={compression!r}.{meant(str(compression), _COMPRESSIONS)} It may be "
                f"one of {listing(_COMPRESSIONS)}."
            )
        self._compression = compression
        self._schema: pa.Schema | None = None
        self._run = "0"
        self._held: Held | None = None

    def _local(self, path: str | os.PathLike[str]) -> str:
        text = os.fspath(path)
        kind = re.match(r"([a-z][a-z0-9+.-]+):", text)
        if kind is not None and kind[1] != "file":
            raise PipelineError(f"{self._owner} has the path {text!r}: a folder is needed, no {kind[1]} address.")
        return os.path.abspath(re.sub(r"^file:(//)?", "", text))  # noqa: PTH100 - `resolve` would follow links

    def __repr__(self) -> str:
        return f"<Parquet in {self.path}>"

    def expecting(self, schema: pa.Schema, run: str) -> Parquet:
        """The same sink for one run and a stream of this schema."""
        self._check(schema)
        settled = self._copy()
        settled._schema = schema  # noqa: SLF001 - it is our own
        settled._run = run  # noqa: SLF001
        return settled

    def _check(self, schema: pa.Schema) -> None:
        for name in self.partition_by:
            if name not in schema.names:
                raise PipelineError(
                    f"{self._owner} has partition_by={name!r}, and its stream has no such column: {ddl(schema)}."
                    f"{meant(name, schema.names)}"
                )
            kind = schema.field(name).type
            if not any(fits(kind) for fits in _FOLDERS):
                raise PipelineError(
                    f"{self._owner} can't name folders after column {name!r} of type {type_ddl(kind)}. Folders are "
                    "named after text, whole numbers, decimals, booleans and dates: make a column of one of these."
                )
        if len(self.partition_by) >= len(schema):
            raise PipelineError(f"{self._owner} would have no column left in its files. Partition by fewer.")

    def _copy(self) -> Parquet:
        made = object.__new__(Parquet)
        made.__dict__ |= self.__getstate__()
        return made

    def __getstate__(self) -> dict[str, Any]:
        """A claim is not sent: it is of whoever made it."""
        return self.__dict__ | {"_held": None}

    def open(self, schema: pa.Schema, writer: str) -> ParquetWriter:
        self._check(schema)
        name = f"tidemill-{self._run}-{re.sub('[^A-Za-z0-9.-]', '_', writer)}-{secrets.token_hex(4)}"
        return ParquetWriter(Path(self.path), name, self._run, schema, self.partition_by, self._compression)

    def commit(self, generation: Generation, number: int, prepared: Sequence[bytes]) -> None:
        held = self._held or Held(SparkLog(Path(self.path)), self._run, self._schema, self.partition_by)
        self._held = held
        held.commit(generation, number, [_piece(data) for data in prepared if data])

    def committed(self, generation: Generation) -> int:
        folder = Path(self.path)
        _check_folder(folder)
        self._held = Held(SparkLog(folder), self._run, self._schema, self.partition_by)
        return self._held.claim(generation, self._first_file)

    def _first_file(self) -> list[File]:
        """Without rows: so that a stream that brings none is a table all the same, with its columns."""
        if self._schema is None or self.partition_by:
            return []
        writer = self.open(self._schema, "columns")
        writer.put(self._schema.empty_table(), "", ())
        return list(_piece(writer.prepare()).files)


class Held:
    """The log as one who commits to it has it in hand."""

    def __init__(self, log: SparkLog, run: str, schema: pa.Schema | None, partitioned: tuple[str, ...]) -> None:
        self._log = log
        self._run = run
        self._schema = "" if schema is None else ddl(schema)
        self._partitioned = partitioned
        self._claim = ""
        self._listed = log.read()
        self._leftovers: list[Path] = []

    def claim(self, generation: Generation, first: Callable[[], Sequence[File]]) -> int:
        """An entry that adds nothing: whoever was here before finds his next place taken."""
        claim = secrets.token_hex(8)
        while True:
            before = self._listed
            self._refuse_if_newer(generation)
            self._refuse_other_columns()
            number = 0 if before is None else before.mark.number
            if self._append(generation, number, claim, first() if before is None else ()):
                self._claim = claim
                self._leftovers = self._unlisted_of_others()
                return number

    def commit(self, generation: Generation, number: int, pieces: Sequence[Piece]) -> None:
        files = [file for piece in pieces for file in piece.files]
        while True:
            self._refuse_if_newer(generation)
            if self._listed is not None and self._listed.mark.number >= number:
                return
            if not files:
                return
            self._refuse_if_not_whole(files)
            if self._append(generation, number, self._claim, files):
                break
        if all(piece.run == self._run for piece in pieces):
            self._clean_up()

    def _append(self, generation: Generation, number: int, claim: str, files: Sequence[File]) -> bool:
        mark = Mark(generation, number, self._run, claim, self._schema, self._partitioned)
        after = self._log.append(self._listed, mark, files)
        self._listed = self._log.read() if after is None else after
        return after is not None

    def _refuse_if_newer(self, generation: Generation) -> None:
        """By the claim if this one made one, or else by the generation, which one run's coordinators have in order."""
        if self._listed is None:
            return
        mark = self._listed.mark
        newer = mark.run == self._run and mark.generation > generation
        taken = self._claim not in ("", mark.claim)
        if newer or taken:
            whose = f"generation {mark.generation} of run {mark.run}"
            raise FencedError(
                f"{str(self._log.folder)!r} was claimed by {whose} meanwhile; what generation {generation} of run "
                f"{self._run} wanted to commit to it came too late. A folder serves one sink of one run at a time"
            )

    def _refuse_other_columns(self) -> None:
        if self._listed is None or not self._schema or not self._listed.mark.schema:
            return
        mark = self._listed.mark
        if (mark.schema, mark.partitioned) != (self._schema, self._partitioned):
            there, here = _described(mark.schema, mark.partitioned), _described(self._schema, self._partitioned)
            raise StorageError(
                f"{str(self._log.folder)!r} holds rows of other columns: {there}, and now there are {here}. Write to "
                "another folder."
            )

    def _refuse_if_not_whole(self, files: Sequence[File]) -> None:
        """What an entry lists must be there: whoever reads the folder would fail otherwise."""
        for file in files:
            path = self._log.folder / file.name
            there = path.stat().st_size if path.exists() else -1
            if there != file.size:
                lost = "is gone" if there < 0 else f"has {there} bytes"
                raise StorageError(
                    f"{str(path)!r} was written with {file.size} bytes and {lost}, so it can't be committed. Do all "
                    f"workers and the driver see the same folder {str(self._log.folder)!r}?"
                )

    # What earlier runs left behind

    def _unlisted_of_others(self) -> list[Path]:
        """Files of writers of earlier runs that no commit lists, yet: one that was begun may still be finished."""
        return [path for path in _files_of_ours(self._log.folder) if self._is_of_another_run(path.name)]

    def _is_of_another_run(self, name: str) -> bool:
        match = OURS.fullmatch(name.lstrip("."))
        return match is not None and match[1] != self._run

    def _clean_up(self) -> None:
        """A commit lists files of this run alone: nothing that an earlier one prepared can still be committed."""
        if not self._leftovers:
            return
        assert self._listed is not None, "there is a commit"
        listed = {self._log.folder / file.name for file in self._listed.files}
        for path in self._leftovers:
            if path not in listed:
                with reaching(path):
                    path.unlink(missing_ok=True)
        self._leftovers = []


def _described(schema: str, partitioned: Sequence[str]) -> str:
    return f"({schema}){f' by {listing(partitioned)}' if partitioned else ''}"


def _check_folder(folder: Path) -> None:
    """A new or empty one, or one that has a log already, which will be read."""
    with reaching(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / METADATA).exists():
            return
        strangers = sorted(e.name for e in os.scandir(folder) if not OURS.fullmatch(e.name) and e.name[0] not in "._")
    if strangers:
        raise StorageError(
            f"{str(folder)!r} holds other things already, such as {strangers[0]!r}: Spark would not see them any more "
            "beside Tidemill's. Write to a folder that is new or empty."
        )


def _files_of_ours(folder: Path) -> Iterator[Path]:
    with reaching(folder):
        for at, _, names in os.walk(folder):
            yield from (Path(at) / name for name in names if OURS.fullmatch(name.lstrip(".")))


class ParquetWriter:
    """One shard's files. Each is written in one go, and until it is whole under a name that readers of folders skip."""

    def __init__(
        self, folder: Path, name: str, run: str, schema: pa.Schema, partition_by: tuple[str, ...], compression: str
    ) -> None:
        self._folder = folder
        self._name = name
        self._run = run
        self._schema = schema
        self._partition_by = partition_by
        self._compression = compression
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self._files: list[File] = []
        self._count = 0

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._batches.append(batch)
            self._bytes += batch.nbytes
            if self._bytes >= LARGE:
                self._put_all()

    def prepare(self) -> bytes:
        self._put_all()
        if not self._files:
            return b""
        for file in self._files:
            with reaching(self._folder / file.name):
                make_durable(self._folder / file.name)
        with reaching(self._folder):
            make_folder_durable(self._folder)
        files, self._files = self._files, []
        return msgspec.msgpack.encode(Piece(tuple(files), self._run))

    def close(self) -> None:
        """What was not prepared is taken away; a crash leaves it to the next run."""
        self._batches = []
        for file in self._files:
            with reaching(self._folder / file.name):
                (self._folder / file.name).unlink(missing_ok=True)
        self._files = []

    def _put_all(self) -> None:
        if not self._batches:
            return
        table = pa.Table.from_batches(self._batches, self._schema)
        self._batches, self._bytes = [], 0
        if not self._partition_by:
            self.put(table, "", ())
            return
        texts = [_texts(table.column(name)) for name in self._partition_by]
        kept = table.drop_columns(list(self._partition_by))
        places: dict[tuple[str | None, ...], list[int]] = {}
        for place, values in enumerate(zip(*texts, strict=True)):
            places.setdefault(values, []).append(place)
        for values, chosen in places.items():
            named = tuple(zip(self._partition_by, values, strict=True))
            below = "/".join(
                f"{_escaped(name)}={NO_VALUE if value is None else _escaped(value)}" for name, value in named
            )
            self.put(kept.take(pa.array(chosen)), f"{below}/", named)

    def put(self, table: pa.Table, below: str, values: tuple[tuple[str, str | None], ...]) -> None:
        """One file, with these rows."""
        name = f"{self._name}-{self._count}.parquet"
        self._count += 1
        path = self._folder / f"{below}{name}"
        making = path.with_name(f".{name}")
        with reaching(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                pq.write_table(table, making, compression=self._compression)
                making.rename(path)
            except BaseException:
                making.unlink(missing_ok=True)
                raise
            known = path.stat()
        modified = known.st_mtime_ns // 10**6
        self._files.append(File(f"{below}{name}", known.st_size, modified, table.num_rows, values=values))


def _texts(column: pa.ChunkedArray) -> list[str | None]:
    """As Spark writes values into folders' names. An empty text is none, there as here."""
    return [value or None for value in column.cast(pa.string()).to_pylist()]


def _folder(name: str, value: str | None) -> str:
    return f"{_escaped(name)}={NO_VALUE if value is None else _escaped(value)}/"


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)
