"""What came out of a run, read by Spark while the run goes on: the folder of a Parquet sink, commit by commit.

An offset is the number of an entry in the sink's log. So a streaming query that reads up to one has whole commits, and
finds the same rows there whenever it is started again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tidemill.api.schema import read_schema
from tidemill.errors import StorageError
from tidemill.storage.sparklog import File, Listed, SparkLog

BEGINNING: Final = -1
"""The offset before every commit."""


class Part(NamedTuple):
    """One file, and what its folders' names say."""

    path: str
    schema: str
    values: tuple[tuple[str, str | None], ...]


def folder_of(options: Mapping[str, str]) -> str:
    path = options.get("path")
    if path is None:
        raise StorageError("which table is read? .load(path), with the path of a tm.sinks.Parquet")
    return path.removeprefix("file:")


def schema_of(folder: str) -> str:
    listed = _listed(folder)
    if listed is None or not listed.mark.schema:
        raise StorageError(
            f"{folder!r} is no folder of a tm.sinks.Parquet, or no run has begun to write to it: its columns are not "
            "known yet. Start the run first, or say .schema(...)."
        )
    return listed.mark.schema


def newest(folder: str) -> int:
    listed = _listed(folder)
    return BEGINNING if listed is None else listed.newest


def parts(folder: str, start: int, end: int | None) -> list[Part]:
    """The files of the commits behind `start`, up to `end` or all."""
    listed = _listed(folder)
    if listed is None:
        return []
    until = listed.batch if end is None else end
    if until > listed.batch:
        raise StorageError(
            f"{folder!r} has commits up to {listed.batch}, and {until} was read from it before: it is not the same "
            "table any more. Start the query with a new checkpoint."
        )
    return [_part(folder, listed, file) for file in listed.between(start, until) if file.rows]


def _part(folder: str, listed: Listed, file: File) -> Part:
    return Part(str(Path(folder) / file.name), listed.mark.schema, file.values)


def read(told: Sequence[Any], names: list[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a part, with these columns in this order."""
    part = Part(*told)
    schema = read_schema(part.schema)
    fields = {field.name.lower(): field for field in schema}
    unknown = [name for name in names if name.lower() not in fields]
    if unknown:
        raise StorageError(f"{part.path!r} has no columns {', '.join(unknown)}; it has {', '.join(schema.names)}.")
    wanted = [fields[name.lower()] for name in names]
    values = dict(part.values)
    try:
        with pq.ParquetFile(part.path) as file:
            for batch in file.iter_batches(columns=[field.name for field in wanted if field.name not in values]):
                arrays = [_column(batch, field, values) for field in wanted]
                yield pa.RecordBatch.from_arrays(arrays, names=names)
    except (OSError, pa.ArrowException) as error:
        raise StorageError(f"{part.path!r}, which is committed, can't be read: {error}") from error


def _column(batch: pa.RecordBatch, field: pa.Field, values: Mapping[str, Any]) -> pa.Array:
    if field.name not in values:
        return batch.column(field.name)
    return pa.repeat(pa.scalar(values[field.name], pa.string()), batch.num_rows).cast(field.type)


def _listed(folder: str) -> Listed | None:
    return SparkLog(Path(folder).absolute()).read()
