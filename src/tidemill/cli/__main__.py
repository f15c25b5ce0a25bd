"""`tidemill COMMAND ...`: finds the command and lets it run. 0 is good, 1 is a violation or a failure, 2 bad usage."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from tidemill.cli import demo, inspect, run, simulate
from tidemill.errors import TidemillError


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="tidemill", description="Stateful streams and graphs in Python on Spark, with five ways to recover."
    )
    commands = made.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (demo, run, simulate, inspect):
        command.add_to(commands)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    try:
        code: int = given.run(given)
        sys.stdout.flush()
    except TidemillError as error:
        print(f"tidemill: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
