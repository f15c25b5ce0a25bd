"""The display: drawn seldom enough, its last state left behind; quiet lines elsewhere; nothing breaks a run."""

from __future__ import annotations

import io
import re
import sys

import pytest
from rich.console import Console
from rich.file_proxy import FileProxy

from tests.unit.observe.invented import node, progress, worker
from tidemill.observe import display
from tidemill.observe.display import Display
from tidemill.observe.stream import CalmStream


@pytest.fixture(autouse=True)
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("LINES", "40")


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(display, "monotonic", lambda: now[0])
    return now


class Terminal(io.StringIO):
    def isatty(self):
        return True


def plain(written):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written)


# Lines


def test_lines_where_there_is_no_terminal(clock):
    stream = io.StringIO()
    with Display(stream) as shown:
        shown.show(progress(0, "starting", nodes=[]))
        for step in range(100):
            clock[0] = step / 4
            shown.show(progress(step / 4, workers=[worker()]))
        shown.say("lost\nworker0.1")
        shown.show(progress(25, "finished"))
        clock[0] += 100
        shown.show(progress(125, "finished"))
    running = "run word-count: running, 1 worker, 1,000 records/s in, lag 0.25 s"
    assert stream.getvalue().splitlines() == [
        "run word-count: starting, no workers",
        "run word-count: running, 1 worker, lag 0.25 s",
        running,
        running,
        "lost worker0.1",
        "run word-count: finished after 0:25, 25,000 records in, 50,000 out",
    ]


def test_a_terminal_that_can_not_go_back(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    with Display(stream) as shown:
        shown.show(progress(0))
    assert stream.getvalue() == "run word-count: running, no workers, lag 0.25 s\n"


def test_a_terminal_that_another_display_has():
    stream = Terminal()
    console = Console(file=stream, force_terminal=True)
    with Display(FileProxy(console, stream)) as shown:  # type: ignore[arg-type]  # what `sys.stderr` is meanwhile
        shown.show(progress(0))
    assert plain(stream.getvalue()) == "run word-count: running, no workers, lag 0.25 s\n"


def test_colours_that_were_asked_for_do_not_make_a_terminal(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    stream = io.StringIO()
    with Display(stream) as shown:
        shown.show(progress(0))
    assert "\x1b" not in stream.getvalue()


# A terminal


def drawings(stream):
    return plain(stream.getvalue()).count("recovery retrace")


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
def test_the_last_state_stays(stream, clock):
    with Display(stream, force_terminal=True) as shown:
        for step in range(10):
            clock[0] = step
            shown.show(progress(step, workers=[worker(cpu=step / 2)]))
        shown.show(progress(10, "finished"))
    written = stream.getvalue()
    assert written.endswith("\x1b[?25h")  # the cursor is there again
    last = plain(written).split("word-count")[-1]
    assert last.startswith("  finished after 0:10")
    assert "10,000" in last


def test_four_drawings_in_a_second(clock):
    stream = Terminal()
    with Display(stream) as shown:
        for step in range(1000):
            clock[0] = step / 1000
            shown.show(progress(step / 1000))
        assert drawings(stream) == 4


def test_a_change_of_status_is_drawn_at_once(clock):
    stream = Terminal()
    with Display(stream) as shown:
        shown.show(progress(0, "starting", nodes=[]))
        shown.show(progress(0.01))
        clock[0] = 0.01
        assert drawings(stream) == 2


def test_what_was_not_due_is_drawn_at_the_end(clock):
    stream = Terminal()
    with Display(stream) as shown:
        shown.show(progress(0))
        clock[0] = 0.1
        shown.show(progress(0.123))
        assert "123" not in plain(stream.getvalue())
    assert "123" in plain(stream.getvalue())


def test_said_lines_are_above():
    stream = Terminal()
    with Display(stream) as shown:
        shown.say("before anything")
        shown.show(progress(1))
        shown.say("[b]worker0.1[/b] :smile: " + "is lost " * 40 + "\x1b[2J")
    lines = plain(stream.getvalue()).splitlines()
    said = "[b]worker0.1[/b] :smile: " + "is lost " * 40 + "[2J"
    assert lines[0] == "before anything"
    assert said in [line.strip() for line in lines]
    assert lines.index(next(line for line in lines if said in line)) < len(lines) - 5


def test_what_the_program_prints_is_above(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    with Display(stream) as shown:
        shown.show(progress(1))
        print("a row")  # noqa: T201 - that is the point
        print("half [/b] a row", end="")  # noqa: T201
    assert sys.stdout is stream
    written = plain(stream.getvalue())
    assert written.count("a row\n") == 2
    assert written.rindex("half [/b] a row\n") < written.rindex("word-count")


def test_what_goes_into_a_file_goes_on_going_there(monkeypatch):
    stream, file = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", file)
    with Display(stream) as shown:
        shown.show(progress(1))
        print("a row")  # noqa: T201 - that is the point
    assert file.getvalue() == "a row\n"
    assert "a row" not in stream.getvalue()


# What must not break a run


class Broken(Terminal):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def write(self, _):
        raise self.error

    def flush(self):
        raise self.error

    def isatty(self):
        raise self.error


@pytest.mark.parametrize("live", [True, False, None])
@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(5, "EIO"), OSError(28, "full"), ValueError("closed")])
def test_a_stream_that_fails(error, live):
    with Display(Broken(error), force_terminal=live) as shown:
        shown.show(progress(0))
        shown.say("something")
        shown.show(progress(1, "finished"))


@pytest.mark.parametrize("live", [True, False])
def test_a_stream_that_is_closed_meanwhile(live):
    stream = io.StringIO()
    with Display(stream, force_terminal=live) as shown:
        shown.show(progress(0))
        stream.close()
        shown.show(progress(100, "stopping"))
        shown.say("something")


def test_no_stream_at_all(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with Display() as shown:
        shown.show(progress(0))
        shown.say("something")


def test_standard_error_is_what_it_is_at_the_time(capsys):
    with Display() as shown:
        shown.say("something")
    assert capsys.readouterr().err == "something\n"


@pytest.mark.parametrize("live", [True, False])
def test_letters_that_the_stream_does_not_have(live):
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    with Display(stream, force_terminal=live) as shown:
        shown.show(progress(0, nodes=[node("überfällig")], pipeline="zählen"))
    assert b"z?hlen" in raw.getvalue()


@pytest.mark.parametrize("live", [True, False])
def test_closed_is_closed(live):
    stream = io.StringIO()
    shown = Display(stream, force_terminal=live)
    shown.close()
    shown.close()
    shown.show(progress(0))
    assert stream.getvalue() == ""
    shown.say("the journal could not be written")
    assert plain(stream.getvalue()) == "the journal could not be written\n"


def test_the_stream_is_left_open():
    stream = io.StringIO()
    calm = CalmStream(stream)
    calm.write("a")
    calm.close()
    del calm
    assert stream.getvalue() == "a"
