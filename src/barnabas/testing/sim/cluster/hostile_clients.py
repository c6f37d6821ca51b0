"""Shell: hostile clients, and neighbours that must not notice them.

    pipelines   many connections send requests, small ones and expensive ones, and do not read the answers
    halves      requests that are begun and not finished, lengths that are too large, and bytes that are no request

A storm with hostile clients has them beside its other clients, while the faults strike. When a cluster has recovered,
`Siege` lets them keep a broker as busy as they can, and measures what its other clients notice: one that sends a
request now and then is answered soon (NeighboursAreAnswered), and one that always has cheap requests on the way gets as
much of the broker's time as an address that sends expensive ones (NeighboursHaveTheirShare).

The requests have a cost in simulated time, which `RequestCosts` counts, since the simulated world does not measure how
long real code takes.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

from barnabas.core.ids import CONSUMER_REPLICA_ID
from barnabas.core.work import count
from barnabas.protocol.records.batch import HEADER_SIZE, read_header
from barnabas.protocol.records.build import SimpleRecord, build_batch, seal
from barnabas.protocol.records.compression import CompressionType
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.client_conn import ClientConnection
from barnabas.protocol.wire.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.wire.messages.metadata import MetadataRequest
from barnabas.protocol.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.testing.sim.errors import CorrectnessError
from barnabas.testing.sim.node import PORT
from barnabas.testing.sim.workload.supervisor import PLAIN

if TYPE_CHECKING:
    from barnabas.protocol.transport.ports import Peer
    from barnabas.protocol.wire.schema import Request
    from barnabas.protocol.wire.server_conn import ReceivedRequest
    from barnabas.testing.sim.cluster.cluster import SimCluster
    from barnabas.testing.sim.node import SimNode
    from barnabas.testing.sim.world import World

SETTINGS: Final = {"socket.request.max.bytes": "1048576"}
COUNTING: Final = {"queued.max.request.bytes": "8388608"}
"""The setting with which the bytes of requests are counted, also of half ones. It is off by default."""
COSTLY: Final = ApiKey.DESCRIBE_CLUSTER
"""The API whose requests are expensive."""
COSTLY_UNITS: Final = 250
CHEAP_UNITS: Final = 10
ANSWER_S: Final = 0.1
"""The most simulated seconds for the answer to a neighbour: some turns of the loop, an expensive request for each of
the addresses, and the way."""
LEAST_SHARE: Final = 0.5
"""The least work of a neighbour that is always busy, in relation to that of an address that attacks."""
SIEGE_S: Final = 0.6
_ADDRESSES: Final = 2
_CONNECTIONS: Final = 20
_DEPTH: Final = 6
"""Requests that a connection has on the way in a siege."""
_FLOOD_S: Final = (0.1, 0.6)
_HALF_S: Final = (0.3, 1.5)
_CONNECT_S: Final = 0.5
_BOMB_BYTES: Final = 9_000
"""The size of a gzip payload that could inflate to more than the bytes that are not counted."""
_BOMB_RECORDS: Final = 20_000
"""More records than the event loop checks itself."""


class RequestCosts:
    """Counts the cost of each request as work of the node, and by client."""

    def __init__(self) -> None:
        self.units: Counter[tuple[str, str]] = Counter()
        """The work that each node has done for each client's host."""

    def on_request(self, host: str, request: ReceivedRequest, peer: Peer) -> None:
        units = COSTLY_UNITS if request.header.api_key == COSTLY else CHEAP_UNITS
        self.units[host, peer.host] += units
        count(units)


class _RawConnection(asyncio.Protocol):
    """A connection that sends bytes. Without `on_answer`, the connection never reads an answer."""

    def __init__(self, client_id: str, on_answer: Callable[[_RawConnection], None] | None = None) -> None:
        self.wire = ClientConnection(client_id)
        self._on_answer = on_answer
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        if self._on_answer is None:
            self._transport.pause_reading()

    def send(self, message: Request, version: int) -> None:
        self.send_bytes(b"".join(self.wire.send(message, version)[1]))

    def send_bytes(self, data: bytes) -> None:
        self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        for _ in self.wire.feed(data):
            assert self._on_answer is not None
            self._on_answer(self)

    def close(self) -> None:
        self._transport.abort()

    @property
    def is_open(self) -> bool:
        return not self._transport.is_closing()


