"""`tidemill simulate`: the story, the line for each seed, the exit code, and errors that say what may be given."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidemill.cli.__main__ import main
from tidemill.hosts.simulator.workloads import WORKLOADS


def run(*arguments):
    return main(["simulate", *arguments])


COUNTING = WORKLOADS["counting"]


def failing(seed):
    pipeline, _ = COUNTING.build(seed)

    def oracle(_):
        yield "nothing is ever right"

    return pipeline, oracle


@pytest.fixture
def broken(monkeypatch):
    monkeypatch.setitem(WORKLOADS, "counting", replace(COUNTING, build=failing))


def test_a_story(capsys):
    assert run("--seed", "7") == 0
    told = capsys.readouterr().out
    assert told.startswith("counting under retrace, seed 7\n")
    for part in ("What the seed has in store", "What happens", "How it ends", "What the checkers say"):
        assert part in told
    assert "coordinator.1: claimed generation 1" in told
    assert "it finished, after" in told
    assert "VIOLATED" not in told


def test_the_same_story_again(capsys):
    run("--seed", "7", "--workload", "cyclic", "--recovery", "rewind")
    first = capsys.readouterr().out
    run("--seed", "7", "--workload", "cyclic", "--recovery", "rewind")
    assert capsys.readouterr().out == first


@pytest.mark.usefixtures("broken")
def test_a_violation(capsys):
    assert run("--seed", "7", "--faults", "off") == 1
    told = capsys.readouterr().out
    assert "results          VIOLATED\n    nothing is ever right" in told
    assert "nothing: all goes well" in told


@pytest.mark.usefixtures("broken")
def test_several_seeds(capsys):
    assert run("--seed", "3", "--seeds", "2", "--workload", "joining") == 0
    assert [line.split()[:4] for line in capsys.readouterr().out.splitlines()] == [
        ["joining", "seed", "3", "good"],
        ["joining", "seed", "4", "good"],
    ]
    assert run("--seed", "3", "--seeds", "2") == 1
    told = capsys.readouterr().out
    assert told.count("VIOLATED") == 4  # in the lines, and in the stories behind them
    assert "counting under retrace, seed 4" in told


def test_all_workloads(capsys):
    assert run("--seed", "1", "--workload", "all", "--faults", "off", "--workers", "2") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(WORKLOADS)


def test_faults_by_name(capsys):
    assert run("--seed", "1", "--faults", "pauses,loss") == 0
    told = capsys.readouterr().out
    assert "% of the packets are lost" in told
    assert "stands still" in told
    assert "crash" not in told.replace("0 crashes", "")


def test_without_recovery(capsys):
    assert run("--seed", "1", "--recovery", "none", "--faults", "crashes") == 0
    assert "it failed, RunError" in capsys.readouterr().out


BAD = {
    "no command": ([], "the following arguments are required: COMMAND"),
    "no seed": (["simulate"], "the following arguments are required: --seed"),
    "a seed that is no number": (["simulate", "--seed", "x"], "'x' is no whole number from 0 on"),
    "a negative seed": (["simulate", "--seed", "-1"], "'-1' is no whole number from 0 on"),
    "no workers": (["simulate", "--seed", "1", "--workers", "0"], "at least 1 is needed"),
    "an unknown workload": (["simulate", "--seed", "1", "--workload", "tea"], "invalid choice: 'tea'"),
    "an unknown mechanism": (["simulate", "--seed", "1", "--recovery", "luck"], "invalid choice: 'luck'"),
    "an unknown fault": (["simulate", "--seed", "1", "--faults", "loss,rain"], "there is no fault 'rain'; there are:"),
}


@pytest.mark.parametrize(("arguments", "said"), BAD.values(), ids=BAD)
def test_bad_arguments(arguments, said, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert said in capsys.readouterr().err
