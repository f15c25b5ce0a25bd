"""Files of JSON lines as a source.

Which files there are, and how long each is, is settled once for a run: what is appended or added later is not read,
so a rewind finds the same. The files are dealt to the splits in turn. A position is a byte offset into a split's files
laid end to end, and always the beginning of a line.
"""

from __future__ import annotations

import copy
import datetime as dt
import glob
import os
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import pyarrow as pa

from tidemill.api.durations import duration
from tidemill.api.eventtime import mark_behind, refuse_scheduled, time_column
from tidemill.api.jsonform import JsonLines, Problem, Read
from tidemill.api.schema import read_schema
from tidemill.api.wording import declared_at, listing, meant, sentence
from tidemill.core.ids import BEGINNING, END, Micros
from tidemill.errors import DataError, PipelineError, StorageError
from tidemill.ports import MALFORMED, Chunk

Pattern = str | os.PathLike[str]

_TREATMENTS: Final = ("fail", "skip", "divert")
_BLOCK: Final = 2**20
_ROUNDS: Final = 16
_SHOWN: Final = 200  # of a line, in an error


class Piece(NamedTuple):
    """One file, and where it lies among its split's."""

    path: str
    start: int
    size: int

    @property
    def end(self) -> int:
        return self.start + self.size


class Files:
    """Files of JSON lines, one object to a line.

    `pattern` is a path, a pattern such as `"logs/*.jsonl"` or `"logs/**/*.jsonl"`, or a list of them; all workers must
    find the files under the same paths. `timestamp` names the column of event time or is `tm.ARRIVAL`; `delay` is how
    far behind the newest record of a split another may come and still be on time. A line that does not fit is an error;
    with `malformed="skip"` it is left out and counted, with `malformed="divert"` it goes to the stream `diverts_to`.
    """

    def __init__(
        self,
        pattern: Pattern | Iterable[Pattern],
        schema: Any,
        timestamp: str | None = None,
        *,
        delay: str | dt.timedelta | int = "0s",
        splits: int = 1,
        malformed: str = "fail",
        diverts_to: str | None = None,
    ) -> None:
        self._owner = owner = f"the Files declared at {declared_at()}"
        self._patterns = _patterns(pattern, owner)
        if type(splits) is not int or splits < 1:
            raise PipelineError(f"{sentence(owner)} have splits={splits!r}: at least one is needed.")
        _check_treatment(malformed, diverts_to, owner)
        refuse_scheduled(timestamp, owner)
        self.schema: pa.Schema = read_schema(schema, owner)
        self.timestamp = timestamp
        self.diverts_to = diverts_to
        self._malformed = malformed
        self._delay = duration(delay, f"The delay of {owner}")
        self._count = splits
        self._pieces: list[list[Piece]] | None = None
        JsonLines(self.schema, timestamp, owner)  # to find out here whether it can be

    def prepared(self, now: Micros) -> Files:  # noqa: ARG002 - files are what they are at any time
        """The same source with the files that there are."""
        settled = copy.copy(self)
        files = sorted({path for pattern in self._patterns for path in _found(pattern, self._owner)})
        settled._pieces = [list(_laid_end_to_end(files[split :: self._count])) for split in range(self._count)]  # noqa: SLF001 - it is our own
        return settled

    def splits(self) -> Sequence[str]:
        return [str(place) for place in range(self._count)]

    def open(self, split: str, position: int) -> FilesReader:
        if split not in self.splits():
            raise PipelineError(f"There is no split {split!r} in {self._owner}; splits are: {listing(self.splits())}.")
        if self._pieces is None:
            raise PipelineError(
                f"{sentence(self._owner)} are read before it is settled which files there are. Open what prepared(now) "
                "gives."
            )
        return FilesReader(self, self._pieces[int(split)], position)

    # ------------------------------------------------------------------------------------------- what a reader needs

    def lines(self) -> JsonLines:
        return JsonLines(self.schema, self.timestamp, self._owner)

    def mark(self, newest: int) -> Micros:
        return BEGINNING if time_column(self.schema, self.timestamp) is None else mark_behind(newest, self._delay)

    def treated(self, piece: Piece, lines: Sequence[bytes], offset: int, problems: list[Problem]) -> dict[str, Any]:
        """What a chunk says of the lines that are no records. `offset` is where the first line lies in its file."""
        if not problems:
            return {}
        if self._malformed == "skip":
            return {"skipped": len(problems)}
        offsets = list(accumulate((len(line) + 1 for line in lines), initial=offset))
        if self._malformed == "fail":
            place, why = problems[0]
            raise DataError(
                f"{piece.path}, at byte {offsets[place]}: the line {_shown(lines[place])} does not fit the schema of "
                f'{self._owner}: {why}. To leave such lines out, give it malformed="skip"; to keep them elsewhere, '
                'malformed="divert" and diverts_to= the name of a stream.'
            )
        rows = [(piece.path, offsets[place], _text(lines[place]), why) for place, why in problems]
        return {"malformed": pa.RecordBatch.from_arrays(list(map(pa.array, zip(*rows, strict=True))), schema=MALFORMED)}


class FilesReader:
    """The watermark is that of the records this reader has given: after a rewind it rises anew."""

    def __init__(self, source: Files, pieces: Sequence[Piece], position: int) -> None:
        self._source = source
        self._json = source.lines()
        self._lines = _Lines(pieces, position)
        self._newest: int = BEGINNING

    def read(self, limit: int) -> Chunk:
        """Where all lines are blank or skipped it reads on for a while, so that few chunks have nothing to say."""
        skipped = 0
        for _ in range(_ROUNDS):
            piece, start, lines = self._lines.take(limit)
            read = self._json.read(lines)
            told = {} if piece is None else self._source.treated(piece, lines, start - piece.start, read.problems)
            skipped += told.pop("skipped", 0)
            if read.batch.num_rows or told or self._lines.ended:
                break
        return self._chunk(read, skipped, told)

    def _chunk(self, read: Read, skipped: int, told: dict[str, Any]) -> Chunk:
        if len(read.times):
            self._newest = max(self._newest, int(read.times.max()))
        ended = self._lines.ended
        mark = END if ended else self._source.mark(self._newest)
        return Chunk(read.batch, read.times, self._lines.position, mark, ended, idle=False, skipped=skipped, **told)

    def close(self) -> None:
        self._lines.close()


