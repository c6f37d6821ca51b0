"""Shell: `python -m bench.soak.load ADDRESS`: clients of every kind, which come and go, until SIGTERM.

Each kind runs in a loop of its own and counts what it has finished. The counts go to stdout as one JSON line a second.
A client that fails is counted and started again: the soak is about the broker, but a load that stands still would prove
nothing, so that `__main__.py` checks the counts.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Literal

import uvloop

from barnabas import AsyncAdmin, AsyncConsumer, AsyncProducer, AsyncShareConsumer
from barnabas.client.values import NewTopic
from barnabas.core.errors import BarnabasError
from barnabas.protocol.wire.client_conn import ClientConnection
from barnabas.protocol.wire.messages.api_versions import ApiVersionsRequest

PARTITIONS = 4
TOPIC_CONFIGS = {"retention.ms": "60000", "segment.bytes": "4194304", "segment.ms": "30000"}
_VALUE = b"v" * 500


class Load:
    """The clients of one broker."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.done: Counter[str] = Counter()

    async def run(self) -> None:
        async with AsyncAdmin(bootstrap_servers=self.address) as admin:
            await admin.create_topics(
                [NewTopic(name, PARTITIONS, configs=TOPIC_CONFIGS) for name in ("steady", "jobs", "copied")]
            )
        every_s = {
            self.produce: 3.0,
            self.produce_briefly: 0.6,
            self.transact: 1.0,
            self.stay_in_group: 30.0,
            self.visit_group: 6.0,
            self.visit_new_group: 6.0,
            self.share: 8.0,
            self.churn_topics: 2.0,
            self.churn_connections: 3.0,
        }
        async with asyncio.TaskGroup() as tasks:
            for kind, interval_s in every_s.items():
                tasks.create_task(self._repeat(kind, interval_s))
            tasks.create_task(self._report())

    async def _repeat(self, kind: Callable[[], Awaitable[None]], interval_s: float) -> None:
        """Begin the work once in every interval, so that the load does not depend on the speed of the machine: the
        broker's tables are as large as the rates of the load."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due = max(due + interval_s, loop.time())
            try:
                await kind()
                self.done[kind.__name__] += 1
            except (BarnabasError, OSError, TimeoutError) as error:
                self.done[f"{kind.__name__} failed"] += 1
                print(f"{kind.__name__}: {error!r}", file=sys.stderr, flush=True)
            await asyncio.sleep(max(due - loop.time(), 0.0))

    async def _report(self) -> None:
        while True:
            print(json.dumps(self.done), flush=True)
            await asyncio.sleep(1.0)

    # ---- producers

    async def produce(self) -> None:
        """A thousand records of one idempotent producer, some of which are compressed, at a bounded rate."""
        async with AsyncProducer(bootstrap_servers=self.address, compression_type="lz4") as producer:
            for number in range(20):
                for _ in range(50):
                    await producer.send("steady", _VALUE, key=b"%d" % number)
                    await producer.send("jobs", _VALUE)
                await producer.flush()
                await asyncio.sleep(0.05)

    async def produce_briefly(self) -> None:
        """One record of a new producer: a new producer id and a new connection each time."""
        async with AsyncProducer(bootstrap_servers=self.address) as producer:
            await producer.send_and_wait("steady", _VALUE)

    async def transact(self) -> None:
        """A new transactional id, with one transaction that commits and one that aborts."""
        name = f"soak-{uuid.uuid4().hex[:8]}"
        async with AsyncProducer(bootstrap_servers=self.address, transactional_id=name) as producer:
            await producer.init_transactions()
            for commit in (True, False):
                producer.begin_transaction()
                for _ in range(5):
                    await producer.send("copied", _VALUE)
                await (producer.commit_transaction() if commit else producer.abort_transaction())

    # ---- consumers

    async def stay_in_group(self) -> None:
        """A member that stays: it commits what it reads, while other members come and go."""
        async with AsyncConsumer(
            bootstrap_servers=self.address, group_id="soak-stable", auto_offset_reset="latest"
        ) as consumer:
            consumer.subscribe(["steady", "copied"])
            for _ in range(140):
                await consumer.poll(timeout_ms=200)

    async def visit_group(self) -> None:
        await self._visit("soak-stable", "classic")

    async def visit_new_group(self) -> None:
        """A group that is used once, with the protocol of KIP-848; its offsets expire."""
        await self._visit(f"soak-{uuid.uuid4().hex[:8]}", "consumer")

    async def _visit(self, group: str, protocol: Literal["classic", "consumer"]) -> None:
        async with AsyncConsumer(
            bootstrap_servers=self.address, group_id=group, auto_offset_reset="latest",
            group_protocol=protocol if group != "soak-stable" else "classic",
        ) as consumer:  # fmt: skip
            consumer.subscribe(["steady"])
            for _ in range(10):
                await consumer.poll(timeout_ms=200)
            await consumer.commit()

    async def share(self) -> None:
        async with AsyncShareConsumer(bootstrap_servers=self.address, group_id="soak-share") as consumer:
            consumer.subscribe(["jobs"])
            for _ in range(35):
                await consumer.poll(timeout_ms=200)

    # ---- topics and connections

    async def churn_topics(self) -> None:
        name = f"soak-{uuid.uuid4().hex[:8]}"
        async with AsyncAdmin(bootstrap_servers=self.address) as admin:
            await admin.create_topics([NewTopic(name, 3)])
            async with AsyncProducer(bootstrap_servers=self.address) as producer:
                await producer.send_and_wait(name, _VALUE)
            await admin.delete_topics([name])

    async def churn_connections(self) -> None:
        """Fifty connections: most send ApiVersions and end, some send half a request, some nothing."""
        host, _, port = self.address.partition(":")
        _, buffers = ClientConnection("soak").send(ApiVersionsRequest(), 3)
        request = b"".join(bytes(buffer) for buffer in buffers)
        for number in range(50):
            reader, writer = await asyncio.open_connection(host, int(port))
            if number % 5:
                writer.write(request if number % 7 else request[:9])
                await writer.drain()
                if number % 7:
                    await reader.read(64)
            writer.close()
            await writer.wait_closed()


async def main(address: str) -> None:
    running = asyncio.ensure_future(Load(address).run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    await asyncio.wait([running])
    if not running.cancelled() and (error := running.exception()) is not None:
        raise error


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(sys.argv[1]))
