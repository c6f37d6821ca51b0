"""The production broker and clients under random faults: many seeds, every invariant."""

from __future__ import annotations

import pytest

from barnabas.testing.sim.torture import torture

SEEDS = 56
_AT_A_TIME = 7


@pytest.mark.parametrize("first", range(0, SEEDS, _AT_A_TIME))
def test_seeds_are_clean(first: int) -> None:
    for seed in range(first, first + _AT_A_TIME):
        torture(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 3_000, 100))
def test_many_seeds_are_clean(first: int) -> None:
    for seed in range(first, first + 100):
        torture(seed)
