"""Takes out the guards of the protocols, one at a time, and shows the test that fails.

    python -m tests.guards [NAME ...]

A guard is a piece of source without which something that `DESIGN.md` calls a Law could be broken: a deduplication, a
fence, a flush, an alignment. For each one listed here the source is copied, the piece is replaced by what a forgetful
programmer would have written, and the named tests are run against the copy. If they still pass, nobody guards the
guard: that is an error, and so is a piece that is no longer found in the source.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Guard(NamedTuple):
    name: str
    law: str
    file: str  # below src/tidemill
    piece: str
    without: str
    tests: str  # what is given to pytest


class Verdict(NamedTuple):
    guard: Guard
    guarded: bool
    said: str


def guards() -> list[Guard]:
    from tests.guard_list import GUARDS  # apart, so that this file stays about how and that one about what

    return GUARDS


def take_out(guard: Guard, copy: Path) -> None:
    """Copies the source and replaces the guard's piece, which must be there exactly once."""
    shutil.copytree(ROOT / "src", copy / "src")
    path = copy / "src" / "tidemill" / guard.file
    source = path.read_text()
    found = source.count(guard.piece)
    if found != 1:
        raise SystemExit(f"{guard.name}: its piece is {found} times in {guard.file}: mend tests/guard_list.py")
    path.write_text(source.replace(guard.piece, guard.without))


def run_tests(tests: str, source: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *tests.split()]
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=900)


def judge(guard: Guard) -> Verdict:
    with tempfile.TemporaryDirectory() as folder:
        take_out(guard, Path(folder))
        ran = run_tests(guard.tests, Path(folder) / "src")
    failed = re.findall(r"^FAILED (\S+)", ran.stdout, re.MULTILINE)
    if ran.returncode == 1 and failed:
        return Verdict(guard, guarded=True, said=failed[0])
    last = (ran.stdout + ran.stderr).strip().splitlines()
    return Verdict(guard, guarded=False, said=last[-1] if last else f"pytest ended with {ran.returncode}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.guards", description="Takes out guards, one at a time.")
    parser.add_argument("names", nargs="*", help="only these guards")
    parser.add_argument("--list", action="store_true", help="only say which there are")
    chosen = parser.parse_args()
    wanted = [guard for guard in guards() if not chosen.names or guard.name in chosen.names]
    if chosen.list:
        print("\n".join(f"{guard.law:8} {guard.name}" for guard in wanted))
        return 0
    whole = run_tests(" ".join(sorted({test for guard in wanted for test in guard.tests.split()})), ROOT / "src")
    if whole.returncode != 0:
        print(whole.stdout[-4000:])
        print("The tests fail with all guards in place; there is nothing to learn from taking one out.")
        return 1
    missed = 0
    for guard in wanted:
        verdict = judge(guard)
        missed += not verdict.guarded
        outcome = "fails" if verdict.guarded else "NOTHING FAILS"
        print(f"{guard.law:8} {guard.name:44} {outcome}: {verdict.said}", flush=True)
    print(f"{len(wanted) - missed} of {len(wanted)} guards are guarded")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
