"""How soon a cluster misses a broker, in simulated time: at once if it is killed, else when its session expires."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from barnabas.testing import sim
from barnabas.testing.sim.cluster.cluster import SimCluster
from barnabas.testing.sim.cluster.layout import ClusterLayout
from barnabas.testing.sim.node import SimNode
from barnabas.testing.sim.world import World

SESSION_S = 3.0
"""broker.session.timeout.ms of simulated clusters"""
OURS: Mapping[str, str] = {}
COMBINED = ClusterLayout(3, 3, combined=True)
SEPARATE = ClusterLayout(3, 3)


async def missed_after(
    world: World, layout: ClusterLayout, victim: str, deed: Callable[[SimNode], None], config: Mapping[str, str] = OURS
) -> float:
    """Seconds from `deed` until the cluster's metadata has no unfenced broker of the victim."""
    cluster = SimCluster(world, layout, config)
    await cluster.start()
    await cluster.until_well(30.0)
    controller = cluster.active_controller()
    is_controller = [broker for broker in cluster.brokers if (broker is controller) == (victim == "controller")]
    node = is_controller[0]
    began = world.loop.time()
    deed(node)

    def missed() -> bool:
        image = cluster.newest_image()
        broker = None if image is None else image.brokers.get(node.node_id)
        return broker is not None and broker.fenced

    await world.until(missed, 30.0, f"{node.name} is fenced")
    return world.loop.time() - began


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5))])
@pytest.mark.parametrize(
    ("layout", "victim"), [(SEPARATE, "broker"), (COMBINED, "broker"), (COMBINED, "controller")], ids=str
)
def test_a_killed_broker_is_missed_at_once(seed: int, layout: ClusterLayout, victim: str) -> None:
    assert sim.run(lambda world: missed_after(world, layout, victim, SimNode.kill), seed=seed) < 1.0


@pytest.mark.parametrize("deed", [SimNode.pause, SimNode.lose_power], ids=["paused", "without power"])
def test_a_silent_broker_is_missed_when_its_session_expires(deed: Callable[[SimNode], None]) -> None:
    after_s = sim.run(lambda world: missed_after(world, SEPARATE, "broker", deed))
    assert SESSION_S / 2 < after_s < SESSION_S + 0.5


def test_without_probes_a_killed_broker_is_missed_when_its_session_expires() -> None:
    config = {"barnabas.broker.probe.enable": "false"}
    after_s = sim.run(lambda world: missed_after(world, SEPARATE, "broker", SimNode.kill, config))
    assert SESSION_S / 2 < after_s < SESSION_S + 0.5
