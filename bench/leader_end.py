"""Shell: how long writes stand still when the leader of a partition ends: killed (kill -9), stopped in order (SIGTERM),
or paused (SIGSTOP). Two clients write, one after the other: librdkafka, and ours.

    deed ──► the leader's process ends ──► another broker reports a new leader ──► the next write is acknowledged
             |────────── the cluster's share ──────────|──────── the client's share: its own back-off ─────────|

The cluster's share is measured by Metadata requests that another thread sends to every other broker, each 5 ms after
the response to the one before.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from barnabas.client import Producer
from barnabas.core.errors import KafkaError
from barnabas.protocol.transport.node_client import NodeClient
from barnabas.protocol.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from bench.clusters import Cluster
from bench.report import Figure, Measured
from bench.workloads import run_workload

_POLL_S: Final = 0.005
_LIMIT_S: Final = 120.0


class Writer(Protocol):
    """A producer of one topic. `outstanding` records have been sent and are neither acknowledged nor failed."""

    acknowledged: list[float]

    @property
    def outstanding(self) -> int: ...

    def write(self) -> None: ...

    def wait(self) -> None:
        """Let acknowledgements come in, for about 2 ms."""
        ...

    def close(self) -> None: ...


class RdkafkaWriter:
    """librdkafka, with short back-offs, so that its share is small."""

    def __init__(self, where: str, topic: str) -> None:
        from confluent_kafka import Producer as Rdkafka

        self._topic = topic
        self.acknowledged: list[float] = []
        self._producer = Rdkafka(
            {
                "bootstrap.servers": where, "acks": "all", "linger.ms": 0, "enable.idempotence": True,
                "retry.backoff.ms": 20, "retry.backoff.max.ms": 100, "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200, "topic.metadata.refresh.fast.interval.ms": 50,
                "message.timeout.ms": 120_000, "log_level": 0,
            }
        )  # fmt: skip

    @property
    def outstanding(self) -> int:
        return len(self._producer)

    def write(self) -> None:
        self._producer.produce(self._topic, b"x", on_delivery=self._on_delivery)

    def wait(self) -> None:
        self._producer.poll(0.002)

    def close(self) -> None:
        self._producer.flush(60)

    def _on_delivery(self, error: object, message: object) -> None:
        if error is None:
            self.acknowledged.append(time.monotonic())


class BarnabasWriter:
    """Our producer, with its own defaults."""

    def __init__(self, where: str, topic: str) -> None:
        self._topic = topic
        self.acknowledged: list[float] = []
        self.outstanding = 0
        self._producer = Producer(bootstrap_servers=where, acks="all", linger_ms=0)

    def write(self) -> None:
        self.outstanding += 1
        self._producer.send(self._topic, b"x", on_delivery=self._on_delivery)

    def wait(self) -> None:
        time.sleep(0.002)

    def close(self) -> None:
        self._producer.close()

    def _on_delivery(self, result: Any, error: BaseException | None) -> None:
        self.outstanding -= 1
        if error is None:
            self.acknowledged.append(time.monotonic())


WRITERS: Final[dict[str, Callable[[str, str], Writer]]] = {"librdkafka": RdkafkaWriter, "our client": BarnabasWriter}


class LeaderWatch:
    """Asks all brokers but one for the leader of a partition, until one of them reports another leader."""

    def __init__(self, where: str, topic: str, leader: int) -> None:
        self._brokers = [at for number, at in enumerate(where.split(","), start=1) if number != leader]
        self._topic = topic
        self._leader = leader
        self.changed_at: float | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._watch()), daemon=True)

    def __enter__(self) -> LeaderWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)

    async def _watch(self) -> None:
        client = NodeClient("leader-watch", random.Random(0))
        running = asyncio.ensure_future(client.run())
        await asyncio.sleep(0)
        await asyncio.wait([asyncio.ensure_future(self._ask(client, at)) for at in self._brokers])
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    async def _ask(self, client: NodeClient, at: str) -> None:
        host, _, port = at.rpartition(":")
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self._topic)], allow_auto_topic_creation=False)
        while self.changed_at is None and not self._stop.is_set():
            with contextlib.suppress(KafkaError):
                found: Any = await client.send(host, int(port), request, timeout_ms=2_000)
                leaders = [partition.leader_id for topic in found.topics for partition in topic.partitions]
                if leaders and leaders[0] not in (-1, self._leader) and self.changed_at is None:
                    self.changed_at = time.monotonic()
            await asyncio.sleep(_POLL_S)


class WritesAllTheTime:
    """Writes with one client, and measures for how long nothing is acknowledged."""

    def __init__(self, client: str, where: str, topic: str) -> None:
        self._where = where
        self._topic = topic
        self._writer: Writer = WRITERS[client](where, topic)

    def __enter__(self) -> WritesAllTheTime:
        self._write_until(lambda: len(self._writer.acknowledged) >= 100)
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def leader(self) -> int:
        from confluent_kafka.admin import AdminClient

        found = AdminClient({"bootstrap.servers": self._where}).list_topics(self._topic, 20)
        return int(found.topics[self._topic].partitions[0].leader)

    def gap_after(self, deed: Callable[[], None], leader: int) -> tuple[float, float]:
        """Do `deed`. Returns the longest time without an acknowledgement from then until writes flow again, and the
        time until another broker reported a new leader."""
        acknowledged = self._writer.acknowledged
        with LeaderWatch(self._where, self._topic, leader) as watch:
            acknowledged.clear()
            began = time.monotonic()
            deed()
            done = time.monotonic()
            self._write_until(
                lambda: watch.changed_at is not None and sum(at > done for at in acknowledged[-50:]) >= 50
            )
        moments = [began, *acknowledged]
        gap = max(after - before for before, after in itertools.pairwise(moments))
        assert watch.changed_at is not None
        return gap, watch.changed_at - began

    def _write_until(self, enough: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _LIMIT_S
        while not enough():
            if time.monotonic() > deadline:
                raise RuntimeError("nothing is acknowledged any more")
            if self._writer.outstanding < 20:
                self._writer.write()
            self._writer.wait()


def measure_ends(cluster: Cluster, deaths: int, out: Measured, advance: Callable[[], None]) -> None:
    """Every end `deaths` times for each client, except the pause, which is measured once: it takes the session."""
    where = cluster.bootstrap_servers
    ends = [
        ("killed", cluster.kill, cluster.launch, deaths),
        ("stopped in order", cluster.stop_node, cluster.launch, deaths),
        ("paused", cluster.pause, cluster.resume, 1),
    ]
    for client in WRITERS:
        for how, end, begin_again, times in ends:
            gaps, shares = [], []
            for number in range(times):
                topic = f"{client[:3]}-{how[:4]}-{number}"
                run_workload("create_topic", where, topic=topic, partitions=1, replicas=3)
                with WritesAllTheTime(client, where, topic) as writes:
                    leader = writes.leader()
                    gap, share = writes.gap_after(lambda end=end, leader=leader: end(leader), leader)  # type: ignore[misc]
                    gaps.append(gap)
                    shares.append(share)
                begin_again(leader)
                advance()
            name = f"leader {how}, {client}: until the next write"
            out[Figure(f"{name}, median", "s", -1)] = statistics.median(gaps)
            out[Figure(f"{name}, longest of {times}", "s", -1)] = max(gaps)
            out[Figure(f"leader {how}, {client}: until brokers know the next leader, median", "s", -1)] = (
                statistics.median(shares)
            )
