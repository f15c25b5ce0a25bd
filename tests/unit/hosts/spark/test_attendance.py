"""The coordinator's process is started, heard, and ended; its death is told, and the driver's ends it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.unit.hosts.spark.offices import Office
from tests.unit.hosts.spark.wires import HOST, KEYS, eventually, open_files, threads
from tidemill.errors import RunError
from tidemill.hosts.spark import protocol
from tidemill.hosts.spark.attendance import Attendance, import_paths


def is_there(pid):
    """Whether a process runs that has not ended and waits to be buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_driver_is_told_how_the_run_is(closing):
    office = closing(Office())
    states = office.hears(protocol.State, 2)
    assert states[0].progress.status == "starting"
    assert [node.name for node in states[0].progress.nodes] == ["words-source", "count", "counts-sink"]
    assert office.attendance.pid == office.process.pid
    assert office.notes("started") == ["test, recovery=nothing"]
    assert office.deaths == []


def test_it_ends_by_itself_when_the_run_is_over(closing):
    office = closing(Office())
    office.hears(protocol.State)
    office.attendance.say(protocol.StopRun(abandon=False))
    (ended,) = office.hears(protocol.Ended)
    assert (ended.status, ended.error) == ("stopped", "")
    office.process.wait(5)
    assert office.process.returncode == 0


def test_one_that_was_killed_is_told_of(closing):
    office = closing(Office())
    office.hears(protocol.State)
    os.kill(office.attendance.pid, signal.SIGKILL)
    eventually(lambda: office.deaths)
    assert office.deaths == ["the coordinator's process ended with -9"]


def test_one_that_can_not_begin_is_told_of(closing, capfd):
    office = closing(Office(pickled=lambda _: b"no orders"))
    eventually(lambda: office.deaths, 15)
    assert office.deaths == ["the coordinator's process ended with 1"]
    assert "UnpicklingError" in capfd.readouterr().err


def test_ctrl_c_on_the_terminal_is_the_drivers(closing):
    office = closing(Office())
    office.hears(protocol.State)
    os.kill(office.attendance.pid, signal.SIGINT)
    office.hears(protocol.State, len(office.of(protocol.State)) + 2)
    assert os.getsid(office.attendance.pid) != os.getsid(0)


def test_who_looks_on_and_raises_ends_the_run(closing):
    """Else nobody would hear of the run any more, nor of its end."""

    def hear(_):
        raise BrokenPipeError("the display is gone")

    office = closing(Office(hear=hear))
    eventually(lambda: office.deaths, 15)
    assert office.deaths == ["listening to the coordinator's process raised BrokenPipeError: the display is gone"]


def test_a_slow_listener_hears_all_that_was_said_before_an_end(closing):
    heard = []

    def hear(message):
        heard.append(message)
        if len(heard) == 1:
            office.attendance.say(protocol.StopRun(abandon=True))
            time.sleep(0.5)

    office = closing(Office(hear=hear))
    eventually(lambda: isinstance(heard[-1], protocol.Ended) if heard else False, 15)
    assert office.deaths == []


def test_nothing_is_left_when_it_is_closed():
    Office().close()  # what ZeroMQ keeps for good is there now
    files, running = open_files(), threads()
    office = Office()
    office.hears(protocol.State)
    pid = office.attendance.pid
    office.close()
    assert not is_there(pid)
    eventually(lambda: threads() == running)
    eventually(lambda: open_files() == files)
    assert office.deaths == [], "it was asked to end"


def test_nothing_is_left_of_one_that_was_never_started():
    Attendance(HOST, KEYS).close()
    files = open_files()
    attendance = Attendance(HOST, KEYS)
    assert attendance.address.startswith(f"tcp://{HOST}:")
    attendance.close()
    assert open_files() == files


def test_one_that_does_not_end_is_killed(closing):
    office = closing(Office())
    office.hears(protocol.State)
    os.kill(office.attendance.pid, signal.SIGSTOP)
    pid = office.attendance.pid
    office.close()
    assert not is_there(pid)


DRIVER = """
import sys, time
sys.path.insert(0, ".")
from tests.unit.hosts.spark.offices import Office
from tidemill.hosts.spark import protocol
office = Office()
office.hears(protocol.State)
print(office.attendance.pid, flush=True)
{then}
"""


@pytest.mark.parametrize("how", ["killed", "ended"])
def test_it_ends_with_the_driver_however_that_ends(how):
    then = "time.sleep(60)" if how == "killed" else "import os; os._exit(0)"
    with subprocess.Popen([sys.executable, "-c", DRIVER.format(then=then)], stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        pid = int(driver.stdout.readline())
        if how == "killed":
            assert is_there(pid)
            driver.kill()
        driver.wait(10)
    began = time.monotonic()
    try:
        eventually(lambda: not is_there(pid))
        assert time.monotonic() - began < 2
    finally:
        with contextlib.suppress(ProcessLookupError):  # as it should be
            os.kill(pid, signal.SIGKILL)


def test_it_imports_what_the_driver_imports_and_from_nowhere_else(closing, tmp_path, monkeypatch):
    """A file of the folder that the program happens to run in takes no library's place."""
    (tmp_path / "pickle.py").write_text("raise SystemExit('not this one')")
    monkeypatch.chdir(tmp_path)
    assert all(Path(path).is_absolute() for path in import_paths())
    office = closing(Office())
    office.hears(protocol.State)


def test_an_address_that_is_not_ours_is_an_error_before_anything_is_started():
    files = open_files()
    with pytest.raises(RunError, match=r"spark\.driver\.host"):
        Attendance("192.0.2.1", KEYS)
    assert open_files() == files
