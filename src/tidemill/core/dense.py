"""Row numbers of integer keys that lie close together: a table to look up in, in place of a dictionary.

Ids are often counted up from somewhere. Then one indexed read of an array finds the rows of a whole batch, for a tenth
of what finding its distinct keys costs. It only remembers what it was taught: whoever asks must know another way.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

FREE: Final = 65_536
"""The table may have so many places, however few are taken."""

SPARSE: Final = 16
"""Beyond that, so many places for each that is taken."""

LARGEST: Final = 2**24

_UNKNOWN: Final = -1


class DenseRows:
    def __init__(self) -> None:
        self._first = 0
        self._rows = np.empty(0, np.int32)
        self._known = 0
        self._scattered = False  # the keys lie too far apart; for good

    def find(self, keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int32] | None:
        """The row of each key; None unless all of them are known here."""
        if not self._known or not len(keys):
            return None
        if int(keys.min()) < self._first or int(keys.max()) >= self._first + len(self._rows):
            return None
        rows: npt.NDArray[np.int32] = self._rows[keys - self._first]
        return None if int(rows.min()) == _UNKNOWN else rows

    def learn(self, keys: npt.NDArray[np.int64], rows: npt.NDArray[np.intp]) -> None:
        """These keys, each once, have these rows."""
        if self._scattered or not len(keys):
            return
        low, high = int(keys.min()), int(keys.max()) + 1
        if self._known:
            low, high = min(low, self._first), max(high, self._first + len(self._rows))
        if high - low > min(max(FREE, SPARSE * (self._known + len(keys))), LARGEST):
            self.__init__()  # type: ignore[misc]
            self._scattered = True
            return
        self._reach(low, high)
        places = keys - self._first
        self._known += int((self._rows[places] == _UNKNOWN).sum())
        self._rows[places] = rows

    def _reach(self, low: int, high: int) -> None:
        """Makes room, and some more than is asked for: keys that are counted up or down come one by one."""
        end = self._first + len(self._rows)
        if self._known and low == self._first and high == end:
            return
        more = (high - low) // 4 if self._known else 0
        first = low - more if low < self._first else low
        rows = np.full((high + more if high > end else high) - first, _UNKNOWN, np.int32)
        if self._known:
            rows[self._first - first : end - first] = self._rows
        self._first, self._rows = first, rows
