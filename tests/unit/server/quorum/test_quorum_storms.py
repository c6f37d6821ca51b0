"""Storms over three metadata logs: killed, without power, cut off, on full disks, with snapshots in between. What was
acknowledged is there exactly once, and in the end everyone knows the same. `QUORUM_SEEDS=500` runs more.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random

import pytest

from barnabas.core.errors import KafkaError
from tests.unit.server.quorum.kit import Host, Quorum, quorum, run, topics

SEEDS = int(os.environ.get("QUORUM_SEEDS", "6"))
STEPS = 60


async def propose(made: Quorum, rng: random.Random, name: str, acknowledged: list[str]) -> None:
    leaders = [host for host in made.hosts.values() if host.log is not None and host.log.leader_id == host.node_id]
    if leaders:
        with contextlib.suppress(KafkaError, asyncio.CancelledError):
            await rng.choice(leaders).now.propose(topics(name))
            acknowledged.append(name)


async def snapshot(host: Host) -> None:
    state = host.state
    if host.log is None or state.offset <= (state.snapshots[-1] if state.snapshots else 0):
        return
    log, names, end = host.log, list(state.names), state.offset + 1
    epoch = log._replica.machine.quorum.log.epoch_at(end - 1)
    with contextlib.suppress(KafkaError, TimeoutError):
        # Where nobody leads it would wait; the storm goes on.
        async with asyncio.timeout(1):
            await log.write_snapshot(end, epoch, 1, topics(*names))


async def strike(made: Quorum, rng: random.Random) -> None:
    host = made.hosts[rng.randrange(1, 4)]
    match rng.choice(["kill", "power", "cut", "heal", "full", "room", "snapshot", "start", "start", "start", "wait"]):
        case "kill" if host.task is not None:
            await made.kill(host.node_id)
        case "power" if host.task is not None:
            host.log = None
            host.task.cancel()
            await asyncio.gather(host.task, return_exceptions=True)
            host.task = None
            host.disk.lose_power(rng.randrange(200), rng=rng)
        case "cut":
            made.cut.add(frozenset((host.node_id, host.node_id % 3 + 1)))
        case "heal":
            made.cut.clear()
        case "full":
            host.disk.capacity = host.disk.used + rng.randrange(300)
        case "room":
            host.disk.capacity = 1 << 40
        case "snapshot":
            await snapshot(host)
        case "start" if host.task is None:
            host.disk.capacity = 1 << 40
            made.start(host.node_id)
        case _:
            await asyncio.sleep(rng.random() * 2)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_acknowledged_records_survive_random_faults(seed: int) -> None:
    async def main() -> None:
        rng = random.Random(seed)
        acknowledged: list[str] = []
        async with quorum(3, static=seed % 2 == 0, started=(1,)) as made, asyncio.TaskGroup() as writers:
            await made.leader() if seed % 2 else made.start(2)
            for node_id in (2, 3):
                if made.hosts[node_id].task is None:
                    made.start(node_id)
            for step in range(STEPS):
                writers.create_task(propose(made, rng, f"t{step}", acknowledged))
                await asyncio.sleep(rng.random() / 2)
                if step % 2:
                    await strike(made, rng)
            made.cut.clear()
            for host in made.hosts.values():
                host.disk.capacity = 1 << 40
                if host.task is None:
                    made.start(host.node_id)
            leader = await made.leader()
            await leader.now.propose(topics("last"))
            await made.reached(leader.state.names)
            for host in made.hosts.values():
                assert host.task is not None and not host.task.done()
            assert leader.state.names[-1] == "last"
            assert len(set(leader.state.names)) == len(leader.state.names)
            assert set(acknowledged) <= set(leader.state.names)

    run(main)
