"""`tidemill run`: which pipeline is meant, what is handed on, how it is stopped, and what is printed."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading

import pytest

import tidemill as tm
from tidemill.cli import run as command
from tidemill.cli.__main__ import main
from tidemill.cli.run import pipeline_at
from tidemill.errors import PipelineError, RunError

ONE = """
import tidemill as tm

counts = tm.Pipeline("counts")
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Writes a Python file; what is imported meanwhile is forgotten."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(text, name="job.py"):
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


# Which pipeline


def test_the_only_one_needs_no_name(file):
    assert pipeline_at(file(ONE)).name == "counts"
    assert pipeline_at(f"{file(ONE)}:").name == "counts"


def test_one_of_several_is_named(file):
    where = file(ONE + 'again = tm.Pipeline("again")\n')
    assert pipeline_at(f"{where}:again").name == "again"
    with pytest.raises(PipelineError, match=r"has 2 pipelines \(counts, again\)\. Say which one: .*job\.py:NAME"):
        pipeline_at(where)


def test_a_name_may_have_a_colon_before_it_only(file):
    assert pipeline_at(f"{file(ONE, 'job: 2.py')}:counts").name == "counts"
    assert pipeline_at(file(ONE, "job: 3.py")).name == "counts"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nothing", r"There is no 'nothing' in .*job\.py\. Pipelines there: counts\."),
        ("tm", r"'tm' in .*job\.py is a module and no pipeline\. Pipelines there: counts\."),
    ],
)
def test_a_name_that_means_no_pipeline(file, name, why):
    with pytest.raises(PipelineError, match=why):
        pipeline_at(f"{file(ONE)}:{name}")


def test_a_file_without_any(file):
    with pytest.raises(PipelineError, match=r"has 0 pipelines \(none\)"):
        pipeline_at(file("x = 1"))


@pytest.mark.parametrize("where", ["nowhere.py", "nowhere.py:counts", "counts", "", ":counts"])
def test_a_file_that_is_not_there(where):
    with pytest.raises(PipelineError, match=r"There is no file .*\. Give FILE:PIPELINE, as in examples"):
        pipeline_at(where)


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(PipelineError, match="There is no file"):
        pipeline_at(str(tmp_path))


def test_a_file_that_raises_is_told_with_where(file):
    with pytest.raises(PipelineError, match=r"job\.py can't be run: ZeroDivisionError: division by zero") as raised:
        pipeline_at(file("def f():\n    return 1 / 0\nf()\n"))
    assert "in f" in str(raised.value)
    with pytest.raises(PipelineError, match=r"can't be run: SyntaxError"):
        pipeline_at(file("def"))


def test_a_file_that_ends_the_program_is_told(file):
    with pytest.raises(PipelineError, match=r"job\.py ends the program \(3\)\. .* if __name__ == '__main__':"):
        pipeline_at(file("import sys\nsys.exit(3)\n"))


def test_what_is_wrong_with_the_pipeline_is_told_as_it_is(file):
    with pytest.raises(PipelineError) as raised:
        pipeline_at(file("import tidemill as tm\ntm.Pipeline('')\n"))
    assert "can't be run" not in str(raised.value)


def test_what_a_file_keeps_for_scripts_stays_undone(file):
    assert pipeline_at(file(ONE + 'if __name__ == "__main__":\n    raise SystemExit(1)\n')).name == "counts"


def test_a_file_imports_what_lies_beside_it(file):
    file("NAME = 'beside'\n", "lies_beside.py")
    where = file("import tidemill as tm\nfrom lies_beside import NAME\npipeline = tm.Pipeline(NAME)\n")
    assert pipeline_at(where).name == "beside"


# What becomes of it

JOB = """
import tidemill as tm

class Pass(tm.Computation):
    words = tm.Input(key="word")
    out = tm.Output("word string, n long")

    def process_record(self, ctx, record):
        pass

pipeline = tm.Pipeline("pass")
pipeline.source("words", tm.sources.Rows([("a",)], "word string"))
pipeline.add(Pass)
pipeline.sink("out", tm.sinks.Collect())
"""


class Runs:
    """Stands for `tm.run`."""

    def __init__(self, wait=lambda: None, rows=()):
        self.asked: list = []
        self._wait = wait
        self._rows = rows

    def __call__(self, pipeline, **chosen):
        self.asked.append((pipeline, chosen))
        (sink,) = pipeline.graph().of_kind("sink")
        sink.handle.extend(self._rows)
        return self

    def wait(self):
        self._wait()


@pytest.fixture
def runs(monkeypatch):
    def stand_in(*about, **more):
        made = Runs(*about, **more)
        monkeypatch.setattr(command, "run", made)
        return made

    return stand_in


def test_what_is_chosen_is_handed_on(file, runs, tmp_path):
    made = runs()
    chosen = "--workers 5 --master local[8] --max-skew 30s --metrics-port 9000 --start-within 5s --seed 7 --quiet"
    assert main(["run", f"{file(JOB)}:pipeline", *chosen.split(), "--storage", str(tmp_path)]) == 0
    ((pipeline, given),) = made.asked
    assert isinstance(pipeline, tm.Pipeline)
    assert given == {
        "workers": 5,
        "master": "local[8]",
        "storage": tmp_path,
        "max_skew": "30s",
        "metrics_port": 9000,
        "display": False,
        "start_within": "5s",
        "seed": 7,
    }


def test_without_choices_it_is_as_from_a_program(file, runs):
    made = runs()
    assert main(["run", file(JOB)]) == 0
    ((_, given),) = made.asked
    assert (given["workers"], given["master"], given["storage"], given["display"]) == (2, None, None, True)


@pytest.mark.parametrize("given", [[], ["job.py", "--workers", "two"], ["job.py", "--recovery", "prayer"]])
def test_bad_usage(given, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["run", *given])
    assert ended.value.code == 2
    assert "usage: tidemill run" in capsys.readouterr().err


def test_rows_are_printed_one_a_line(file, runs, capsys):
    runs(rows=[{"word": "a", "n": 1}, {"word": None, "n": b"bytes"}])
    assert main(["run", file(JOB)]) == 0
    printed = capsys.readouterr()
    assert [json.loads(line) for line in printed.out.splitlines()] == [
        {"word": "a", "n": 1},
        {"word": None, "n": "b'bytes'"},
    ]
    assert printed.err == ""


def test_an_error_is_told_and_is_a_failure(file, runs, capsys):
    def fail():
        raise RunError("a worker was lost")

    runs(fail, rows=[{"word": "a"}])
    assert main(["run", file(JOB)]) == 1
    printed = capsys.readouterr()
    assert printed.err == "tidemill: a worker was lost\n"
    assert printed.out == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_a_polite_end_stop_it_and_its_rows_are_printed(file, runs, capsys, number):
    def wait():
        threading.Timer(0.05, lambda: os.kill(os.getpid(), number)).start()
        threading.Event().wait(10)

    runs(wait, rows=[{"word": "a"}])
    before = signal.getsignal(signal.SIGTERM)
    assert main(["run", file(JOB)]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"word": "a"}
    assert printed.err == "tidemill: stopped\n"
    assert signal.getsignal(signal.SIGTERM) is before
