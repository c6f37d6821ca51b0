"""kill -9 of nodes of two linked clusters, at random, while a producer and a group work; and failovers there and back.

In each round the active cluster dies as a whole, the other one takes over, and the dead one becomes its mirror. The
mirror has a prefix of what was written, at the same offsets: nothing below its end is lost, doubled or out of order.
The group goes on at an offset that it has committed, and gets each record from there on once and in order.

BARNABAS_SOAK_SECONDS sets the duration of the long form, BARNABAS_SEED the seed.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from barnabas.client import AsyncAdmin
from barnabas.client.admin.links import Link
from barnabas.client.links import cutover
from barnabas.client.links.verifying import verify
from barnabas.client.partition_reader import OffsetRange, PartitionReader
from barnabas.client.values import LATEST, NewTopic, OffsetAndTimestamp
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.batch import iter_batches, iter_records
from barnabas.testing.process import BrokerProcess
from barnabas.testing.process_cluster import ClusterProcess
from tests.progress import Standstill
from tests.system.chaos.workload import Acknowledged
from tests.system.mirror.moving_work import GROUP, PARTITIONS, TOPIC, Reading, Tally, Writing

SETTINGS = (
    "offsets.topic.num.partitions=2",
    "mirror.state.topic.num.partitions=2",
    "group.initial.rebalance.delay.ms=0",
)
OFTEN = {"mirror.metadata.refresh.interval.ms": "500", "mirror.request.timeout.ms": "5000"}
SOAK_S = float(os.environ.get("BARNABAS_SOAK_SECONDS", "300"))
PARTS = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
T = TypeVar("T")


class Side:
    """One of the two clusters."""

    def __init__(self, name: str, cluster: ClusterProcess) -> None:
        self.name, self.cluster = name, cluster
        self.link = f"into-{name}"
        """The link by which this cluster mirrors the other one."""

    def do(self, work: Callable[[AsyncAdmin], Awaitable[T]]) -> T:
        """Work with an admin client, again after each error until there is no progress for a long time."""

        async def main() -> T:
            async with AsyncAdmin(bootstrap_servers=self.cluster.bootstrap_servers) as admin:
                return await work(admin)

        standstill = Standstill(f"{self.name} does what it is asked to do")
        while True:
            try:
                return asyncio.run(main())
            except KafkaError as error:
                standstill.check(None)
                last = error
            time.sleep(0.2)  # the nodes of the cluster are starting
            assert last is not None

    def until(self, condition: Callable[[AsyncAdmin], Awaitable[bool]], what: str) -> None:
        standstill = Standstill(what)
        while not self.do(condition):
            standstill.check(None)
            time.sleep(0.1)  # the cluster cannot notify the test

    def ends(self) -> list[int]:
        async def read(admin: AsyncAdmin) -> list[int]:
            found = await admin.list_offsets(dict.fromkeys(PARTS, LATEST))
            return [one.offset for tp in PARTS if isinstance(one := found[tp], OffsetAndTimestamp)]

        self.until(lambda admin: _is_complete(read(admin)), f"{self.name} says where its partitions end")
        return self.do(read)

    def committed(self) -> list[int]:
        """The group's offsets; 0 where there is none."""

        async def read(admin: AsyncAdmin) -> list[int]:
            found = await admin.list_group_offsets(GROUP)
            return [getattr(found.get(tp), "offset", 0) for tp in PARTS]

        return self.do(read)

    def log(self, partition: TopicPartition, end: int) -> list[str]:
        """The values of the records from offset 0 to `end`; every offset has one."""

        async def read(admin: AsyncAdmin) -> list[str]:
            values: list[str] = []
            async for fetched in PartitionReader(admin.cluster).batches([OffsetRange(partition, 0, end)]):
                view = memoryview(fetched.buffer)
                for at, header in iter_batches(view):
                    if header.next_offset <= len(values):
                        continue
                    for record in iter_records(view, at, header):
                        if len(values) <= record.offset < end:
                            assert record.offset == len(values), f"{partition}: a gap before {record.offset}"
                            values.append((record.value or b"").decode())
            return values

        return [] if end == 0 else self.do(read)

    def tails(self) -> set[str]:
        """The values in the files that were saved before truncations, on all nodes."""
        found: set[str] = set()
        for path in self.cluster.folder.rglob("*.mirror-tail-*.log"):
            data = path.read_bytes()
            found |= {
                (r.value or b"").decode() for at, header in iter_batches(data) for r in iter_records(data, at, header)
            }
        return found


