"""The list of guards is up to date: each piece is in the source once, and each names tests that are there."""

import pytest

from tests.guard_list import GUARDS
from tests.guards import ROOT


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_guard_is_where_the_list_says(guard):
    source = (ROOT / "src" / "tidemill" / guard.file).read_text()
    assert source.count(guard.piece) == 1
    assert guard.piece != guard.without
    for test in guard.tests.split():
        assert (ROOT / test.split("::")[0]).exists(), f"{guard.name} names {test}"


def test_every_law_has_a_guard():
    assert {f"Law {number}" for number in range(1, 9)} <= {guard.law for guard in GUARDS}


def test_no_guard_is_there_twice():
    assert len({guard.name for guard in GUARDS}) == len(GUARDS)
