"""A simulated cluster under faults whose clients have quotas: they are delayed, and lose nothing."""

from __future__ import annotations

import pytest

from barnabas.testing.sim.cluster.storm import Storm, random_quotas
from barnabas.testing.sim.outcome import play
from barnabas.testing.sim.world import World


def delays(seed: int) -> int:
    """How often quotas delayed a client in the storm with this seed, which must be clean."""
    world = World(seed)
    storm = Storm(world, 5.0, None, quotas=True)
    assert play(world, storm).acknowledged > 0
    return storm.throttled


def test_clients_that_are_delayed_lose_nothing() -> None:
    assert delays(101) > 0


@pytest.mark.system
def test_quotas_delay_clients_in_most_storms() -> None:
    found = [delays(seed) for seed in range(102, 112)]
    assert sum(number > 0 for number in found) >= 8, found  # in some, faults leave time for few records


def test_quotas_are_drawn() -> None:
    drawn = {tuple(random_quotas(World(seed).random_stream("quotas"))) for seed in range(30)}
    both = ("producer_byte_rate", "consumer_byte_rate")
    assert drawn == {both, both[:1], both[1:]}
    assert {bool(Storm(World(seed), 1.0, None).quotas) for seed in range(30)} == {True, False}
