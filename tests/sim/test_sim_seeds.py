"""One simulated node with clients under random faults: every invariant holds for many seeds."""

from __future__ import annotations

import pytest

from barnabas.testing.sim.torture import torture

_AT_A_TIME = 7
_IN_MAKE_TEST = 3


def _check(first: int, count: int) -> None:
    for seed in range(first, first + count):
        assert torture(seed).acknowledged > 0, f"seed {seed}: no record was acknowledged, so the run shows nothing"


def test_seeds_are_clean() -> None:
    _check(0, _IN_MAKE_TEST)


@pytest.mark.parametrize(
    "first",
    [
        *(pytest.param(first, marks=pytest.mark.system) for first in (3, 10, 17)),
        *(pytest.param(first, marks=pytest.mark.slow) for first in range(24, 59, _AT_A_TIME)),
    ],
)
def test_more_seeds_are_clean(first: int) -> None:
    _check(first, _AT_A_TIME)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 3_000, 100))
def test_many_seeds_are_clean(first: int) -> None:
    _check(first, 100)
