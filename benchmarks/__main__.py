"""`python -m benchmarks NAME [--quick] [--json FILE]`: finds the file, runs it, prints its table and the machine."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import benchmarks


def names() -> list[str]:
    """The questions: every module here that has a `run`."""
    modules = [module.name for module in pkgutil.iter_modules(benchmarks.__path__) if not module.name.startswith("_")]
    return [name for name in modules if hasattr(importlib.import_module(f"benchmarks.{name}"), "run")]


def machine() -> dict[str, Any]:
    processor = platform.processor()
    information = Path("/proc/cpuinfo")
    if information.exists():
        lines = information.read_text().splitlines()
        models = [line.split(":", 1)[1] for line in lines if line.startswith("model name")]
        processor = models[0].strip() if models else processor
    return {
        "processor": processor,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "pyarrow": pa.__version__,
        "numpy": np.__version__,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=benchmarks.__doc__)
    parser.add_argument("name", choices=names())
    parser.add_argument("--quick", action="store_true", help="fewer rounds: to see that it works")
    parser.add_argument("--json", type=Path, help="write the figures here")
    chosen = parser.parse_args()
    on = machine()
    print(f"{on['processor']}, {on['cores']} cores, {on['system']}, Python {on['python']}, pyarrow {on['pyarrow']}")
    figures: dict[str, Any] = importlib.import_module(f"benchmarks.{chosen.name}").run(quick=chosen.quick)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps({**figures, "machine": on, "quick": chosen.quick}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