async def _is_complete(found: Awaitable[list[int]]) -> bool:
    return len(await found) == PARTITIONS


class Run:
    """The work, the kills and the failovers."""

    def __init__(self, active: Side, standby: Side, rng: random.Random) -> None:
        self.active, self.standby, self.rng = active, standby, rng
        self.acknowledged = Acknowledged()
        self.writing = Writing(self.acknowledged)
        self.reading = Reading(self.writing)
        self.tally = Tally()

    def begin(self) -> None:
        replicas = len(self.active.cluster.broker_ids)
        configs = {"min.insync.replicas": str(max(replicas - 1, 1))}
        self.active.do(lambda admin: admin.create_topics([NewTopic(TOPIC, PARTITIONS, replicas, configs=configs)]))
        source = self.active.cluster.bootstrap_servers
        link = Link(self.standby.link, source, topics=(TOPIC,), groups=(GROUP,), settings=OFTEN)
        self.standby.do(lambda admin: admin.create_link(link))
        self.work([0] * PARTITIONS)

    def work(self, committed: list[int]) -> None:
        self.writing.start(self.active.cluster.bootstrap_servers)
        self.reading.start(self.active.cluster.bootstrap_servers, committed)

    # -- kills -------------------------------------------------------------------------------------------------------

    def kill_some(self, count: int, until: float) -> None:
        """Kill and start nodes of both clusters."""
        nodes = [
            (f"{side.name}-{node_id}", node)
            for side in (self.active, self.standby)
            for node_id, node in side.cluster.nodes.items()
        ]
        while count > 0 or time.monotonic() < until:
            self.acknowledged.wait_for_more(self.rng.randrange(1, 400))
            chosen = self.rng.sample(nodes, self.rng.choice((1, 1, 1, 2)))
            for name, node in chosen:
                self._kill(name, node)
            self.rng.shuffle(chosen)
            for _, node in chosen:
                node.launch()
            for _, node in chosen:
                node.wait_ready()
            count -= len(chosen)

    def _kill(self, name: str, node: BrokerProcess) -> None:
        node.kill()
        self.tally.kills += 1
        self.tally.by_node[name] += 1

    # -- a failover --------------------------------------------------------------------------------------------------

    def fail_over(self) -> None:
        """The active cluster dies, and a node of the standby, too; the standby takes over."""
        dead, alive = self.active, self.standby
        before = list(self.reading.committed)
        alive.until(lambda admin: self._knows_group(admin, before), "the standby knows where the group is")
        for node_id, node in dead.cluster.nodes.items():
            self._kill(f"{dead.name}-{node_id}", node)
        name, hit = self.rng.choice([(f"{alive.name}-{n}", node) for n, node in alive.cluster.nodes.items()])
        self._kill(name, hit)
        hit.launch()
        self.reading.stop()
        self.writing.lose()
        began = time.monotonic()
        alive.do(lambda admin: cutover.failover(admin, alive.link, (), timeout_s=60))
        self.tally.failover_s.append(time.monotonic() - began)
        self.tally.failovers += 1
        hit.wait_ready()
        lost = self._check_mirror(alive)
        committed = self._check_group(alive)
        self.active, self.standby = alive, dead
        self.work(committed)
        self._mirror_back(lost)

    async def _knows_group(self, admin: AsyncAdmin, before: list[int]) -> bool:
        found = await admin.list_group_offsets(GROUP)
        return all(getattr(found.get(tp), "offset", 0) > 0 or not before[tp.partition] for tp in PARTS)

    def _check_mirror(self, alive: Side) -> set[str]:
        """The mirror has a prefix of what was written. Returns the acknowledged values that it has not."""
        lost: set[str] = set()
        for tp, end in zip(PARTS, alive.ends(), strict=True):
            log = alive.log(tp, end)
            assert log == self.writing.logs[tp.partition][:end], f"{tp}: the mirror is no prefix of what was written"
            promised = self.writing.promised[tp.partition]
            wrong = [offset for offset, value in promised.items() if offset < end and log[offset] != value]
            assert not wrong, f"{tp}: records are not where they were promised: {wrong[:5]}"
            lost.update(self.writing.cut(tp.partition, end))
            self.reading.cut(tp.partition, end)
        self.tally.lost += len(lost)
        return lost

    def _check_group(self, alive: Side) -> list[int]:
        """The group's offsets are within the log, and not after what the group has processed."""
        committed, ends = alive.committed(), alive.ends()
        for offset, end, tried in zip(committed, ends, self.reading.tried, strict=True):
            assert 0 <= offset <= min(end, tried), (committed, ends, self.reading.tried)
        self.tally.behind += sum(max(p - c, 0) for p, c in zip(self.reading.processed, committed, strict=True))
        self.reading.tried = list(committed)
        return committed

    def _mirror_back(self, lost: set[str]) -> None:
        """Start the dead cluster as the mirror of the other one. What it loses is in files."""
        self.standby.cluster.start()
        source = self.active.cluster.bootstrap_servers
        back = Link(self.standby.link, source, settings=OFTEN)

        async def reverse(there: AsyncAdmin) -> None:
            async with AsyncAdmin(bootstrap_servers=source) as here:
                changes = await cutover.reverse(here, there, self.active.link, back, ())
                assert [change.error for change in changes] == [None], changes

        self.standby.do(reverse)
        self.standby.until(lambda admin: self._is_mirroring(admin), f"{self.standby.name} mirrors the other cluster")
        missing = lost - self.standby.tails()
        assert not missing, f"{len(missing)} lost records are in no file, for example {sorted(missing)[:3]}"

    async def _is_mirroring(self, admin: AsyncAdmin) -> bool:
        statuses = await admin.describe_mirrors([self.standby.link])
        return [status.state for status in statuses] == ["MIRRORING"] * PARTITIONS

    # -- the end -----------------------------------------------------------------------------------------------------

    def finish(self) -> str:
        """Everything that was written in the end is in both clusters, byte for byte, and was processed by the group."""
        self.acknowledged.wait_for_more(100)
        self.writing.finish()
        ends = [len(log) for log in self.writing.logs]
        standstill = Standstill(f"the group has processed everything up to {ends}")
        while self.reading.processed != ends and not self.reading.failures:
            standstill.check(list(self.reading.processed))
            time.sleep(0.1)  # another thread reads
        self.reading.stop()
        assert not self.reading.failures, self.reading.failures[:5]
        assert not self.writing.failures, self.writing.failures[:5]
        assert self.active.ends() == ends
        for tp in PARTS:
            assert self.active.log(tp, ends[tp.partition]) == self.writing.logs[tp.partition]
            assert [value for _, value in sorted(self.reading.values[tp.partition].items())] == (
                self.writing.logs[tp.partition]
            )
        self.standby.until(self._is_level, "the mirror has everything")
        self.standby.do(self._is_equal)
        return self.tally.text(self.writing, self.reading)

    async def _is_level(self, admin: AsyncAdmin) -> bool:
        statuses = await admin.describe_mirrors([self.standby.link])
        ends = {status.partition: status.source_high_watermark for status in statuses if status.lag == 0}
        return ends == {tp: len(self.writing.logs[tp.partition]) for tp in PARTS}

    async def _is_equal(self, mirror: AsyncAdmin) -> None:
        async with AsyncAdmin(bootstrap_servers=self.active.cluster.bootstrap_servers) as source:
            compared = [one async for one in verify(source, mirror, PARTS)]
        assert all(one.is_equal and one.missing == 0 for one in compared), compared


