"""A simulated cluster under faults whose clients have quotas: they are delayed, and lose nothing."""

from __future__ import annotations

import pytest

from barnabas.testing.sim.cluster.storm import Storm, random_quotas
from barnabas.testing.sim.outcome import play
from barnabas.testing.sim.world import World


@pytest.mark.parametrize("seed", [101, *(pytest.param(seed, marks=pytest.mark.system) for seed in range(102, 112))])
def test_clients_that_are_delayed_lose_nothing(seed: int) -> None:
    world = World(seed)
    storm = Storm(world, 5.0, None, quotas=True)
    assert play(world, storm).acknowledged > 0
    assert storm.throttled > 0


def test_quotas_are_drawn() -> None:
    drawn = {tuple(random_quotas(World(seed).random_stream("quotas"))) for seed in range(30)}
    both = ("producer_byte_rate", "consumer_byte_rate")
    assert drawn == {both, both[:1], both[1:]}
    assert {bool(Storm(World(seed), 1.0, None).quotas) for seed in range(30)} == {True, False}
