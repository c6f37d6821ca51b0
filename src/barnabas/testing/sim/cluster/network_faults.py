"""Shell: faults of the network: full and one-way cuts around one node or between halves, bad links, resets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from barnabas.testing.sim.cluster.fault_context import ClusterFault, FaultContext
from barnabas.testing.sim.cluster.view import leader_state_of

_LEFT_S: Final = 5.0
"""Seconds within which a follower that is cut off leaves the ISR."""
_JOINED_S: Final = 3.0
"""Seconds within which a follower joins the ISR again."""
_POLL_S: Final = 0.0005
_SLOW_S: Final = 0.4
_AGAIN_S: Final = 0.1
Pairs = list[tuple[str, str]]
_DEPOSED_S: Final = 8.0
"""Seconds within which a leader that is cut from the controllers is fenced, and another one is elected."""
_CONNECTED_S: Final = 4.5
"""Seconds after a cut within which an attempt to connect that began during the cut succeeds."""


async def isolate(context: FaultContext) -> None:
    """Isolates one node from all others, and often from the clients, too."""
    name = context.victim().name
    others = [other for other in context.cluster.hosts if other != name]
    if context.rng.random() < 0.5:
        others += sorted(context.workload.hosts)
    await _cut_for_a_while(context, [(name, other) for other in others])


async def cut_pair(context: FaultContext) -> None:
    """Cuts the link between two nodes; all other nodes reach both."""
    one, other = context.rng.sample(sorted(context.cluster.hosts), 2)
    await _cut_for_a_while(context, [(one, other)])


async def cut_from_controllers(context: FaultContext) -> None:
    """Cuts a broker from the controllers, but not from clients and brokers. The broker is fenced and does not learn
    that it is."""
    broker = context.any_broker()
    pairs = [(broker.name, c.name) for c in context.cluster.controllers if c is not broker]
    await _cut_for_a_while(context, pairs)


async def cut_from_brokers(context: FaultContext) -> None:
    """Cuts a broker from the other brokers, but not from the controllers. The broker sends heartbeats and does not
    replicate."""
    broker = context.any_broker()
    pairs = [(broker.name, other.name) for other in context.cluster.brokers if other is not broker]
    await _cut_for_a_while(context, pairs)


async def cut_the_controller(context: FaultContext) -> None:
    """Cuts the active controller from the other controllers, but not from the brokers. The controller accepts requests
    and cannot commit."""
    active = context.cluster.active_controller()
    if active is not None:
        pairs = [(active.name, other.name) for other in context.cluster.controllers if other is not active]
        await _cut_for_a_while(context, pairs)


async def split(context: FaultContext) -> None:
    """Splits the cluster in two halves; each client reaches one half."""
    names = sorted(context.cluster.hosts)
    context.rng.shuffle(names)
    cut = context.rng.randint(1, len(names) - 1)
    left, right = names[:cut], names[cut:]
    for client in sorted(context.workload.hosts):
        (left if context.rng.random() < 0.5 else right).append(client)
    await _cut_for_a_while(context, _across(left, right))


async def cut_clients(context: FaultContext) -> None:
    clients = sorted(context.workload.hosts) if context.rng.random() < 0.4 else [context.any_client()]
    brokers = context.rng.sample(context.cluster.brokers, context.rng.randint(1, len(context.cluster.brokers)))
    await _cut_for_a_while(context, _across(clients, [broker.name for broker in brokers]))


async def bad_link(context: FaultContext) -> None:
    """Makes the links of one node slow, narrow and lossy."""
    network, rng, name = context.world.network, context.rng, context.victim().name
    delay, loss = rng.choice([0.02, 0.2, 1.0]), rng.choice([0.0, 0.05, 0.3])
    bandwidth = rng.choice([20_000.0, 1_000_000.0])
    everyone = [*sorted(context.cluster.hosts), *sorted(context.workload.hosts)]
    for other in everyone:
        if other != name:
            for link in (network.link(name, other), network.link(other, name)):
                link.delay_max, link.loss, link.bandwidth = delay, loss, bandwidth
    await asyncio.sleep(context.some(0.5, 6.0))
    network.heal()


async def reset(context: FaultContext) -> None:
    everyone = [*sorted(context.cluster.hosts), *sorted(context.workload.hosts)]
    context.world.network.reset_connections(context.victim().name, context.choice(everyone))


async def lonely_leader(context: FaultContext) -> None:
    """Cuts a leader from its followers but not from its clients, and kills it after a while. The broker starts again
    when another replica leads."""
    tp = context.any_partition()
    node = context.cluster.leader(tp)
    if node is None:
        return
    async with context.unclean(node) as may:
        if not may:
            return
        network = context.world.network
        for other in context.cluster.brokers:
            if other is not node:
                network.cut(node.name, other.name)
        await asyncio.sleep(context.some(0.3, 8.0))
        node.kill()
        network.heal()
        await asyncio.sleep(context.some(0.5, 6.0))
        await context.cluster.up(node)


async def late_proposal(context: FaultContext) -> None:
    """Cuts the way of a leader to the controllers, and its link to one follower, until another replica leads. In the
    meantime the leader proposes an ISR without that follower. The proposal reaches the controller when the cut is over,
    while the deposed leader cannot reach the other brokers, and so is not in the ISR.
    """
    tp, cluster, network = context.any_partition(), context.cluster, context.world.network
    node, image = cluster.leader(tp), cluster.partition(tp)
    if node is None or image is None:
        return
    followers = [broker for broker in image.replicas if broker in image.isr and broker != node.node_id]
    # the first one in the order of the replicas becomes the leader, so the last one is cut off
    follower = cluster.broker(followers[-1]) if len(followers) > 1 else None
    if follower is None:
        return
    for controller in cluster.controllers:
        if controller is not node:
            network.cut(node.name, controller.name, both=False)
    network.cut(node.name, follower.name)

    def another_leads() -> bool:
        return cluster.leader(tp) not in (node, None)

    if await cluster.until(another_leads, _DEPOSED_S):
        await context.sleep(0.0, 1.0)
        network.heal()
        for other in cluster.brokers:
            if other is not node and other not in cluster.controllers:
                network.cut(node.name, other.name)
        await asyncio.sleep(_CONNECTED_S)
    network.heal()


async def cut_one_way(context: FaultContext) -> None:
    """Cuts the leader of a partition or the active controller from all other nodes in one direction, for longer than a
    broker session, so that the others have to go on without it. The clients mostly reach it all the time."""
    cluster, network, rng = context.cluster, context.world.network, context.rng
    node = cluster.leader(context.choice(context.partitions())) if rng.random() < 0.7 else cluster.active_controller()
    if node is None:
        return
    deaf = rng.random() < 0.5
    others = [other for other in cluster.hosts if other != node.name]
    if rng.random() < 0.3:
        others += sorted(context.workload.hosts)
    end = context.world.loop.time() + rng.uniform(_DEPOSED_S / 2, _DEPOSED_S)
    while context.world.loop.time() < end:
        for other in others:  # again and again, because the end of another fault of the network heals all links
            network.cut(*((other, node.name) if deaf else (node.name, other)), both=False)
        await asyncio.sleep(_AGAIN_S)
    network.heal()


async def cut_off_a_joiner(context: FaultContext) -> None:
    """Cuts a follower off from its leader until it has left the ISR, and again in the moment in which the leader
    proposes to add it. The way to the controllers is slow, so that the proposal is in flight for some time."""
    tp, cluster, network = context.choice(context.partitions()), context.cluster, context.world.network
    node, image = cluster.leader(tp), cluster.partition(tp)
    followers = [broker for broker in image.isr if broker != image.leader] if image is not None else []
    follower = cluster.broker(context.choice(followers)) if len(followers) > 1 else None
    if node is None or follower is None:
        return

    def has_left() -> bool:
        image = cluster.partition(tp)
        return image is not None and follower.node_id not in image.isr

    network.cut(node.name, follower.name)
    if await cluster.until(has_left, _LEFT_S) and cluster.leader(tp) is node:
        network.heal()
        for controller in cluster.controllers:
            if controller is not node:
                network.link(node.name, controller.name).delay_max = _SLOW_S
        for _ in range(round(_JOINED_S / _POLL_S)):
            state = leader_state_of(node, tp)
            if state is None or follower.node_id in state.maximal_isr:
                break
            await asyncio.sleep(_POLL_S)
        network.cut(node.name, follower.name)
        await context.sleep(0.2, 2.0)
    network.heal()


def _across(left: Iterable[str], right: Sequence[str]) -> Pairs:
    return [(one, other) for one in left for other in right]


async def _cut_for_a_while(context: FaultContext, pairs: Pairs) -> None:
    """Cuts the links of these pairs for a while: mostly in both directions, otherwise in one."""
    network, rng = context.world.network, context.rng
    chance = rng.random()
    for one, other in pairs:
        if chance < 0.6:
            network.cut(one, other)
        elif chance < 0.8:
            network.cut(one, other, both=False)
        else:
            network.cut(other, one, both=False)
    await asyncio.sleep(context.some(0.3, 9.0))
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

LATE_JOINER = ClusterFault("a follower is cut off while it joins the ISR", 1, cut_off_a_joiner)
ONE_WAY = ClusterFault("cut a leader or the controller in one direction", 1, cut_one_way)
LATE_PROPOSAL = ClusterFault("the proposal of a deposed leader", 1, late_proposal)
