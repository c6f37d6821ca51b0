"""Simulated clusters under random faults: seeds run clean, seeds that once failed run clean, runs can be replayed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from barnabas.testing.sim.cluster.storm import storm
from barnabas.testing.sim.world import World

ONCE_FAILED = (1, 3, 7, 255, 346, 616, 644, 653, 1039, 1475, 1778)
"""The failures of these seeds were: a broker that led a partition before its registration; a request to a controller
that was not ready; a coordinator in an endless loop; logs that were marked clean without a check; a leader with newer
metadata than the new controller; gaps in logs; lost producer state of earlier batches; a quorum epoch that was never
durable; a commit by a consumer that was removed from its group; a write to a new leader without the verification of its
transaction."""
_QUICK = (255, 653)
"""Those of `ONCE_FAILED` that `make test` runs; `make system` runs the others."""
_SCRIPT = "from barnabas.testing.sim.cluster.storm import storm; print(storm({seed}, seconds=3).digest)"


def _check(first: int, count: int, *, sasl: bool | None = None, hostile: bool | None = None) -> None:
    for seed in range(first, first + count):
        assert storm(seed, sasl=sasl, hostile=hostile).acknowledged > 0, (
            f"seed {seed}: no record was acknowledged, so the run shows nothing"
        )


def test_a_seed_is_clean() -> None:
    _check(101, 1)  # `make sim` plays 200, and CI 80


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[] if seed in _QUICK else pytest.mark.system) for seed in ONCE_FAILED]
)
def test_a_seed_that_once_failed_is_clean(seed: int) -> None:
    _check(seed, 1, sasl=False, hostile=False)  # these seeds failed before clusters had SASL and hostile clients


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 2_000, 50))
def test_many_seeds_are_clean(first: int) -> None:
    _check(first, 50)


@pytest.mark.system
@pytest.mark.parametrize("seed", [2, 4, 7])  # the nodes and the clients of 7 log in
def test_same_seed_has_equal_trace_in_one_process(seed: int) -> None:
    first, second = World(seed), World(seed)
    storm(seed, seconds=3, world=first)
    storm(seed, seconds=3, world=second)
    assert first.trace.text() == second.trace.text()
    assert first.trace.digest() == second.trace.digest()


def test_same_seed_has_equal_trace_in_two_processes() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", _SCRIPT.format(seed=6)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(digests) == 1
