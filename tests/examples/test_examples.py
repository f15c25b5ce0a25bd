"""Every example runs, and every Python block of the README does what it says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
BLOCKS = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs(example):
    ran = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout


def test_the_blocks_of_the_readme_run_one_after_another():
    assert BLOCKS
    scope = {"__name__": "readme"}
    for block in BLOCKS:
        exec(compile(block, "README.md", "exec"), scope)  # noqa: S102 - it is our own page
