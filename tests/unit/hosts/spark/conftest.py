"""Places that are closed when a test is over."""

from __future__ import annotations

import contextlib

import pytest

from tests.unit.hosts.spark.wires import Place, Stranger


@pytest.fixture
def closing():
    """Closes, in the end, all that it is given."""
    with contextlib.ExitStack() as stack:

        def keep(thing):
            stack.callback(thing.close)
            return thing

        yield keep


@pytest.fixture
def place(closing):
    return lambda **how: closing(Place(**how))


@pytest.fixture
def stranger(closing):
    return lambda *where, **how: closing(Stranger(*where, **how))
