"""Numbers as people read them."""

from __future__ import annotations

import pytest

from tidemill.observe import wording

SAID = [
    (wording.clock, (5,), "0:05"),
    (wording.clock, (59.7,), "1:00"),
    (wording.clock, (760.2,), "12:40"),
    (wording.clock, (10859.125, 3), "3:00:59.125"),
    (wording.clock, (-0.5, 1), "-0:00.5"),
    (wording.seconds, (None,), "-"),
    (wording.seconds, (0.023,), "0.02 s"),
    (wording.seconds, (12.34,), "12.3 s"),
    (wording.seconds, (4000,), "1:06:40"),
    (wording.size, (0,), "0 B"),
    (wording.size, (1023,), "1,023 B"),
    (wording.size, (1024,), "1.0 KiB"),
    (wording.size, (150 * 2**20,), "150 MiB"),
    (wording.size, (3 * 2**50,), "3,072 TiB"),
    (wording.counted, (0, "worker"), "no workers"),
    (wording.counted, (1, "worker"), "1 worker"),
    (wording.counted, (12345, "record"), "12,345 records"),
    (wording.one_line, (" a\r\n\tb\x1b[0m ",), "a b [0m"),
    (wording.moment, (0,), "1970-01-01 00:00:00.000 UTC"),
]


@pytest.mark.parametrize(("say", "given", "said"), SAID)
def test_said(say, given, said):
    assert say(*given) == said
