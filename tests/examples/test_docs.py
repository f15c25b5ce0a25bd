"""The pages of `docs` say what is: their Python runs, and what they show of an example is what the example has."""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def test_the_page_of_sources_and_sinks():
    blocks = BLOCK.findall((ROOT / "docs" / "sources-and-sinks.md").read_text())
    example = (ROOT / "examples" / "own_source_and_sink.py").read_text()
    assert any(block in example for block in blocks)
    scope = {"__name__": "own_source_and_sink"}
    exec(compile(example, "own_source_and_sink.py", "exec"), scope)  # noqa: S102 - it is our own
    for block in blocks:
        assert block in example or "class " not in block
        exec(compile(block, "sources-and-sinks.md", "exec"), scope)  # noqa: S102 - it is our own
    names = {name: type(value).__name__ for name, value in scope.items()}
    assert [names[name] for name in ("words", "readings", "fast", "logs", "alerts")] == [
        *("Rows", "Generator", "Generator", "Files", "Callback")
    ]


def test_the_page_of_windows_and_joins():
    scope: dict[str, Any] = {"__name__": "windows_and_joins"}
    for block in BLOCK.findall((ROOT / "docs" / "windows-and-joins.md").read_text()):
        exec(compile(block, "windows-and-joins.md", "exec"), scope)  # noqa: S102 - it is our own
    graph = scope["pipeline"].graph()
    found = {stream: graph.streams[stream].schema.names for stream in graph.streams}
    assert found["orders-filter-by-item-tumbling-10s"] == ["item", "window_start", "window_end", "n", "total", "kinds"]
    assert found["live"][-1] == "change"
    assert "too-late" in found
    assert found["orders-join-payments"][-3:] == ["order_id", "paid", "on"]


def test_what_pages_link_to_is_there():
    for page in (ROOT / "docs").glob("*.md"):
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_the_figures_of_the_readme_are_those_that_were_measured():
    from benchmarks.figures import table

    assert table() in (ROOT / "README.md").read_text()
