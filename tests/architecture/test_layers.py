"""The layers of the house, held by import-linter with the contracts of `pyproject.toml`.

It runs on a copy of the package, in a process of its own: first as it is, then with one module more that breaks a rule,
to see that the rule is held.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]


@pytest.fixture
def house(tmp_path):
    shutil.copytree(ROOT / "src" / "tidemill", tmp_path / "tidemill", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def lint(house: Path) -> tuple[int, str]:
    program = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=house,
        env={**os.environ, "PYTHONPATH": str(house)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def build(house: Path, name: str, text: str) -> None:
    path = house / "tidemill" / name
    for folder in reversed(path.relative_to(house).parents[:-1]):
        (house / folder).mkdir(exist_ok=True)
        (house / folder / "__init__.py").touch()
    path.write_text(text)


def test_layers(house):
    code, said = lint(house)
    assert code == 0, said


BROKEN = {
    "core imports recovery": {"recovery/own.py": "", "core/own.py": "import tidemill.recovery.own"},
    "core imports api": {"api/own.py": "", "core/own.py": "import tidemill.api.own"},
    "errors imports core": {"errors.py": "import tidemill.core.ids"},
    "recovery imports graphs": {"graphs/own.py": "", "recovery/own.py": "import tidemill.graphs.own"},
    "ports imports a host": {"hosts/own.py": "", "ports.py": "import tidemill.hosts.own"},
    "api imports launch": {"launch.py": "", "api/own.py": "import tidemill.launch"},
    "a mechanism imports another": {"recovery/one/a.py": "", "recovery/two/a.py": "import tidemill.recovery.one.a"},
    "a host imports another": {"hosts/one.py": "", "hosts/two.py": "import tidemill.hosts.one"},
    "a source imports another": {"sources/one.py": "", "sources/two.py": "import tidemill.sources.one"},
    "a sink imports another": {"sinks/one.py": "", "sinks/two.py": "import tidemill.sinks.one"},
    "a module without a place": {"stray.py": ""},
}

SOUND = {
    "a mechanism imports the contract": {
        "recovery/contract.py": "",
        "recovery/one.py": "import tidemill.recovery.contract",
    },
    "a host imports a source": {"sources/one.py": "", "hosts/one.py": "import tidemill.sources.one"},
    "a host imports the loop": {"hosts/loop.py": "", "hosts/one.py": "import tidemill.hosts.loop"},
}


@pytest.mark.parametrize("modules", BROKEN.values(), ids=BROKEN)
def test_broken_is_found(house, modules):
    for name, text in modules.items():
        build(house, name, text)
    code, said = lint(house)
    assert code == 1, said
    assert "BROKEN" in said


@pytest.mark.parametrize("modules", SOUND.values(), ids=SOUND)
def test_sound_is_left_alone(house, modules):
    for name, text in modules.items():
        build(house, name, text)
    code, said = lint(house)
    assert code == 0, said