@pytest.mark.system
@pytest.mark.timeout(900 + 3 * SOAK_S)
@pytest.mark.parametrize(
    ("seconds", "nodes", "standby_nodes"),
    [pytest.param(0.0, 1, 2, id="short"), pytest.param(SOAK_S, 3, 3, id="soak", marks=pytest.mark.slow)],
)
def test_kill_9_of_both_clusters(tmp_path: Path, seconds: float, nodes: int, standby_nodes: int) -> None:
    seed = int(os.environ.get("BARNABAS_SEED") or random.randrange(1 << 32))
    print(f"seed {seed}")
    with (
        ClusterProcess(tmp_path / "paris", brokers=nodes, settings=SETTINGS) as paris,
        ClusterProcess(tmp_path / "berlin", brokers=standby_nodes, settings=SETTINGS) as berlin,
    ):
        run = Run(Side("paris", paris), Side("berlin", berlin), random.Random(seed))
        end = time.monotonic() + seconds
        run.begin()
        try:
            run.kill_some(2, 0)
            run.fail_over()
            while time.monotonic() < end:
                run.kill_some(4, min(time.monotonic() + 30, end))
                run.fail_over()
            text = run.finish()
        except BaseException:
            run.reading.stop()
            run.writing.lose()
            raise
        print(text)
