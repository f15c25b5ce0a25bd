"""The same seed gives the same run, to the last effect, in this process and in others that hash strings differently."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.trials import EXACT
from tidemill.hosts.simulator.trial import MECHANISMS, attempt
from tidemill.hosts.simulator.workloads import WORKLOADS

TRACES = """
from tidemill.hosts.simulator.trial import MECHANISMS, attempt
from tidemill.hosts.simulator.workloads import WORKLOADS
for seed, (name, workload) in enumerate(WORKLOADS.items()):
    for mechanism in {mechanisms!r}:
        print(name, mechanism, attempt(workload, MECHANISMS[mechanism], seed).outcome.trace)
"""


def traces(hash_seed):
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", TRACES.format(mechanisms=EXACT)]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def test_other_hashes():
    first = traces("1")
    assert len(set(first.splitlines())) == len(WORKLOADS) * len(EXACT)
    assert traces("2") == first


@pytest.mark.parametrize("mechanism", EXACT)
def test_again(mechanism):
    one, other = (attempt(WORKLOADS["cyclic"], MECHANISMS[mechanism], 7).outcome for _ in range(2))
    assert one.story == other.story
    assert one.trace == other.trace


def test_another_seed_is_another_run():
    seen = {attempt(WORKLOADS["counting"], MECHANISMS["retrace"], seed).outcome.trace for seed in range(3)}
    assert len(seen) == 3
