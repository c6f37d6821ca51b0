"""Disks that are out when a broker starts, or were replaced: no empty log takes the place of one with records."""

from __future__ import annotations

import asyncio

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from barnabas.protocol.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.protocol.wire.messages.elect_leaders import ElectLeadersRequest
from barnabas.server.metadata.image.cluster import PartitionImage
from barnabas.server.metadata.image.topics import LOST_DIRECTORY, UNASSIGNED_DIRECTORY
from barnabas.server.metadata.records.topics import PartitionChangeRecord
from barnabas.server.storage.errors import DiskIoError
from tests.unit.server.replication.brokers import Broker, Cluster, in_virtual_time
from tests.unit.server.replication.test_replication_directories import home_of, known

NO_LEADER = -1


def state(cluster: Cluster, index: int = 0) -> PartitionImage:
    found = cluster.image.topics.partition("t", index)
    assert found is not None
    return found


def path_of(broker: Broker, index: int = 0) -> str:
    home = broker.partitions.log_dir_of(broker.partition("t", index))
    assert home is not None
    return home.path


async def alone_with_it(cluster: Cluster, first: Broker, second: Broker) -> str:
    """`first` has the only complete replica of t-0, with one record, and is down. Gives the path of its directory."""
    cluster.create("t", [[1, 2]])
    await cluster.until(lambda: all(len(b.partitions) == 1 for b in cluster.brokers.values()))
    assert await first.produce(b"before") is ErrorCode.NONE
    await cluster.until(lambda: known(cluster, first, 0) == home_of(first, 0))
    second.kill()
    cluster.fence(2)
    await cluster.until(lambda: cluster.isr("t") == [1] and len(first.partition().leader.isr) == 1)  # type: ignore[union-attr]
    assert await first.produce(b"acknowledged") is ErrorCode.NONE
    path = path_of(first)
    first.kill()
    cluster.fence(1)
    return path


