"""Sums of lags."""

from __future__ import annotations

from barnabas.core.known_sums import sum_of_known


def test_a_sum_is_unknown_if_one_of_the_numbers_is() -> None:
    assert [sum_of_known(numbers) for numbers in ([3, 4], [0], [3, None], [None], [])] == [7, 0, None, None, None]
