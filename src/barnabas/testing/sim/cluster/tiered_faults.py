"""Shell: tiered storage in the cluster scenario: the settings, and an object store whose faults change at random."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Final

from barnabas.testing.sim.objects import ObjectFaults, SimObjectStore

TIERED_NODES: Final[Mapping[str, str]] = {
    "remote.log.storage.system.enable": "true",
    "rsm.config.storage.root": "/objects",
    "rsm.config.storage.request.timeout.ms": "1000",
    "remote.log.manager.task.interval.ms": "300",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
    "log.retention.check.interval.ms": "400",
    "log.initial.task.delay.ms": "400",
}
TIERED_TOPICS: Final[Mapping[str, str]] = {
    "remote.storage.enable": "true",
    "local.retention.bytes": "3000",
    "retention.ms": "-1",
    "internal.segment.bytes": "2000",
}
"""Small segments, of which few stay on the brokers' disks."""
_CHANGE_S: Final = 0.7
"""The mean of the seconds between two changes of the faults."""


async def change_faults(store: SimObjectStore, rng: random.Random, seconds: float) -> None:
    """Change the faults of the store at random for so long, and then end all."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                store.faults = rng.choice(
                    [
                        ObjectFaults(delay_ms=rng.choice([5, 50, 400])),
                        ObjectFaults(fails=0.3, delay_ms=20),
                        ObjectFaults(loses=0.4, delay_ms=20),
                        ObjectFaults(hangs=0.05, fails=0.1, delay_ms=20),
                        ObjectFaults(cut_off=True),
                    ]
                )
                await asyncio.sleep(rng.expovariate(1 / _CHANGE_S))
    except TimeoutError:
        store.faults = ObjectFaults(delay_ms=5)