def test_no_empty_log_replaces_one_in_an_offline_directory() -> None:
    async def main(cluster: Cluster) -> None:
        first, second = cluster.add(1, dirs=3), cluster.add(2)
        path = await alone_with_it(cluster, first, second)
        first.missing = {path}
        first.start(stopped_in_order=True)
        second.start()
        await cluster.until(lambda: len(first.partitions) == len(second.partitions) == 1)
        await asyncio.sleep(10)  # virtual time: nothing must come of it
        assert (state(cluster).leader, first.partition().log) == (NO_LEADER, None)
        assert second.values() == [b"before"]
        # the other directories take what is new
        cluster.create("u", [[1], [1], [1]])
        await cluster.until(lambda: all(cluster.brokers[1].partitions.get("u", n) is not None for n in range(3)))
        assert await first.produce(b"x", topic="u") is ErrorCode.NONE
        # and it is seen that one is out
        described = await first.serve(DescribeLogDirsRequest(topics=None), 4)
        assert isinstance(described, DescribeLogDirsResponse)
        assert {d.log_dir: d.error_code for d in described.results} == {
            p: ErrorCode.KAFKA_STORAGE_ERROR if p == path else ErrorCode.NONE for p in first.paths
        }
        asked = AlterReplicaLogDirsRequest(
            dirs=[AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name="u", partitions=[0])])]
        )
        answer = await first.serve(asked, 2)
        assert isinstance(answer, AlterReplicaLogDirsResponse)
        assert answer.results[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        # when it is back, so is everything
        first.kill()
        cluster.fence(1)
        first.missing = set()
        first.start(stopped_in_order=True)
        await cluster.until(lambda: first.partitions.get("t", 0) is not None and first.partition().is_leader)
        await cluster.until(lambda: cluster.isr("t") == [1, 2])
        assert (first.values(), second.values()) == ([b"before", b"acknowledged"],) * 2

    in_virtual_time(main, brokers=0)


def test_replica_of_a_removed_directory_does_not_lead_with_an_empty_log() -> None:
    """An empty log is made, for the operator has said that the old one will not come back; it does not count as
    complete, and leads when the operator says so too."""

    async def main(cluster: Cluster) -> None:
        first, second = cluster.add(1, dirs=2), cluster.add(2)
        path = await alone_with_it(cluster, first, second)
        first.paths = [p for p in first.paths if p != path]
        first.start(stopped_in_order=True)
        await cluster.until(lambda: len(first.partitions) == 1 and first.partition().log is not None)
        await cluster.until(lambda: known(cluster, first, 0) == home_of(first, 0))
        assert (state(cluster).leader, state(cluster).isr, state(cluster).elr, state(cluster).last_known_elr) == (
            NO_LEADER,
            (),
            (),
            (),
        )
        second.start()
        await cluster.until(lambda: len(second.partitions) == 1)
        assert state(cluster).leader == NO_LEADER
        cluster.ask(ElectLeadersRequest(election_type=1, topic_partitions=None), 2)
        await cluster.until(lambda: cluster.isr("t") == [1, 2])

    in_virtual_time(main, brokers=0)


def test_replaced_disk_is_reported_and_may_lead_again() -> None:
    async def main(cluster: Cluster) -> None:
        first, second = cluster.add(1), cluster.add(2)
        cluster.create("t", [[1, 2]])
        await cluster.until(lambda: all(len(b.partitions) == 1 for b in cluster.brokers.values()))
        assert await first.produce(b"x") is ErrorCode.NONE
        first.kill()
        cluster.fence(1)
        await cluster.until(lambda: second.partition().is_leader)
        assert await second.produce(b"y") is ErrorCode.NONE
        first.replace_disk("/data")
        first.start()
        await cluster.until(lambda: cluster.isr("t") == [1, 2])
        assert known(cluster, first, 0) == home_of(first, 0)
        second.kill()
        cluster.fence(2)
        await cluster.until(lambda: first.partition().is_leader)
        assert first.values(committed=True) == [b"x", b"y"]

    in_virtual_time(main, brokers=0)


async def untold(cluster: Cluster, first: Broker, second: Broker) -> str:
    """`first` leads t-0, and the controller does not know in which directory it lies. Gives its path."""
    cluster.cut.add(frozenset({0, 2}))
    cluster.create("t", [[1, 2]])
    await cluster.until(lambda: len(first.partitions) == 1)
    cluster.cut.add(frozenset({0, 1}))
    await cluster.until(lambda: first.partition().is_leader)
    first.append(b"x", acks=1)
    assert known(cluster, first, 0) == UNASSIGNED_DIRECTORY
    return path_of(first)


def test_disk_failure_before_the_controller_knows_the_directory() -> None:
    async def main(cluster: Cluster) -> None:
        first, second = cluster.add(1, dirs=2), cluster.add(2)
        await untold(cluster, first, second)
        home = first.partitions.log_dir_of(first.partition())
        assert home is not None
        first.process.run(home.fail, DiskIoError("the cable is out"))
        cluster.cut.clear()
        first.heartbeat()
        await cluster.until(lambda: len(second.partitions) == 1 and second.partition().is_leader)
        assert (cluster.isr("t"), known(cluster, first, 0)) == ([2], home.directory_id)

    in_virtual_time(main, brokers=0)


def test_replica_with_unknown_directory_is_lost_until_found() -> None:
    async def main(cluster: Cluster) -> None:
        first, second = cluster.add(1, dirs=2), cluster.add(2)
        path = await untold(cluster, first, second)
        first.kill()
        cluster.fence(1)
        cluster.cut.clear()
        first.missing = {path}
        first.start(stopped_in_order=True)
        await cluster.until(lambda: known(cluster, first, 0) == LOST_DIRECTORY)
        assert (first.partition().log, cluster.isr("t")) == (None, [2])
        first.kill()
        cluster.fence(1)
        first.missing = set()
        first.start()
        await cluster.until(lambda: cluster.isr("t") == [1, 2])
        assert known(cluster, first, 0) == home_of(first, 0)
        assert path_of(first) == path

    in_virtual_time(main, brokers=0)


def test_disk_failure_while_logs_are_opened_is_not_a_lost_directory() -> None:
    """The controller keeps the directories of logs that could not be opened, and finds them there after a repair."""

    async def main(cluster: Cluster) -> None:
        broker = cluster.add(1, dirs=2)
        cluster.create("t", [[1]] * 6)
        await cluster.until(lambda: len(broker.partitions) == 6)
        for index in range(6):
            assert await broker.produce(b"%d" % index, index=index) is ErrorCode.NONE
        await cluster.until(lambda: all(known(cluster, broker, n) == home_of(broker, n) for n in range(6)))
        broker.kill()
        cluster.fence(1)
        broker.disk.fail_reads = lambda path: path.startswith("/data1/") and path.endswith(".log")
        broker.start()
        await cluster.until(lambda: len(broker.partitions) == 6)
        assert [broker.partition("t", n).log is None for n in range(6)].count(True) == 3
        await asyncio.sleep(10)  # virtual time: reports of lost directories would be sent by now
        broker.heartbeat()
        broker.kill()
        cluster.fence(1)
        broker.disk.fail_reads = lambda path: False
        broker.start()
        await cluster.until(lambda: all(broker.partitions.get("t", n) is not None for n in range(6)))
        await cluster.until(lambda: all(broker.partition("t", n).is_leader for n in range(6)))
        assert [broker.values(index=n) for n in range(6)] == [[b"%d" % n] for n in range(6)]

    in_virtual_time(main, brokers=0)


def _flip_a_bit(broker: Broker, path: str) -> None:
    """Damage the first of several batches of t-0 on the disk of a broker that is down."""
    data = broker.disk.data(f"{path}/t-0/00000000000000000000.log")
    data[70] ^= 1


def test_a_damaged_replica_is_reported_as_lost_and_does_not_lead() -> None:
    """A log that is damaged takes only its partition offline; the directory and the broker stay online."""

    async def main(cluster: Cluster) -> None:
        first, second = cluster.add(1), cluster.add(2)
        cluster.create("t", [[1, 2]])
        await cluster.until(lambda: all(len(b.partitions) == 1 for b in cluster.brokers.values()))
        for value in (b"a", b"b", b"c"):
            assert await first.produce(value) is ErrorCode.NONE
        await cluster.until(lambda: cluster.isr("t") == [1, 2] and known(cluster, first, 0) == home_of(first, 0))
        path = path_of(first)
        first.kill()
        _flip_a_bit(first, path)
        first.start()
        await cluster.until(lambda: known(cluster, first, 0) == LOST_DIRECTORY)
        await cluster.until(lambda: second.partition().is_leader)
        assert (state(cluster).leader, state(cluster).isr, first.partition().log) == (2, (2,), None)
        assert await second.produce(b"d") is ErrorCode.NONE
        # the log is repaired, and the broker restarts: the replica follows again
        first.kill()
        _flip_a_bit(first, path)
        first.start()
        await cluster.until(lambda: cluster.isr("t") == [1, 2])
        assert first.values() == [b"a", b"b", b"c", b"d"]
        assert known(cluster, first, 0) == home_of(first, 0)

    in_virtual_time(main, brokers=0)


def test_a_damaged_replica_that_is_alone_in_the_isr_leads_again_once_it_is_repaired() -> None:
    async def main(cluster: Cluster) -> None:
        first = cluster.add(1)
        cluster.create("t", [[1]])
        await cluster.until(lambda: len(first.partitions) == 1)
        for value in (b"a", b"b", b"c"):
            assert await first.produce(value) is ErrorCode.NONE
        await cluster.until(lambda: known(cluster, first, 0) == home_of(first, 0))
        path = path_of(first)
        first.kill()
        _flip_a_bit(first, path)
        first.start()
        await cluster.until(lambda: len(first.partitions) == 1)
        await asyncio.sleep(10)  # virtual time: nothing must come of it
        assert known(cluster, first, 0) != LOST_DIRECTORY
        first.kill()
        _flip_a_bit(first, path)
        first.start()
        await cluster.until(lambda: first.partitions.get("t", 0) is not None and first.partition().is_leader)
        assert first.values() == [b"a", b"b", b"c"]

    in_virtual_time(main, brokers=0)


async def damaged(cluster: Cluster, **configs: str) -> tuple[Broker, Broker]:
    """Broker 1 has a damaged replica of t-0, which the controller knows as lost; broker 2 leads."""
    first, second = cluster.add(1), cluster.add(2)
    cluster.create("t", [[1, 2]], **configs)
    await cluster.until(lambda: all(len(b.partitions) == 1 for b in cluster.brokers.values()))
    for value in (b"a", b"b", b"c"):
        assert await first.produce(value) is ErrorCode.NONE
    await cluster.until(lambda: cluster.isr("t") == [1, 2] and known(cluster, first, 0) == home_of(first, 0))
    path = path_of(first)
    first.kill()
    _flip_a_bit(first, path)
    first.start()
    await cluster.until(lambda: known(cluster, first, 0) == LOST_DIRECTORY and second.partition().is_leader)
    return first, second


def _strays(broker: Broker) -> list[str]:
    return [path for path in broker.disk.paths() if "-stray/" in path and path.endswith(".log")]


def test_a_damaged_replica_that_is_moved_away_and_back_begins_with_an_empty_log() -> None:
    async def main(cluster: Cluster) -> None:
        first, second = await damaged(cluster)
        for replicas in ([2], [1, 2]):
            moved = ReassignablePartition(partition_index=0, replicas=replicas)
            cluster.ask(AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=[moved])]))
            await cluster.until(lambda: not state(cluster).is_reassigning)
            await cluster.until(lambda: len(first.partitions) == len(state(cluster).replicas) - 1)
        await cluster.until(lambda: cluster.isr("t") == [1, 2])
        assert first.values() == [b"a", b"b", b"c"] == second.values()
        assert len(_strays(first)) == 1

    in_virtual_time(main, brokers=0)


