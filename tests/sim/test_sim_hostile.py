"""Simulated clusters with hostile clients: the other clients are served, and what is kept for a client is counted."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.core.work import UNIT_S, count
from barnabas.testing.sim import run
from barnabas.testing.sim.cluster.fault_context import ClusterFaultMenu
from barnabas.testing.sim.cluster.hostile_clients import ANSWER_S
from barnabas.testing.sim.cluster.storm import Storm
from barnabas.testing.sim.outcome import play
from barnabas.testing.sim.world import World


def stormy(seed: int) -> Storm:
    """The storm of this seed with hostile clients, after its run, which must be clean."""
    world = World(seed)
    storm = Storm(world, 6.0, None, sasl=False, hostile=True)
    assert play(world, storm).acknowledged > 0
    return storm


def test_neighbours_of_hostile_clients_are_served() -> None:
    storm = stormy(2)
    assert len(storm.answers) > 10
    assert max(storm.answers) < ANSWER_S / 2, "the bound is not near"


@pytest.mark.system
@pytest.mark.parametrize(
    "seed", [1, 4, 9, 23]
)  # 1 and 4 found requests that waited for their turn and were not counted
def test_hostile_clients_harm_no_one(seed: int) -> None:
    stormy(seed)


def test_hostile_clients_are_drawn() -> None:
    storms = [Storm(World(seed), 1.0, None) for seed in range(40)]
    assert 0 < sum(storm.costs is not None for storm in storms) < 20
    assert not any(storm.costs is not None and storm.layout.sasl for storm in storms)
    assert Storm(World(0), 1.0, ClusterFaultMenu.KILL).costs is None


def test_work_of_a_process_takes_time_if_it_is_said_to() -> None:
    async def scenario(world: World) -> list[float]:
        times: list[float] = []

        async def work() -> None:
            for _ in range(3):
                times.append(world.elapsed_s)
                count(500)
                await asyncio.sleep(0)

        process, task = world.start_client("worker", work())
        process.takes_time = True
        await task
        return [time - times[0] for time in times]

    assert run(scenario) == pytest.approx([0.0, 500 * UNIT_S, 1_000 * UNIT_S])
