"""The journal of a run, told: when it was, counted from the beginning, who it was, and what happened in plain words.

What is said several times in a row is told once, with how often. A kind of happening that has no words here is told as
it was written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from tidemill.observe.journal import Happening
from tidemill.observe.wording import clock, moment, one_line

_WIDTH: Final = 11  # of a time: a day has 12:00:00.000


class Story:
    """Takes happenings one by one and gives lines. It keeps the last line back, as the same may happen again."""

    def __init__(self) -> None:
        self.began: int | None = None
        """The first happening's time, from which all others are counted."""

        self._kept: Happening | None = None
        self._times = 0
        self._until = 0

    def tell(self, happening: Happening) -> Iterator[str]:
        if self.began is None and happening.at:
            self.began = happening.at
        kept = self._kept
        if kept is not None and _same(kept, happening):
            self._times += 1
            self._until = happening.at
            return
        yield from self.pause()
        self._kept, self._times, self._until = happening, 1, happening.at

    def pause(self) -> Iterator[str]:
        """The line that was kept back: nothing more comes for now."""
        kept, self._kept = self._kept, None
        if kept is not None:
            again = f" ({self._times} times, until {self._when(self._until).strip()})" if self._times > 1 else ""
            yield f"{self._when(kept.at)}  {one_line(kept.who)}: {words(kept)}{again}"

    @property
    def heading(self) -> str:
        """What the times mean; nothing before the first happening."""
        return "" if self.began is None else f"Times are counted from {moment(self.began)}."

    def _when(self, at: int) -> str:
        """The reader does not know when a line was written that it can't read."""
        told = "" if self.began is None or not at else clock((at - self.began) / 1e6, 3)
        return told.rjust(_WIDTH)


def tell(happenings: Iterable[Happening]) -> Iterator[str]:
    """The whole story."""
    story = Story()
    for happening in happenings:
        yield from story.tell(happening)
    yield from story.pause()


def words(happening: Happening) -> str:
    about = one_line(happening.about)
    say = _KINDS.get(happening.what)
    if say is None:
        return f"{one_line(happening.what)} {about}".rstrip()
    return say(about) if callable(say) else say.format(about=about).rstrip(": ")


def _same(one: Happening, other: Happening) -> bool:
    return (one.who, one.what, one.about) == (other.who, other.what, other.about)


def _joined(peer: str) -> str:
    """`worker2.3` is the third process that fills the place of worker 2."""
    _, _, process = peer.rpartition(".")
    again = process.isdecimal() and int(process) > 1
    return f"{peer} joined, as process number {process} in its place" if again else f"{peer} joined"


def _assigned(attempt: str) -> str:
    if attempt == "attempt 1":
        return "gave every shard to a worker"
    return f"took all shards back and gave them out again: {attempt}"


def _superseded(about: str) -> str:
    removed, by, added = about.partition(" by ")
    return f"{_shards(added)} took the place of {_shards(removed)}" if by else f"superseded {about}"


def _rerouting(about: str) -> str:
    kind, _, shards = about.partition(" ")
    begun = {"move": "moves", "split": "splits", "merge": "merges"}.get(kind, kind)
    return f"{begun} {_shards(shards)}"


def _refused(about: str) -> str:
    asked, _, why = about.partition(": ")
    wish = {"MoveAsked": "to move a shard", "SplitAsked": "to split a shard", "MergeAsked": "to merge shards"}.get(
        asked
    )
    return f"refused {wish}: {why}" if wish else f"refused {about}"


def _shards(written: str) -> str:
    numbers = re.findall(r"\d+", written)
    if not numbers:
        return written
    return f"shard {numbers[0]}" if len(numbers) == 1 else f"shards {', '.join(numbers[:-1])} and {numbers[-1]}"


_KINDS: Final[dict[str, str | Callable[[str], str]]] = {
    "started": "the run starts: {about}",
    "claimed": "takes charge of the run, {about}",
    "joined": _joined,
    "worker joined": _joined,
    "began": "begins {about}",
    "rewound": _assigned,
    "lost": "lost {about}: it ended, or was silent for too long",
    "recovering": "brings back {about}",
    "rerouting": _rerouting,
    "superseded": _superseded,
    "refused": _refused,
    "stopping": "was asked to stop: {about}",
    "sealing": "everything is handled: seals {about}, so that all results are visible together",
    "failed": "{about} met an error that ends the run",
    "over": "the run is over: {about}",
    "missed": "{about} could not be written here",
    "damaged": "can't be read: {about}",
}
