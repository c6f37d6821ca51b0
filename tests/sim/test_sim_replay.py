"""Runs of the same seed have equal traces, in one process and in processes with different hash seeds."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from barnabas.testing.sim.torture import torture
from barnabas.testing.sim.world import World

_SCRIPT = "from barnabas.testing.sim.torture import torture; print(torture({seed}, seconds=4).digest)"


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.system) for seed in (2, 9))])
def test_same_seed_has_equal_trace_in_one_process(seed: int) -> None:
    first, second = World(seed), World(seed)
    torture(seed, seconds=4, world=first)
    torture(seed, seconds=4, world=second)
    assert first.trace.text() == second.trace.text()
    assert first.trace.digest() == second.trace.digest()


def test_different_seeds_have_different_traces() -> None:
    assert torture(3, seconds=2).digest != torture(4, seconds=2).digest


@pytest.mark.parametrize("seed", [7, pytest.param(1, marks=pytest.mark.system)])
def test_same_seed_has_equal_trace_in_two_processes(seed: int) -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", _SCRIPT.format(seed=seed)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(digests) == 1
