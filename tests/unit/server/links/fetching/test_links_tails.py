"""Files with the records that a mirror cuts off."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from barnabas.protocol.records.batch import iter_batches
from barnabas.server.links.fetching.tails import save_tail
from tests.unit.server.storage.logs import LogHarness, batch

NAME = "/data/00000000000000000001.mirror-tail-topic-0-3"


def save(house: LogHarness) -> str:
    with ThreadPoolExecutor(1) as disk:
        return asyncio.run(save_tail(house.log, 1, disk))


def values(house: LogHarness, path: str) -> list[int]:
    """The leader epochs of the batches in a file."""
    data = house.disk.data(path)  # type: ignore[attr-defined]
    return [header.partition_leader_epoch for _, header in iter_batches(bytes(data))]


def test_the_same_offsets_with_other_records_are_saved_in_another_file() -> None:
    house = LogHarness()
    for _ in range(3):
        house.append(batch(1), epoch=0)
    assert save(house) == f"{NAME}.log"
    house.log.truncate_to(1, now_ms=house.now_ms)
    for _ in range(2):
        house.append(batch(1), epoch=4)
    assert save(house) == f"{NAME}-4.log"
    assert save(house) == f"{NAME}-4.log", "a leader that repeats the step finds the file"
    assert (values(house, f"{NAME}.log"), values(house, f"{NAME}-4.log")) == ([0, 0], [4, 4])
