"""`tidemill simulate`: runs workloads on a simulated cluster that fails, and tells the story of a seed.

One seed of one workload is told from beginning to end. Of several, each has a line, and the stories of those that went
wrong follow.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from typing import Any

from tidemill.hosts.simulator.faults import Faults, only
from tidemill.hosts.simulator.story import ending, story
from tidemill.hosts.simulator.trial import MECHANISMS, Verdict, attempt
from tidemill.hosts.simulator.workloads import WORKLOADS

_SWITCHES = [
    name for name in Faults.__dataclass_fields__ if not name.endswith("_length")
]  # a length goes with its fault


def add_to(commands: Any) -> None:
    made = commands.add_parser(
        "simulate",
        help="run workloads on a simulated cluster that fails, from a seed",
        description="Replays a seed: the same one gives the same run, to the last message. Exits with 1 if a checker "
        "objects.",
        epilog="Workloads: " + "; ".join(f"{w.name} ({w.about})" for w in WORKLOADS.values()) + ".",
    )
    made.add_argument("--seed", type=_number, required=True, metavar="N", help="the seed, or the first of several")
    made.add_argument("--seeds", type=_count, default=1, metavar="N", help="how many seeds, from --seed on")
    made.add_argument(
        "--workload", choices=[*WORKLOADS, "all"], default="counting", help="what runs on the cluster (%(default)s)"
    )
    made.add_argument("--recovery", choices=list(MECHANISMS), default="retrace", help="the mechanism (%(default)s)")
    made.add_argument("--workers", type=_count, default=5, metavar="N", help="how many workers (%(default)s)")
    made.add_argument(
        "--faults",
        type=_faults,
        default="on",
        metavar="on|off|NAME,...",
        help=f"what may go wrong: as the seed says (on), nothing (off), or only these: {', '.join(_SWITCHES)}",
    )
    made.set_defaults(run=_run)


def _number(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0 on")
    return value


def _count(text: str) -> int:
    value = _number(text)
    if value == 0:
        raise argparse.ArgumentTypeError("at least 1 is needed")
    return value


def _faults(text: str) -> Any:
    """A function of the seed; `None` leaves it to the swarm."""
    if text == "on":
        return lambda _: None
    if text == "off":
        return lambda _: Faults()
    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in _SWITCHES]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"there is no fault {', '.join(map(repr, unknown))}; there are: on, off, {', '.join(_SWITCHES)}"
        )
    return partial(only, names)


def _run(given: argparse.Namespace) -> int:
    verdicts = _verdicts(given)
    if given.seeds == 1 and given.workload != "all":
        verdict = next(verdicts)
        print(story(verdict))
        return int(not verdict.good)
    bad = []
    for verdict in verdicts:
        mark = "good" if verdict.good else "VIOLATED"
        print(f"{verdict.workload:<10} seed {verdict.outcome.seed:<6} {mark:<8} {ending(verdict)}", flush=True)
        if not verdict.good:
            bad.append(verdict)
    for verdict in bad:
        print(f"\n{story(verdict)}")
    return int(bool(bad))


def _verdicts(given: argparse.Namespace) -> Iterator[Verdict]:
    names = list(WORKLOADS) if given.workload == "all" else [given.workload]
    for seed in range(given.seed, given.seed + given.seeds):
        for name in names:
            faults = given.faults(seed)
            mechanism = MECHANISMS[given.recovery]
            yield attempt(WORKLOADS[name], mechanism, seed, workers=given.workers, faults=faults)