async def _connect(
    world: World, node: SimNode, who: str, on_answer: Callable[[_RawConnection], None] | None = None
) -> _RawConnection | None:
    """A connection to the node; None if the node does not answer soon."""
    try:
        async with asyncio.timeout(_CONNECT_S):
            _, protocol = await world.loop.create_connection(lambda: _RawConnection(who, on_answer), node.name, PORT)
    except (OSError, TimeoutError):
        return None
    connection: _RawConnection = protocol
    return connection


class HostileClients:
    """The hostile clients that a storm has beside its other clients."""

    def __init__(self, cluster: SimCluster, partitions: int) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._partitions = partitions
        self._starts = 0

    async def attack(self, seconds: float) -> None:
        """Attack one broker after the other for so long."""
        self._starts += 1
        tasks = [
            self._world.start_client(f"h{i + 1}", self._attack(f"h{i + 1}.{self._starts}", what, seconds))[1]
            for i, what in enumerate((self._flood, self._halves))
        ]
        await asyncio.wait(tasks)
        for task in tasks:
            task.result()

    async def _attack(self, who: str, what: Callable[[str, random.Random], Any], seconds: float) -> None:
        rng, loop = self._world.random_stream(who), self._world.loop
        end = loop.time() + seconds
        while loop.time() < end:
            await what(who, rng)
            await asyncio.sleep(rng.uniform(0.1, 1.0))

    async def _flood(self, who: str, rng: random.Random) -> None:
        """Many connections send many requests of one kind, and read no answers."""
        node = rng.choice(self._cluster.brokers)
        message, version, most = rng.choice(self._requests(node, rng))
        number = rng.randint(1, most)
        self._world.trace.event(who, f"sends {number} {type(message).__name__} on several connections to {node.name}")
        opened = [await _connect(self._world, node, who) for _ in range(rng.randint(2, 8))]
        for connection in filter(None, opened):
            for _ in range(number):
                connection.send(message, version)
        await self._hold(opened, rng, _FLOOD_S)

    def _requests(self, node: SimNode, rng: random.Random) -> Sequence[tuple[Request, int, int]]:
        """Requests, their versions, and the largest number of them on a connection."""
        partitions = range(self._partitions)
        wanted = [FetchPartition(partition=index, partition_max_bytes=10_000) for index in partitions]
        fetch = FetchRequest(replica_id=CONSUMER_REPLICA_ID, max_wait_ms=0, min_bytes=0, session_epoch=-1)
        fetch.topics = [FetchTopic(topic=PLAIN, partitions=wanted)]
        broker = DescribeConfigsResource(resource_type=4, resource_name=str(node.node_id), configuration_keys=None)
        configs = DescribeConfigsRequest(resources=[broker], include_documentation=True)
        bombs = [PartitionProduceData(index=index, records=bomb(rng)) for index in partitions]
        produce = ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[TopicProduceData(name=PLAIN)])
        produce.topic_data[0].partition_data = bombs
        return (
            (MetadataRequest(topics=None), 12, 80),
            (fetch, 11, 80),
            (configs, 4, 12),
            (DescribeClusterRequest(), 0, 20),
            (produce, 9, 1),
        )

    async def _halves(self, who: str, rng: random.Random) -> None:
        """Requests that do not end, and bytes that are no requests."""
        node = rng.choice(self._cluster.brokers)
        self._world.trace.event(who, f"sends half requests to {node.name}")
        opened: list[_RawConnection | None] = []
        for _ in range(rng.randint(2, 6)):
            connection = await _connect(self._world, node, who)
            opened.append(connection)
            if connection is not None:
                connection.send_bytes(_half_request(rng))
        await self._hold(opened, rng, _HALF_S)

    async def _hold(
        self, opened: Sequence[_RawConnection | None], rng: random.Random, seconds: tuple[float, float]
    ) -> None:
        await asyncio.sleep(rng.uniform(*seconds))
        for connection in filter(None, opened):
            if connection.is_open:
                connection.close()


def bomb(rng: random.Random) -> bytes:
    """A batch of many records whose payload ends too early, and could inflate to many megabytes."""
    batch = build_batch([SimpleRecord(None, rng.randbytes(_BOMB_BYTES))], codec=CompressionType.GZIP)
    header = read_header(batch)._replace(record_count=_BOMB_RECORDS, last_offset_delta=_BOMB_RECORDS - 1)
    return seal(header, batch[HEADER_SIZE:-9])