# ---------------------------------------------------------------------------------------------------- lines of files


class _Lines:
    """The lines of a split's files from a position on, read a block at a time."""

    def __init__(self, pieces: Sequence[Piece], position: int) -> None:
        self.position = position
        self._pieces = [piece for piece in pieces if piece.size and piece.end > position]
        self._file: BinaryIO | None = None
        self._block: list[bytes] = []
        self._next = 0

    @property
    def ended(self) -> bool:
        return not self._pieces

    def take(self, limit: int) -> tuple[Piece | None, int, list[bytes]]:
        """Some lines of one file, and the position of the first."""
        if self.ended:
            return None, self.position, []
        piece, start = self._pieces[0], self.position
        if self._next == len(self._block):
            self._block, self._next = self._read_block(piece, start - piece.start), 0
        lines = self._block[self._next : self._next + limit]
        self._next += len(lines)
        self.position = min(start + sum(map(len, lines)) + len(lines), piece.end)  # the last may have no newline
        if self.position == piece.end:
            self.close()
            del self._pieces[0]
        return piece, start, lines

    def _read_block(self, piece: Piece, offset: int) -> list[bytes]:
        """Whole lines: up to the last newline of a block, or up to the end that was settled."""
        parts: list[bytes] = []
        try:
            if self._file is None:
                self._file = Path(piece.path).open("rb")  # noqa: SIM115 - closed at its end, or by close
                self._file.seek(offset)
            left = piece.size - self._file.tell()
            while left and not (parts and b"\n" in parts[-1]):
                parts.append(self._file.read(min(left, _BLOCK)))
                left -= len(parts[-1])
                if not parts[-1]:
                    raise StorageError(
                        f"{piece.path} is shorter than when this run began: it had {piece.size} bytes, and "
                        f"{piece.size - left} are there. Files must stay as they are while a run reads them."
                    )
            block = b"".join(parts)
            if left:
                whole = block.rfind(b"\n") + 1
                self._file.seek(whole - len(block), os.SEEK_CUR)
                block = block[:whole]
        except OSError as error:
            raise StorageError(
                f"{piece.path} can't be read any more: {error.strerror}. Files must stay as they are while a run reads "
                "them."
            ) from error
        return block.removesuffix(b"\n").split(b"\n")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _text(line: bytes) -> str:
    return line.decode(errors="backslashreplace")


def _shown(line: bytes) -> str:
    text = _text(line[: 4 * _SHOWN])
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}..."


# --------------------------------------------------------------------------------------------------- which files are


def _patterns(given: Any, owner: str) -> list[str]:
    several = [given] if isinstance(given, (str, os.PathLike)) else given
    listed = list(several) if isinstance(several, Iterable) else [several]
    for pattern in listed:
        if not isinstance(pattern, (str, os.PathLike)) or not isinstance(os.fspath(pattern), str) or pattern == "":
            raise PipelineError(
                f'{sentence(owner)} can\'t be at {pattern!r}. Give a path, a pattern such as "logs/*.jsonl", or a '
                "list of them."
            )
    if not listed:
        raise PipelineError(f"{sentence(owner)} have no path: the list is empty. Give at least one.")
    return [os.fspath(pattern) for pattern in listed]


def _found(pattern: str, owner: str) -> list[str]:
    """The files, as absolute paths: a worker may have another working directory."""
    path = Path(pattern)
    if path.is_dir():
        raise PipelineError(f"{pattern!r} of {owner} is a folder. To read the files in it, give {pattern + '/*'!r}.")
    names = [pattern] if path.exists() else glob.glob(pattern, recursive=True)  # noqa: PTH207 - takes absolute ones too
    files = [os.path.abspath(name) for name in names if Path(name).is_file()]  # noqa: PTH100 - follows no links
    if not files:
        raise PipelineError(
            f"There is no file {pattern!r} for {owner}, seen from {Path.cwd()}. Give the path of a file, or a pattern "
            "that some file's path matches."
        )
    return files


def _laid_end_to_end(files: Iterable[str]) -> Iterable[Piece]:
    start = 0
    for path in files:
        try:
            size = Path(path).stat().st_size
        except OSError as error:
            raise StorageError(f"{path} can't be read: {error.strerror}.") from error
        yield Piece(path, start, size)
        start += size


def _check_treatment(malformed: Any, diverts_to: Any, owner: str) -> None:
    if malformed not in _TREATMENTS:
        raise PipelineError(
            f"{sentence(owner)} have malformed={malformed!r}. It may be one of: {listing(_TREATMENTS)}."
            f"{meant(str(malformed), _TREATMENTS)}"
        )
    if malformed == "divert" and (not isinstance(diverts_to, str) or not diverts_to):
        raise PipelineError(
            f'{sentence(owner)} have malformed="divert" and diverts_to={diverts_to!r}. Name the stream that malformed '
            'lines go to: diverts_to="bad_lines".'
        )
    if malformed != "divert" and diverts_to is not None:
        raise PipelineError(
            f"{sentence(owner)} have diverts_to={diverts_to!r} beside malformed={malformed!r}, which diverts nothing. "
            'Give malformed="divert" too, or take diverts_to away.'
        )
