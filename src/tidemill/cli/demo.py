"""`tidemill demo`: MillWheel's Zeitgeist on Spark, with spikes and dips that were planted and are to be found."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from tidemill.cli.run import sigterm_as_ctrl_c
from tidemill.observe.wording import counted
from tidemill.zeitgeist.judging import Balance, Planted, Verdict
from tidemill.zeitgeist.show import Choices, kept_or_not, show
from tidemill.zeitgeist.tables import SHORTEST


def add_to(commands: Any) -> None:
    made = commands.add_parser(
        "demo",
        help="find trends in searches: tables, a plan and a live run on Spark, in about a minute",
        description="Spark makes a table of searches in which spikes and dips are planted; a plan fills a model for "
        "each query from history; a live run counts, compares and reports; Spark SQL judges what it found. Exits with "
        "1 if something planted was not found, or a search was lost.",
    )
    made.add_argument(
        "--seconds", type=_from(SHORTEST), default=30, metavar="N", help="of the live part (default %(default)s)"
    )
    made.add_argument("--seed", type=_from(0), default=0, metavar="N", help="what everything is made from (default 0)")
    made.add_argument("--workers", type=_from(1), default=2, metavar="N", help="how many Spark tasks (default 2)")
    made.add_argument("--master", metavar="URL", help="Spark's master (default: local-cluster, an executor each)")
    made.add_argument("--keep", type=Path, metavar="FOLDER", help="leave tables, journal and Spark's event log here")
    made.add_argument("--quiet", action="store_true", help="only the result")
    made.set_defaults(run=_run)


def _from(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) < 2**31:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} on")
        return int(text)

    return number


def _run(given: argparse.Namespace) -> int:
    def say(line: str) -> None:
        if not given.quiet:
            print(line, flush=True)

    with sigterm_as_ctrl_c(), kept_or_not(given.keep) as folder:
        chosen = Choices(
            given.seconds, given.seed, given.workers, given.master, folder, display=not given.quiet, say=say
        )
        try:
            verdict = show(chosen)
        except KeyboardInterrupt:
            print("tidemill: stopped", file=sys.stderr)
            return 1
    for line in report(verdict):
        print(line)
    for line in _next(given) if not given.quiet else ():
        print(line)
    return 0 if verdict.good else 1


def report(verdict: Verdict) -> Iterator[str]:
    yield ""
    yield f"{'planted':<8} {'query':<18} {'at':>8} {'factor':>7} {'found after':>12} {'searches':>9} {'usual':>6}"
    for one in verdict.planted:
        yield f"{one.kind:<8} {one.query:<18} {one.starts:>6.2f} s {one.factor:>7.2f} {_found(one)}"
    yield ""
    found, alarms = len(verdict.planted) - len(verdict.missed), counted(len(verdict.false_alarms), "false alarm")
    delays = " and ".join(_delay(verdict, kind) for kind in ("spike", "dip"))
    yield f"{found} of {len(verdict.planted)} found, {alarms}; in the median, {delays} after the onset."
    for false in verdict.false_alarms:
        yield f"A {false.kind} that is none: {false.query} at {false.starts:.0f} s, {false.searches} for {false.usual}"
    yield _balance(verdict.balance)


def _found(one: Planted) -> str:
    if one.after is None:
        return f"{'NOT FOUND':>12}"
    return f"{one.after:>10.2f} s {one.searches:>9} {one.usual:>6.1f}"


def _delay(verdict: Verdict, kind: str) -> str:
    delays = [one.after for one in verdict.planted if one.kind == kind and one.after is not None]
    return f"{kind}s {median(delays):.2f} s" if delays else f"{kind}s never"


def _balance(balance: Balance) -> str:
    if balance.good:
        return (
            f"{balance.made:,} searches = {balance.counted:,} in their buckets, where Spark SQL counts the same, "
            f"+ {balance.late:,} late."
        )
    return (
        f"WRONG: of {balance.made:,} searches, {balance.counted:,} were counted and {balance.late:,} were late, and "
        f"Spark SQL counts otherwise in {counted(balance.differing, 'bucket')}."
    )


def _next(given: argparse.Namespace) -> Iterator[str]:
    if given.keep is None:
        keep = ("tidemill demo --keep zeitgeist", "leaves its tables, for spark.read.parquet('zeitgeist/anomalies')")
    else:
        keep = (f"tidemill inspect {given.keep}/run", "what happened in the live run")
    yield ""
    yield "Next:"
    for command, what in (
        keep,
        (f"tidemill demo --seed {given.seed + 1}", "other searches, other spikes and dips"),
        ("tidemill simulate --seed 8", "a run whose processes die, told step by step"),
        ("docs/demo.md", "what you have just seen"),
    ):
        yield f"  {command:<32} {what}"