def _half_request(rng: random.Random) -> bytes:
    length = 900_000
    body = b"\x00\x03\x00\x0c" + bytes(4) + b"\x00\x01h" + bytes(20_000)  # Metadata 12
    return rng.choice(
        [
            length.to_bytes(4, "big")[:3],
            length.to_bytes(4, "big"),
            length.to_bytes(4, "big") + body,  # counted with all of its length
            (200).to_bytes(4, "big") + body[:50],
            (1 << 30).to_bytes(4, "big") + body[:50],
            (-5).to_bytes(4, "big", signed=True),
            bytes(4),
            b"GET / HTTP/1.1\r\n\r\n",
            rng.randbytes(100),
        ]
    )


class Siege:
    """Some moments in which hostile clients keep one broker of a healthy cluster as busy as they can."""

    def __init__(self, cluster: SimCluster, costs: RequestCosts) -> None:
        self._world = cluster.world
        self._rng = cluster.world.random_stream("siege")
        self._node = self._rng.choice(cluster.brokers)
        self._before = Counter(costs.units)
        self._costs = costs
        self._end = 0.0
        self.answers: list[float] = []
        """The seconds after which a neighbour was answered."""

    async def hold(self) -> None:
        """Raises CorrectnessError if the neighbours notice the attack."""
        world = self._world
        world.trace.event("siege", f"hostile clients attack {self._node.name}")
        self._end = world.loop.time() + SIEGE_S
        programs = [world.start_client(f"h{i + 1}", self._besiege(f"h{i + 1}")) for i in range(_ADDRESSES)]
        programs += [world.start_client("n1", self._ask()), world.start_client("n2", self._ask_much())]
        await asyncio.wait([task for _, task in programs], timeout=SIEGE_S + 10 * ANSWER_S)
        for process, task in programs:
            if not task.done():
                self._broken("NeighboursAreAnswered", f"{process.name} waits for an answer")
            task.result()
        slowest = max(self.answers)
        work = {host: self._work_for(host) for host in ("h1", "h2", "n2")}
        world.trace.event("siege", f"{len(self.answers)} answers within {slowest:.3f} s, work {work}")
        if slowest > ANSWER_S:
            self._broken("NeighboursAreAnswered", f"an answer took {slowest:.3f} s, the most is {ANSWER_S} s")
        if work["n2"] < LEAST_SHARE * max(work.values()):
            self._broken("NeighboursHaveTheirShare", f"{self._node.name} has done units of work: {work}")

    def _work_for(self, host: str) -> int:
        return self._costs.units[self._node.name, host] - self._before[self._node.name, host]

    def _broken(self, rule: str, what: str) -> NoReturn:
        self._world.trace.event("rule", f"{rule} is broken: {what}")
        raise CorrectnessError(f"{rule} is broken: {what}")

    async def _besiege(self, who: str) -> None:
        """Many connections always have expensive requests on the way."""
        await self._keep_busy(who, _CONNECTIONS, DescribeClusterRequest(), 0)

    async def _ask_much(self) -> None:
        """One connection always has cheap requests on the way."""
        await self._keep_busy("n2", 1, MetadataRequest(topics=[]), 12, depth=40)

    async def _keep_busy(self, who: str, connections: int, message: Request, version: int, depth: int = _DEPTH) -> None:
        def on_answer(connection: _RawConnection) -> None:
            if self._world.loop.time() < self._end:
                connection.send(message, version)

        opened = [await _connect(self._world, self._node, who, on_answer) for _ in range(connections)]
        for connection in filter(None, opened):
            for _ in range(depth):
                connection.send(message, version)
        await asyncio.sleep(self._end - self._world.loop.time())
        for connection in filter(None, opened):
            connection.close()

    async def _ask(self) -> None:
        """A neighbour that sends a request now and then, on a new connection or on the last one."""
        loop = self._world.loop
        answered = asyncio.Event()
        connection: _RawConnection | None = None
        while loop.time() < self._end:
            began = loop.time()
            if connection is None or self._rng.random() < 0.3:
                connection = await _connect(self._world, self._node, "n1", lambda _: answered.set())
                if connection is None:
                    self._broken("NeighboursAreAnswered", "a neighbour cannot connect")
            answered.clear()
            connection.send(MetadataRequest(topics=[]), 12)
            await answered.wait()
            self.answers.append(loop.time() - began)
            await asyncio.sleep(self._rng.uniform(0.005, 0.03))