def test_a_topic_is_created_again_after_its_damaged_log_was_deleted() -> None:
    async def main(cluster: Cluster) -> None:
        first, second = await damaged(cluster)
        cluster.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]), 6)
        await cluster.until(lambda: len(first.partitions) == len(second.partitions) == 0)
        cluster.create("t", [[1, 2]])
        await cluster.until(lambda: len(first.partitions) == 1 and first.partition().is_leader)
        assert await first.produce(b"new") is ErrorCode.NONE
        assert first.values() == [b"new"]
        assert len(_strays(first)) == 1

    in_virtual_time(main, brokers=0)


def test_a_damaged_replica_is_reported_as_lost_if_an_eligible_replica_has_all_records() -> None:
    """KIP-966: the replica is alone in the ISR, and the other one has not lost a record since it left the ISR."""

    async def main(cluster: Cluster) -> None:
        first, second = await damaged(cluster)
        second.kill()
        present = state(cluster)
        change = PartitionChangeRecord(
            topic_id=first.partition().topic_id, partition_id=0, isr=[1], eligible_leader_replicas=[2], leader=1,
            directories=[home_of(first, 0), present.directory_of(2)],
        )  # fmt: skip
        cluster.commit([change])
        await cluster.until(lambda: known(cluster, first, 0) == LOST_DIRECTORY)
        assert state(cluster).leader != 1

    in_virtual_time(main, brokers=0)
