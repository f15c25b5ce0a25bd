"""`tidemill inspect`: tells the story of a run from its journal, after its end or while it goes on."""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from tidemill.errors import StorageError
from tidemill.observe.journal import JOURNAL, Happening, JournalReader, line_of, old_one
from tidemill.observe.story import Story

PAUSE: Final = 0.25
"""Seconds from one look at a journal that goes on to the next."""

_NAMED: Final = 5
_ENOUGH: Final = 10  # damaged lines at the beginning, to say that a file is no journal


def add_to(commands: Any) -> None:
    made = commands.add_parser(
        "inspect",
        help="tell what happened in a run",
        description="Tells what happened in a run, from the journal in its storage folder: who joined, who was lost, "
        "what was brought back, how it ended.",
    )
    made.add_argument("path", type=Path, metavar="PATH", help="the storage folder of a run, or a journal file")
    made.add_argument("--follow", action="store_true", help="go on until the run is over")
    made.add_argument("--json", action="store_true", help="print the happenings as they are written, one object a line")
    made.add_argument("--last", type=_count, metavar="N", help="only the last N lines of what is there")
    made.set_defaults(run=_run)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return int(text)


def _run(given: argparse.Namespace) -> int:
    journal = _journal_at(given.path)
    reader = JournalReader(journal)
    teller = _Teller(raw=given.json)
    try:
        told = teller.tell(_checked(reader.news(), journal), given.last)
        if not told and not given.json:
            print(f"Nothing is written in {journal} yet.", flush=True)
        while given.follow and (told or not teller.over):
            time.sleep(PAUSE)
            told = teller.tell(reader.news())
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StorageError(f"The journal {journal} can't be read: {error}") from error
    except KeyboardInterrupt:
        if not given.follow:
            raise
    finally:
        reader.close()
    return 0


def _journal_at(path: Path) -> Path:
    """The journal's file; it may be that only the old one is there."""
    journal = path / JOURNAL if path.is_dir() else path
    if journal.is_file() or old_one(journal).is_file():
        return journal
    looked = f"There is no {journal} and no {old_one(journal).name} beside it."
    below = sorted(found.parent for found in path.glob(f"*/{JOURNAL}")) if path.is_dir() else []
    if below:
        named = ", ".join(map(str, below[:_NAMED])) + (f" and {len(below) - _NAMED} more" if below[_NAMED:] else "")
        raise StorageError(f"{looked} There are journals in: {named}. Give one of these.")
    raise StorageError(f"{looked} Give the storage folder of a run, or a journal file.")


def _checked(happenings: Iterator[Happening], journal: Path) -> Iterator[Happening]:
    """Says so when a file holds something else, rather than naming each of its lines."""
    first: list[Happening] = []
    for happening in happenings:
        if happening.what != "damaged":
            yield from first
            yield happening
            yield from happenings
            return
        first.append(happening)
        if len(first) == _ENOUGH:
            break
    if first:
        raise StorageError(f"{journal} is no journal: {first[0].about}. Give the storage folder of a run.")


class _Teller:
    """Prints happenings: for people, or raw for programs."""

    def __init__(self, *, raw: bool) -> None:
        self.over = False
        """Whether the run is over. One that is started again in the same folder goes on in the same journal."""

        self._raw = raw
        self._story = Story()
        self._headed = raw

    def tell(self, happenings: Iterable[Happening], last: int | None = None) -> bool:
        """Gives back whether there was anything to tell."""
        lines: Iterable[str] = self._lines(happenings)
        told = False
        for line in lines if last is None else deque(lines, maxlen=last):
            if not self._headed and self._story.heading:
                print(self._story.heading)
                self._headed = True
            print(line)
            told = True
        sys.stdout.flush()
        return told

    def _lines(self, happenings: Iterable[Happening]) -> Iterator[str]:
        for happening in happenings:
            if happening.what in ("started", "claimed", "over"):
                self.over = happening.what == "over"
            if self._raw:
                yield line_of(happening).decode().rstrip("\n")
            else:
                yield from self._story.tell(happening)
        yield from self._story.pause()
