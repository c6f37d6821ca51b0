"""Shell: faults of the network: cuts, whole and one way, around one node or between halves; bad links; resets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from barnabas.testing.sim.cluster.trouble import ClusterFault, Trouble

Pairs = list[tuple[str, str]]


async def isolate(trouble: Trouble) -> None:
    """One node from all others, and often from the clients, too."""
    name = trouble.victim().name
    others = [other for other in trouble.cluster.hosts if other != name]
    if trouble.rng.random() < 0.5:
        others += sorted(trouble.workload.hosts)
    await _cut_for_a_while(trouble, [(name, other) for other in others])


async def cut_pair(trouble: Trouble) -> None:
    """Two nodes do not hear each other; everybody else hears both."""
    one, other = trouble.rng.sample(sorted(trouble.cluster.hosts), 2)
    await _cut_for_a_while(trouble, [(one, other)])


async def cut_from_controllers(trouble: Trouble) -> None:
    """A broker reaches clients and brokers, and no controller: it will be fenced, and does not know."""
    broker = trouble.any_broker()
    pairs = [(broker.name, c.name) for c in trouble.cluster.controllers if c is not broker]
    await _cut_for_a_while(trouble, pairs)


async def cut_from_brokers(trouble: Trouble) -> None:
    """A broker reaches the controllers, and no broker: it heartbeats, and does not replicate."""
    broker = trouble.any_broker()
    pairs = [(broker.name, other.name) for other in trouble.cluster.brokers if other is not broker]
    await _cut_for_a_while(trouble, pairs)


async def cut_the_controller(trouble: Trouble) -> None:
    """The active controller hears brokers and no controller: it decides on, and commits nothing."""
    active = trouble.cluster.active_controller()
    if active is not None:
        pairs = [(active.name, other.name) for other in trouble.cluster.controllers if other is not active]
        await _cut_for_a_while(trouble, pairs)


async def split(trouble: Trouble) -> None:
    """The cluster in two; clients keep one side each."""
    names = sorted(trouble.cluster.hosts)
    trouble.rng.shuffle(names)
    cut = trouble.rng.randint(1, len(names) - 1)
    left, right = names[:cut], names[cut:]
    for client in sorted(trouble.workload.hosts):
        (left if trouble.rng.random() < 0.5 else right).append(client)
    await _cut_for_a_while(trouble, _across(left, right))


async def cut_clients(trouble: Trouble) -> None:
    clients = sorted(trouble.workload.hosts) if trouble.rng.random() < 0.4 else [trouble.any_client()]
    brokers = trouble.rng.sample(trouble.cluster.brokers, trouble.rng.randint(1, len(trouble.cluster.brokers)))
    await _cut_for_a_while(trouble, _across(clients, [broker.name for broker in brokers]))


async def bad_link(trouble: Trouble) -> None:
    """Slow, narrow, lossy: between a node and everyone."""
    network, rng, name = trouble.world.network, trouble.rng, trouble.victim().name
    delay, loss = rng.choice([0.02, 0.2, 1.0]), rng.choice([0.0, 0.05, 0.3])
    bandwidth = rng.choice([20_000.0, 1_000_000.0])
    everyone = [*sorted(trouble.cluster.hosts), *sorted(trouble.workload.hosts)]
    for other in everyone:
        if other != name:
            for link in (network.link(name, other), network.link(other, name)):
                link.delay_max, link.loss, link.bandwidth = delay, loss, bandwidth
    await asyncio.sleep(trouble.some(0.5, 6.0))
    network.heal()


async def reset(trouble: Trouble) -> None:
    everyone = [*sorted(trouble.cluster.hosts), *sorted(trouble.workload.hosts)]
    trouble.world.network.reset_connections(trouble.victim().name, trouble.choice(everyone))


async def lonely_leader(trouble: Trouble) -> None:
    """A leader loses its followers, keeps its clients for a while, and dies; it comes back when another one leads."""
    tp = trouble.any_partition()
    node = trouble.cluster.leader(tp)
    if node is None:
        return
    async with trouble.unclean(node) as may:
        if not may:
            return
        network = trouble.world.network
        for other in trouble.cluster.brokers:
            if other is not node:
                network.cut(node.name, other.name)
        await asyncio.sleep(trouble.some(0.3, 8.0))
        node.kill()
        network.heal()
        await asyncio.sleep(trouble.some(0.5, 6.0))
        await trouble.cluster.up(node)


def _across(left: Iterable[str], right: Sequence[str]) -> Pairs:
    return [(one, other) for one in left for other in right]


async def _cut_for_a_while(trouble: Trouble, pairs: Pairs) -> None:
    """Mostly both ways; else only outwards, or only inwards."""
    network, rng = trouble.world.network, trouble.rng
    chance = rng.random()
    for one, other in pairs:
        if chance < 0.6:
            network.cut(one, other)
        elif chance < 0.8:
            network.cut(one, other, both=False)
        else:
            network.cut(other, one, both=False)
    await asyncio.sleep(trouble.some(0.3, 9.0))
    network.heal()


WEATHER = (
    ClusterFault("isolate a node", 4, isolate),
    ClusterFault("cut a pair", 3, cut_pair),
    ClusterFault("cut a broker from the controllers", 3, cut_from_controllers),
    ClusterFault("cut a broker from the brokers", 3, cut_from_brokers),
    ClusterFault("cut the controller from its quorum", 3, cut_the_controller),
    ClusterFault("lonely leader", 4, lonely_leader),
    ClusterFault("split", 3, split),
    ClusterFault("cut clients off", 2, cut_clients),
    ClusterFault("bad link", 3, bad_link),
    ClusterFault("reset connections", 2, reset),
)
