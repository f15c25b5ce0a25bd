"""What the core and the mechanisms may touch: their inputs, and nothing that differs from one process to the next.

The same events in the same order must give the same effects, on any machine, today or in a replay. So each module under
`core/` and `recovery/` is read as a syntax tree and searched for what could break that: an import that is not on the
list, a look at the clock, `hash` and `id`, files and printing, and a walk through a set, whose order depends on the
hashes of strings and so on the process.

A set is known by how it is written or annotated in the module, or, for an attribute, in any of these modules. Ask a set
whether it contains something, sort it, or use a dict in its place: dicts keep their order.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

SOURCE: Final = Path(__file__).parents[2] / "src" / "tidemill"
PURE: Final = ("core", "recovery")

STANDARD: Final = (
    "__future__ abc bisect collections collections.abc copy dataclasses datetime decimal enum functools heapq "
    "itertools math operator struct types typing zlib"
).split()
INSTALLED: Final = "numpy numpy.typing pyarrow pyarrow.compute msgspec msgspec.msgpack msgspec.structs xxhash".split()
OURS: Final = {
    "core": ("tidemill.core", "tidemill.errors"),
    "recovery": ("tidemill.core", "tidemill.errors", "tidemill.recovery"),
}

BUILTINS: Final = frozenset("hash id open print input eval exec compile breakpoint __import__ globals vars".split())
CLOCKS: Final = frozenset({"now", "utcnow", "today"})
SETS: Final = frozenset("set frozenset Set FrozenSet AbstractSet MutableSet".split())
WRAPPERS: Final = frozenset("Final ClassVar Optional Annotated InitVar".split())
ORDERED: Final = frozenset("list tuple iter enumerate zip map filter dict".split())
ORDERED_METHODS: Final = frozenset({"join", "extend", "fromkeys", "from_iterable"})
HARMLESS: Final = frozenset("sorted set frozenset any all".split())  # what they make has no order, or a given one
ALGEBRA: Final = frozenset({"union", "intersection", "difference", "symmetric_difference", "copy"})


def last_name(node: ast.AST) -> str:
    """`c` of `a.b.c`, `c` of `c`, nothing of anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def means_set(annotation: ast.AST | None) -> bool:
    match annotation:
        case ast.Constant(value=str() as text):
            return means_set(ast.parse(text, mode="eval").body)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return means_set(left) or means_set(right)
        case ast.Subscript(value=value, slice=inner) if last_name(value) in WRAPPERS:
            return any(map(means_set, inner.elts)) if isinstance(inner, ast.Tuple) else means_set(inner)
        case ast.Subscript(value=value):
            return last_name(value) in SETS
        case ast.Name() | ast.Attribute():
            return last_name(annotation) in SETS
    return False


def holds_sets(annotation: ast.AST | None) -> bool:
    """Is it a `dict[..., set[...]]` or a `list[set[...]]`?"""
    match annotation:
        case ast.Subscript(value=value, slice=inner) if last_name(value) in WRAPPERS:
            return holds_sets(inner)
        case ast.Subscript(slice=ast.Tuple(elts=[*_, inner])) | ast.Subscript(slice=inner):
            return means_set(inner)
    return False


