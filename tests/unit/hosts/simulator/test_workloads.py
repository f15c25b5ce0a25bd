"""A workload's model must notice: each row that is taken away, doubled or altered is missed by it."""

from __future__ import annotations

from functools import cache

import pytest

from tidemill.hosts.simulator.checkers import shown
from tidemill.hosts.simulator.faults import Faults
from tidemill.hosts.simulator.trial import MECHANISMS, attempt
from tidemill.hosts.simulator.workloads import AT, WORKLOADS, Shown

SEED = 7

ALARMS = {"disorder", "violations", "repeated", "behind"}
"""Streams on which a workload says that something is wrong: they stay empty."""


@cache
def ended(name):
    """What a quiet run shows, and the model that judges it."""
    verdict = attempt(WORKLOADS[name], MECHANISMS["rewind"], SEED, faults=Faults())
    assert verdict.good
    return verdict.outcome, WORKLOADS[name].build(SEED)[1]


def streams(name):
    return [sink.removeprefix("sink:") for sink in ended(name)[0].pieces]


def complaints(name, stream, change):
    """What the model says when the pieces of one stream are changed."""
    outcome, oracle = ended(name)
    show = shown(outcome)
    pieces = {other: [list(piece) for piece in show.pieces(other)] for other in streams(name)}
    pieces[stream] = change(pieces[stream])
    return list(oracle(Shown(pieces)))


@pytest.mark.parametrize("name", WORKLOADS)
def test_nothing_is_wrong(name):
    for stream in streams(name):
        assert complaints(name, stream, lambda pieces: pieces) == []


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_row_twice(name):
    for stream in set(streams(name)) - ALARMS:
        assert complaints(name, stream, lambda pieces: [*pieces, next(piece for piece in pieces if piece)[:1]]), stream


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_row_too_few(name):
    for stream in set(streams(name)) - ALARMS:
        assert complaints(name, stream, lambda pieces: [piece[1:] for piece in pieces]), stream


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_row_altered(name):
    """Its first number is one too large."""
    for stream in set(streams(name)) - ALARMS:

        def alter(pieces):
            place = next(place for place, piece in enumerate(pieces) if piece)
            row = dict(pieces[place][0])
            column = next(column for column, value in row.items() if type(value) is int and column != AT)
            row[column] += 1
            return [*pieces[:place], [row, *pieces[place][1:]], *pieces[place + 1 :]]

        assert complaints(name, stream, alter), stream


@pytest.mark.parametrize("name", WORKLOADS)
def test_an_alarm(name):
    for stream in ALARMS & set(streams(name)):
        assert complaints(name, stream, lambda pieces: [*pieces, [{"what": "wrong"}]]), stream


def test_order_within_a_sink():
    def swap(pieces):
        place = next(place for place, piece in enumerate(pieces) if len({row["word"] for row in piece}) < len(piece))
        return [*pieces[:place], pieces[place][::-1], *pieces[place + 1 :]]

    assert "was written after" in complaints("counting", "counts", swap)[0]


@pytest.mark.parametrize("name", WORKLOADS)
def test_another_seed_is_another_input(name):
    workload = WORKLOADS[name]
    one, other = (workload.build(seed)[0].graph().of_kind("source")[0].handle for seed in (1, 2))
    assert one.open("0", 0).read(50).batch != other.open("0", 0).read(50).batch


@pytest.mark.parametrize("name", WORKLOADS)
def test_there_is_enough_to_do(name):
    assert 1_800 <= ended(name)[0].events <= 6_000
