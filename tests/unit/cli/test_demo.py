"""`tidemill demo`: what it makes of a verdict, and what it refuses before Spark is asked."""

from __future__ import annotations

import pytest

from tidemill.cli import demo as command
from tidemill.cli.__main__ import main
from tidemill.zeitgeist.judging import Balance, FalseAlarm, Planted, Verdict

SPIKE = Planted("spike", "cat videos", 4.5, 6.25, 0.5, 20.1, 48)
DIP = Planted("dip", "train times", 6.0, 0.02, 2.25, 30.0, 0)
MISSED = Planted("dip", "rain map", 8.0, 0.04, None, None, None)
GOOD = Balance(1_000, 990, 10, 0)


@pytest.fixture
def shown(monkeypatch, capsys):
    def shown(verdict, *arguments):
        monkeypatch.setattr(command, "show", lambda _: verdict)
        code = main(["demo", *arguments])
        return code, capsys.readouterr().out

    return shown


def test_all_is_found(shown):
    code, said = shown(Verdict((SPIKE, DIP), (), GOOD), "--seed", "3")
    assert code == 0
    lines = said.splitlines()
    assert lines[2:4] == [
        "spike    cat videos           4.50 s    6.25       0.50 s        48   20.1",
        "dip      train times          6.00 s    0.02       2.25 s         0   30.0",
    ]
    assert "2 of 2 found, no false alarms; in the median, spikes 0.50 s and dips 2.25 s after the onset." in lines
    assert "1,000 searches = 990 in their buckets, where Spark SQL counts the same, + 10 late." in lines
    assert "  tidemill demo --seed 4           other searches, other spikes and dips" in lines


def test_a_false_alarm_is_told_and_is_no_failure(shown):
    code, said = shown(Verdict((SPIKE,), (FalseAlarm("dip", "dog news", 7.0, 8.5, 1),), GOOD))
    assert code == 0
    assert "1 of 1 found, 1 false alarm; in the median, spikes 0.50 s and dips never after the onset." in said
    assert "A dip that is none: dog news at 7 s, 1 for 8.5" in said


def test_what_was_not_found_is_a_failure(shown):
    code, said = shown(Verdict((SPIKE, MISSED), (), GOOD), "--quiet")
    assert code == 1
    assert "dip      rain map             8.00 s    0.04    NOT FOUND" in said
    assert "1 of 2 found" in said
    assert "Next:" not in said


@pytest.mark.parametrize("balance", [Balance(1_000, 989, 10, 1), Balance(1_000, 1_000, 0, 2)])
def test_a_search_that_was_lost_or_counted_elsewhere_is_a_failure(shown, balance):
    code, said = shown(Verdict((SPIKE,), (), balance))
    assert code == 1
    assert "WRONG: of 1,000 searches" in said


@pytest.mark.parametrize("arguments", [["--seconds", "9"], ["--seed", "-1"], ["--workers", "0"], ["--seconds", "x"]])
def test_what_is_no_number_from_there_on_is_bad_usage(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["demo", *arguments])
    assert ended.value.code == 2
    assert "is no whole number from" in capsys.readouterr().err


def test_a_folder_with_things_in_it_is_left_alone(tmp_path, capsys):
    (tmp_path / "mine").touch()
    assert main(["demo", "--keep", str(tmp_path)]) == 1
    assert "Give --keep a folder that is new or empty" in capsys.readouterr().err


def test_too_few_slots_are_seen_before_anything_starts(tmp_path, capsys):
    assert main(["demo", "--master", "local[1]", "--quiet", "--keep", str(tmp_path / "kept")]) == 1
    assert "2 workers need 2 free task slots" in capsys.readouterr().err
    assert not (tmp_path / "kept").exists()


def test_ctrl_c_is_no_success(monkeypatch, capsys):
    def show(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "show", show)
    assert main(["demo"]) == 1
    assert "tidemill: stopped" in capsys.readouterr().err
