"""Style that a reader feels: a module is read in one sitting and opens with its idea, a function fits on a screen."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

SOURCE: Final = Path(__file__).parents[2] / "src"

LONGEST_MODULE: Final = 500  # aim at 400
LONGEST_FUNCTION: Final = 60
NO_SUBJECT: Final = frozenset({"utils", "util", "helpers", "common", "misc"})


def offences(name: str, text: str) -> list[str]:
    """What is wrong with a module; `name` is its path below `src`."""
    path = Path(name)
    tree = ast.parse(text)
    found = []
    if (lines := len(text.splitlines())) > LONGEST_MODULE:
        found.append(f"{name}: {lines} lines")
    if not ast.get_docstring(tree) and not (path.name == "__init__.py" and not tree.body):
        found.append(f"{name}: opens without the idea it holds")
    if not NO_SUBJECT.isdisjoint((*path.parent.parts, path.stem)):
        found.append(f"{name}: a name that says nothing")
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > LONGEST_FUNCTION:
                found.append(f"{name}:{node.lineno}: {node.name} has {length} lines")
    return found


def test_sizes():
    paths = sorted(SOURCE.rglob("*.py"))
    assert paths
    assert [offence for path in paths for offence in offences(str(path.relative_to(SOURCE)), path.read_text())] == []


DOCSTRING = '"""An idea."""\n'

BAD = {
    "long module": ("a.py", DOCSTRING + "a = 1\n" * 500),
    "long function": ("a.py", DOCSTRING + "def f():\n" + "    a = 1\n" * 60),
    "long method": ("a.py", DOCSTRING + "class A:\n    async def f(self):\n" + "        a = 1\n" * 60),
    "no docstring": ("a.py", "a = 1\n"),
    "empty module": ("a.py", ""),
    "full package without docstring": ("a/__init__.py", "a = 1\n"),
    "utils module": ("a/utils.py", DOCSTRING),
    "utils package": ("utils/a.py", DOCSTRING),
}

GOOD = {
    "module": ("a.py", DOCSTRING + "a = 1\n" * 499),
    "function": ("a.py", DOCSTRING + "def f():\n" + "    a = 1\n" * 59),
    "empty package": ("a/__init__.py", ""),
}


@pytest.mark.parametrize("module", BAD.values(), ids=BAD)
def test_bad_is_found(module):
    assert len(offences(*module)) == 1


@pytest.mark.parametrize("module", GOOD.values(), ids=GOOD)
def test_good_is_left_alone(module):
    assert offences(*module) == []
