"""Shell: many partitions on one node: `python -m bench.growth [partitions] [partitions per topic]`.

The bench creates the partitions, writes one record to each, kills the broker with SIGKILL, restarts it, stops it
cleanly and restarts it again. For each step it prints the elapsed time, the broker's CPU seconds, its resident memory
and its open descriptors. On a busy machine the CPU seconds are the figure to compare: the elapsed time includes the
work of other processes.

Targets for 20,000 partitions on one core: created in under 20 s, ready after kill -9 in under 10 s, under 150 MB after
the creation and after a restart, and fewer descriptors than partitions.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from barnabas.client.admin import AsyncAdmin
from barnabas.client.producer.producer import AsyncProducer
from barnabas.client.values import NewTopic
from barnabas.testing.process import BrokerProcess
from bench.servers import cpu_seconds, resident_bytes

_TOPICS_PER_REQUEST = 20
_TIMEOUT_MS = 600_000
_READY_S = 900.0


class _Table:
    """Prints one row for each step."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        print(f"{'step':<40}{'seconds':>9}{'CPU s':>9}{'MB':>8}{'descriptors':>13}", flush=True)

    @property
    def _pid(self) -> int:
        assert self._broker.process is not None
        return self._broker.process.pid

    @contextmanager
    def row(self, step: str, *, starts: bool = False) -> Iterator[None]:
        began, before = time.monotonic(), 0.0 if starts else cpu_seconds(self._pid)
        yield
        took, used = time.monotonic() - began, cpu_seconds(self._pid) - before
        megabytes = resident_bytes(self._pid) / 1e6
        descriptors = len(list(Path(f"/proc/{self._pid}/fd").iterdir()))
        print(f"{step:<40}{took:>9.1f}{used:>9.1f}{megabytes:>8.0f}{descriptors:>13}", flush=True)


async def _create(bootstrap_servers: str, topics: list[str], partitions: int) -> None:
    async with AsyncAdmin(bootstrap_servers=bootstrap_servers) as admin:
        for first in range(0, len(topics), _TOPICS_PER_REQUEST):
            wanted = [NewTopic(name, partitions, 1) for name in topics[first : first + _TOPICS_PER_REQUEST]]
            created = await admin.create_topics(wanted, timeout_ms=_TIMEOUT_MS)
            for result in created.values():
                if isinstance(result, Exception):
                    raise result


async def _write(bootstrap_servers: str, topics: list[str], partitions: int) -> None:
    settings: dict[str, object] = {"delivery.timeout.ms": _TIMEOUT_MS, "max.block.ms": _TIMEOUT_MS}
    async with AsyncProducer({"bootstrap.servers": bootstrap_servers, **settings}) as producer:
        for topic in topics:
            for partition in range(partitions):
                await producer.send(topic, b"a record", partition=partition)
        await producer.flush(_TIMEOUT_MS)


async def _serves(bootstrap_servers: str, topic: str) -> None:
    async with AsyncProducer({"bootstrap.servers": bootstrap_servers}) as producer:
        await producer.send_and_wait(topic, b"a record", partition=0)


def main(partitions: int, per_topic: int) -> None:
    topics = [f"topic-{number:05}" for number in range(partitions // per_topic)]
    with tempfile.TemporaryDirectory(prefix="growth-") as folder:
        broker = BrokerProcess(Path(folder) / "data", settings=sys.argv[3:])
        table = _Table(broker)
        with table.row("first start", starts=True):
            broker.start(_READY_S)
        try:
            with table.row(f"create {len(topics)} topics x {per_topic} partitions"):
                asyncio.run(_create(broker.bootstrap_servers, topics, per_topic))
            with table.row("write a record to each partition"):
                asyncio.run(_write(broker.bootstrap_servers, topics, per_topic))
            broker.kill()
            with table.row("ready again after kill -9", starts=True):
                broker.start(_READY_S)
            with table.row("  first record after that"):
                asyncio.run(_serves(broker.bootstrap_servers, topics[-1]))
            with table.row("write again to each partition"):
                asyncio.run(_write(broker.bootstrap_servers, topics, per_topic))
            began = time.monotonic()
            broker.stop(_READY_S)
            print(f"{'clean stop':<40}{time.monotonic() - began:>9.1f}", flush=True)
            with table.row("ready again after a clean stop", starts=True):
                broker.start(_READY_S)
        finally:
            if broker.alive:
                broker.kill()
            lines = broker.log_path.read_text().splitlines()
            print("\n".join(lines[-12:]))


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:3]]
    main(given[0] if given else 20_000, given[1] if len(given) > 1 else 100)
