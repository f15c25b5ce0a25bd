"""`tidemill run FILE:PIPELINE`: runs a pipeline of a Python file live on Spark, until it ends or Ctrl-C."""

from __future__ import annotations

import argparse
import json
import os
import runpy
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

from tidemill.api.pipeline import Pipeline
from tidemill.errors import PipelineError
from tidemill.launch import run
from tidemill.sinks.collect import Collect

MODULE: Final = "tidemill_pipeline"
"""What the file is called while it runs: not `__main__`, so that what it keeps for scripts stays undone. Nobody can
import it by this name, so all that it defines travels to the workers as it is, and no other machine needs the file.
"""


def add_to(commands: Any) -> None:
    made = commands.add_parser(
        "run",
        help="run a pipeline live on Spark",
        description="Runs a pipeline live on Spark until its input ends. Ctrl-C or SIGTERM stops it: what was read is "
        "worked off and committed first. Rows of tm.sinks.Collect are printed at the end, one JSON object a line.",
    )
    made.add_argument(
        "pipeline",
        metavar="FILE[:PIPELINE]",
        help="a Python file, and the variable that holds the pipeline (not needed where there is only one)",
    )
    made.add_argument("--workers", type=int, default=2, metavar="N", help="how many Spark tasks (default 2)")
    made.add_argument("--master", metavar="URL", help="Spark's master: local[4], spark://host:7077 (default local[N])")
    made.add_argument("--recovery", choices=("none",), default="none", help="how it survives the loss of a worker")
    made.add_argument("--storage", type=Path, metavar="FOLDER", help="for what outlives the run: its journal")
    made.add_argument("--max-skew", metavar="TIME", help="pause a source that is so far ahead of the slowest: 30s")
    made.add_argument("--metrics-port", type=int, metavar="PORT", help="serve metrics for Prometheus here")
    made.add_argument("--start-within", default="60s", metavar="TIME", help="give up if workers don't come (60s)")
    made.add_argument("--seed", type=int, default=0, metavar="N", help="what ctx.random follows from (default 0)")
    made.add_argument("--quiet", action="store_true", help="no display of the progress")
    made.set_defaults(run=_run)


def _run(given: argparse.Namespace) -> int:
    chosen = pipeline_at(given.pipeline)
    with sigterm_as_ctrl_c():
        try:
            going = run(
                chosen,
                workers=given.workers,
                master=given.master,
                storage=given.storage,
                max_skew=given.max_skew,
                metrics_port=given.metrics_port,
                display=not given.quiet,
                start_within=given.start_within,
                seed=given.seed,
            )
            going.wait()
        except KeyboardInterrupt:  # the run has been stopped by then
            print("tidemill: stopped", file=sys.stderr)
    for node in chosen.graph().of_kind("sink"):
        if isinstance(node.handle, Collect):
            for row in node.handle.rows:
                print(json.dumps(row, default=str))
    return 0


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    def stop(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def pipeline_at(where: str) -> Pipeline:
    """The pipeline that `FILE:NAME` means, or the only one in FILE."""
    file, name = where, ""
    if not Path(where).exists():
        file, _, name = where.rpartition(":")
    if not file or not Path(file).is_file():
        raise PipelineError(
            f"There is no file {file or where!r}. Give FILE:PIPELINE, as in examples/word_count.py:pipeline."
        )
    scope = _scope_of(Path(file))
    there = {key: value for key, value in scope.items() if isinstance(value, Pipeline)}
    if name in there or (not name and len(there) == 1):
        return there[name] if name else next(iter(there.values()))
    listed = ", ".join(there) or "none"
    if not name:
        raise PipelineError(f"{file} has {len(there)} pipelines ({listed}). Say which one: {file}:NAME.")
    if name in scope:
        kind = type(scope[name]).__name__
        raise PipelineError(f"{name!r} in {file} is a {kind} and no pipeline. Pipelines there: {listed}.")
    raise PipelineError(f"There is no {name!r} in {file}. Pipelines there: {listed}.")


def _scope_of(file: Path) -> dict[str, Any]:
    sys.path.insert(0, str(file.resolve().parent))  # what lies beside it can be imported, as when it is run itself
    try:
        return runpy.run_path(os.fspath(file), run_name=MODULE)
    except PipelineError:
        raise
    except SystemExit as error:
        raise PipelineError(
            f"{file} ends the program ({error.code}). Keep what it does as a script below: if __name__ == '__main__':"
        ) from error
    except Exception as error:
        trace = "".join(traceback.format_exception(error))
        raise PipelineError(f"{file} can't be run: {type(error).__name__}: {error}\n{trace}") from error
