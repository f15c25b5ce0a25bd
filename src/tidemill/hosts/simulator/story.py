"""The story of a trial, for people: what the seed had in store, what happened, how it ended, and who objects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from tidemill.hosts.simulator.faults import CrashPoint, Faults
from tidemill.hosts.simulator.trial import Verdict


def story(verdict: Verdict) -> str:
    return "\n".join(_lines(verdict))


def _lines(verdict: Verdict) -> Iterator[str]:
    outcome = verdict.outcome
    yield f"{verdict.workload} under {verdict.mechanism}, seed {outcome.seed}"
    yield "\nWhat the seed has in store"
    yield from (f"  {line}" for line in described(outcome.faults) or ["nothing: all goes well"])
    yield "\nWhat happens, in virtual seconds"
    yield from (f"  {line}" for line in outcome.story)
    yield "\nHow it ends"
    yield f"  {ending(verdict)}"
    yield f"  trace {outcome.trace}"
    yield "\nWhat the checkers say"
    for checker, complaints in verdict.complaints.items():
        yield f"  {checker:<16} {'VIOLATED' if complaints else 'good'}"
        yield from (f"    {complaint}" for complaint in complaints)
    if verdict.broken:
        yield "\nWhat broke"
        yield from (f"  {line}" for line in verdict.broken.rstrip().splitlines())


def ending(verdict: Verdict) -> str:
    outcome = verdict.outcome
    if verdict.broken:
        how = "it broke"
    elif outcome.error is not None:
        how = "it failed, " + ": ".join(outcome.error)
    else:
        how = "it finished" if outcome.finished else "it came to no end"
    crashes = "1 crash" if len(outcome.crashes) == 1 else f"{len(outcome.crashes)} crashes"
    return f"{how}, after {outcome.virtual_seconds:.3f} virtual seconds, {outcome.events:,} events and {crashes}"


def described(faults: Faults) -> list[str]:
    """A sentence for each fault that is on."""
    quiet = Faults()
    lengths = {name: getattr(faults, name) / 1e6 for name in ("cut_length", "pause_length", "full_length")}
    said = [_crash(point) for point in faults.crashes]
    for field in fields(Faults):
        value = getattr(faults, field.name)
        if field.name in _SENTENCES and value != getattr(quiet, field.name):
            said.append(_SENTENCES[field.name].format(value, seconds=value / 1e6, percent=value * 100, **lengths))
    return said


def _crash(point: CrashPoint) -> str:
    how = {"before": "before", "after": "after", "torn": "in the middle of"}[point.moment]
    whose = "the coordinator's" if point.role == "coordinator" else "all workers'"
    return f"a {point.role} dies {how} {point.effect} number {point.nth} of {whose}"


_SENTENCES = {
    "latency": "a packet takes {seconds:g} s on average",
    "loss": "{percent:g} % of the packets are lost",
    "duplication": "{percent:g} % of the packets come twice",
    "cuts": "{0} times two processes can't reach each other for {cut_length:g} s",
    "pauses": "{0} times a process stands still for {pause_length:g} s",
    "slow_workers": "{0} of the workers is ten times slower",
    "reading": "a source takes {seconds:g} s to find some records",
    "disk_latency": "a write takes {seconds:g} s on average",
    "full_disks": "{0} times the disk is full for {full_length:g} s",
    "clock_offset": "wall clocks disagree by up to {seconds:g} s",
    "reroutings": "{0} times somebody asks for a range to be moved, split or merged",
    "second_coordinators": "a coordinator is thought dead, and another takes its place",
    "second_workers": "a second process is started for a worker that lives",
    "window": "there is room for little: a channel holds {0} records, a bundle no more either",
    "wire": "every packet is made bytes and back",
}
