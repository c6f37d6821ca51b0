"""A broker process is killed, stopped and restarted under running clients: nothing lost, doubled or reordered.

Default settings: the producer is idempotent, the groups commit by themselves, the copier is transactional.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from barnabas.client.admin import AsyncAdmin
from barnabas.client.values import ConfigChange, ConfigResource, NewTopic
from barnabas.testing.process import BrokerProcess
from tests.system.client.torture import (
    PARTITIONS,
    Chaos,
    Promises,
    check_promises,
    consume_until,
    copy_until,
    produce_until,
    read_log,
    share_until,
)

SETTINGS = ["group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=2"]
SETTINGS += ["transaction.state.log.num.partitions=2", "group.consumer.min.heartbeat.interval.ms=100"]
SETTINGS += ["group.consumer.heartbeat.interval.ms=500", "share.coordinator.state.topic.num.partitions=2"]


async def torture(folder: Path, *, seed: int, acts: int, pause_s: float = 1.0, drain_s: float = 60.0) -> None:
    """All kinds of clients at once, until the chaos is over and everything has arrived."""
    with BrokerProcess(folder / "data", settings=SETTINGS) as broker:
        servers = broker.bootstrap_servers
        async with AsyncAdmin(bootstrap_servers=servers) as admin:
            await admin.create_topics([NewTopic("in", PARTITIONS, 1), NewTopic("out", PARTITIONS, 1)])
            earliest = [ConfigChange("share.auto.offset.reset", "earliest")]
            await admin.incremental_alter_configs({ConfigResource.group("share"): earliest})
        chaos = Chaos(broker, seed, pause_s=pause_s)
        promises = Promises()
        seen: dict[str, set[bytes]] = {"classic": set(), "consumer": set(), "share": set()}
        produced, over = asyncio.Event(), asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            producer = tasks.create_task(produce_until(produced, servers, "in", promises))
            for protocol, values in seen.items():
                for _ in range(2):
                    if protocol == "share":
                        tasks.create_task(share_until(over.is_set, servers, "in", protocol, values))
                        continue
                    tasks.create_task(
                        consume_until(over.is_set, servers, "in", protocol, values, group_protocol=protocol)
                    )
            copiers = [
                tasks.create_task(copy_until(over.is_set, servers, "in", "out", f"copier-{n}")) for n in range(2)
            ]
            await chaos.run(acts)
            produced.set()
            await producer
            total = sum(map(len, promises.sent.values()))
            async with asyncio.timeout(drain_s):
                while not all(len(values) == total for values in seen.values()):
                    await asyncio.sleep(0.1)  # between two looks at clients and log
                while sum(map(len, (await read_log(servers, "out")).values())) < total:
                    await asyncio.sleep(0.1)  # between two looks at clients and log
            over.set()
        log = await read_log(servers, "in")
        check_promises(promises, log)
        assert await read_log(servers, "out") == log, "the copy is not exactly once"
        assert total > 100 * acts
        assert set(chaos.done) == {"kill", "pause", "restart"}
        assert sum(task.result() for task in copiers) < 20 * acts


@pytest.mark.system
async def test_clients_keep_acknowledged_data_over_three_faults(tmp_path: Path) -> None:
    await torture(tmp_path, seed=1, acts=3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_clients_keep_acknowledged_data_over_thirty_faults(tmp_path: Path, seed: int) -> None:
    await torture(tmp_path, seed=seed, acts=30, drain_s=180.0)


@pytest.mark.slow
async def test_clients_recover_from_a_pause_longer_than_every_timeout(tmp_path: Path) -> None:
    """SIGSTOP for longer than request.timeout.ms (30 s): connections are given up and records are sent again."""
    await torture(tmp_path, seed=9, acts=3, pause_s=35.0, drain_s=180.0)