class Sets(ast.NodeVisitor):
    """Which names and attributes of a module are sets, as far as the module writes it down."""

    def __init__(self, tree: ast.AST) -> None:
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.others: set[str] = set()  # attributes that are annotated as something else
        self.functions: set[str] = set()
        self.holders: set[str] = set()
        self.visit(tree)
        self.visit(tree)  # once more: names that were given a name found later

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                (self.attributes if means_set(statement.annotation) else self.others).add(statement.target.id)
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if any(last_name(decorator) in {"property", "cached_property"} for decorator in node.decorator_list):
            (self.attributes if means_set(node.returns) else self.others).add(node.name)
        elif means_set(node.returns):
            self.functions.add(node.name)
        self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> None:
        if means_set(node.annotation):
            self.names.add(node.arg)
        if holds_sets(node.annotation):
            self.holders.add(node.arg)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if holds_sets(node.annotation):
            self.holders.add(last_name(node.target))
        if means_set(node.annotation):
            self._add(node.target)
        elif isinstance(node.target, ast.Attribute):
            self.others.add(node.target.attr)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if self.is_set(node.value):
            for target in node.targets:
                self._add(target)
        self.generic_visit(node)

    def _add(self, target: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self.names.add(target.id)
        elif isinstance(target, ast.Attribute):
            self.attributes.add(target.attr)

    def is_set(self, node: ast.AST) -> bool:
        match node:
            case ast.Set() | ast.SetComp():
                return True
            case ast.Name(id=name):
                return name in self.names
            case ast.Attribute(attr=name):
                return name in self.attributes
            case ast.NamedExpr(value=value):
                return self.is_set(value)
            case ast.IfExp(body=one, orelse=other) | ast.BinOp(left=one, right=other):
                return self.is_set(one) or self.is_set(other)
            case ast.BoolOp(values=values):
                return any(map(self.is_set, values))
            case ast.Subscript(value=value):
                return last_name(value) in self.holders
            case ast.Call(func=function):
                return self._gives_set(function)
        return False

    def _gives_set(self, function: ast.expr) -> bool:
        if isinstance(function, ast.Attribute):
            if function.attr in ALGEBRA and self.is_set(function.value):
                return True
            if function.attr in {"get", "setdefault", "pop"} and last_name(function.value) in self.holders:
                return True
        return last_name(function) in self.functions | {"set", "frozenset"}


class Reader(ast.NodeVisitor):
    """Writes down each offence of one module."""

    def __init__(self, package: str, sets: Sets) -> None:
        self.allowed = frozenset((*STANDARD, *INSTALLED))
        self.ours = OURS[package]
        self.sets = sets
        self.found: list[str] = []
        self._harmless: set[ast.AST] = set()
        self._own: frozenset[str] = frozenset()  # names that the function being read takes from the builtins

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        before = self._own
        stored = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        self._own |= stored | {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}
        self.generic_visit(node)
        self._own = before

    def offence(self, node: ast.AST, what: str) -> None:
        self.found.append(f"{getattr(node, 'lineno', 0)}: {what}")

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._imported(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level:
            self.offence(node, "relative import: write the whole name")
            return
        module = node.module or ""
        for alias in node.names:
            part = module == "tidemill" or alias.name == "random"  # `from numpy import random` imports numpy.random
            self._imported(node, f"{module}.{alias.name}" if part else module)

    def _imported(self, node: ast.AST, name: str) -> None:
        ours = any(name == own or name.startswith(f"{own}.") for own in self.ours)
        if not ours and name not in self.allowed:
            self.offence(node, f"import of {name}")

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in BUILTINS and node.id not in self._own and isinstance(node.ctx, ast.Load):
            self.offence(node, f"builtin {node.id}")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr == "random" and last_name(node.value) in {"np", "numpy"}:
            self.offence(node, "np.random")
        if node.attr in CLOCKS and last_name(node.value) in {"datetime", "date"}:
            self.offence(node, f"the clock: {last_name(node.value)}.{node.attr}")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = last_name(node.func)
        if name in HARMLESS and isinstance(node.func, ast.Name):
            self._harmless.update(argument for argument in node.args if isinstance(argument, ast.GeneratorExp))
        if name in (ORDERED if isinstance(node.func, ast.Name) else ORDERED_METHODS):
            for argument in node.args:
                self._walks(argument)
        if isinstance(node.func, ast.Attribute) and name == "pop" and not node.args:
            self._walks(node.func.value)
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        self._walks(node.iter)
        self.generic_visit(node)

    def visit_Starred(self, node: ast.Starred) -> None:
        self._walks(node.value)
        self.generic_visit(node)

    def visit_YieldFrom(self, node: ast.YieldFrom) -> None:
        self._walks(node.value)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if any(isinstance(target, ast.Tuple | ast.List) for target in node.targets):
            self._walks(node.value)
        self.generic_visit(node)

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.ListComp | ast.DictComp | ast.GeneratorExp) and node not in self._harmless:
            for generator in node.generators:
                self._walks(generator.iter)
        super().generic_visit(node)

    def _walks(self, node: ast.AST) -> None:
        if self.sets.is_set(node):
            self.offence(node, f"walks through a set, in no certain order: {ast.unparse(node)}")


def offences(package: str, sources: dict[str, str]) -> list[str]:
    """All that the modules of a package do and must not, as `module:line: what`."""
    trees = {name: ast.parse(text) for name, text in sources.items()}
    sets = {name: Sets(tree) for name, tree in trees.items()}
    shared = {attribute for one in sets.values() for attribute in one.attributes}
    shared -= {attribute for one in sets.values() for attribute in one.others}
    found: list[str] = []
    for name, tree in trees.items():
        sets[name].attributes |= shared
        reader = Reader(package, sets[name])
        reader.visit(tree)
        found.extend(f"{name}:{offence}" for offence in sorted(reader.found))
    return found


@pytest.mark.parametrize("package", PURE)
def test_pure(package):
    paths = sorted((SOURCE / package).rglob("*.py"))
    assert offences(package, {str(path.relative_to(SOURCE)): path.read_text() for path in paths}) == []


IMPURE = {
    "import": "import time",
    "import of a part": "import os.path",
    "import within": "def f():\n    import random",
    "import from": "from threading import Lock",
    "import of what is above": "from tidemill.api import Pipeline",
    "import of a package above": "from tidemill import api",
    "relative import": "from . import ids",
    "randomness in numpy": "import numpy as np\nnp.random.default_rng()",
    "randomness from numpy": "from numpy import random",
    "a file system": "import pyarrow.fs",
    "logging": "import logging",
    "hash": "hash('a')",
    "hash beside an own one": "def f(hash): return hash\ndef g(x): return hash(x)",
    "hash handed on": "sorted('ab', key=hash)",
    "id": "id(object())",
    "file": "open('a')",
    "print": "print('a')",
    "clock": "from datetime import datetime\ndatetime.now()",
    "clock of the whole module": "import datetime\ndatetime.datetime.utcnow()",
    "calendar": "from datetime import date\ndate.today()",
    "walk through a literal": "for x in {1, 2}: pass",
    "walk through a call": "[x for x in set('ab')]",
    "walk through a comprehension": "{x: 1 for x in {y for y in 'ab'}}",
    "walk in a generator": "sum(x for x in frozenset('ab'))",
    "walk through a parameter": "def f(names: set[str]):\n    for name in names: pass",
    "walk through a variable": "names: 'frozenset[str]' = frozenset()\nlist(names)",
    "walk through what was never annotated": "names = {1, 2}\nfor name in names: pass",
    "walk through a field": "class A:\n    names: Final[set[str]]\n    def f(self): return tuple(self.names)",
    "walk through a union": "def f(a: set[str], b: set[str]):\n    for x in a | b: pass",
    "walk through a result": "def f() -> set[str]: ...\nfor x in f(): pass",
    "walk through a property": "class A:\n    @property\n    def b(self) -> set[str]: ...\nfor x in A().b: pass",
    "walk through a held set": "def f(d: dict[str, set[int]]):\n    for x in d['a']: pass",
    "join": "','.join({'a', 'b'})",
    "star": "f(*{1, 2})",
    "take any": "def f(a: set[int]): return a.pop()",
    "unpack": "def f(a: set[int]):\n    b, c = a",
}

PURE_ENOUGH = {
    "imports": "import numpy as np, pyarrow.compute as pc\nfrom tidemill.core.ids import Epoch",
    "membership": "def f(a: set[int]): return 1 in a and len(a)",
    "sorted": "def f(a: set[int]):\n    for x in sorted(a): pass",
    "sorted afterwards": "def f(a: set[int]): return sorted(x + 1 for x in a)",
    "a set of a set": "def f(a: set[int]): return {x + 1 for x in a}",
    "the time of an event": "def f(ctx): return ctx.now",
    "a dict of sets": "def f(d: dict[str, set[int]]):\n    for x in d: pass",
    "a field named as a builtin": "class A:\n    hash: int",
    "a parameter named as a builtin": "def f(id): return id + 1",
    "a variable named as a builtin": "def f(d):\n    for id in d:\n        d[id] = 1",
}


@pytest.mark.parametrize("source", IMPURE.values(), ids=IMPURE)
def test_impure_is_found(source):
    assert offences("core", {"bad.py": source}) != []


@pytest.mark.parametrize("source", PURE_ENOUGH.values(), ids=PURE_ENOUGH)
def test_pure_is_left_alone(source):
    assert offences("core", {"good.py": source}) == []


def test_a_field_that_another_module_declares_a_set():
    declares = "class A:\n    edges: frozenset[int]"
    walks = "def f(a):\n    for edge in a.edges: pass"
    other = "class B:\n    edges: tuple[int, ...]"
    assert len(offences("core", {"a.py": declares, "b.py": walks})) == 1
    assert offences("core", {"a.py": declares, "b.py": walks, "c.py": other}) == []


def test_only_recovery_knows_recovery():
    source = "from tidemill.recovery.contract import Ready"
    assert len(offences("core", {"a.py": source})) == 1
    assert offences("recovery", {"a.py": source}) == []
