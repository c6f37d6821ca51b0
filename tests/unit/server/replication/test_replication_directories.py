"""Brokers with several directories: the controller knows what lies where, and a failed one takes only its own."""

from __future__ import annotations

from uuid import UUID

from barnabas.core.errors import ErrorCode
from barnabas.server.storage import names
from barnabas.server.storage.errors import DiskIoError
from tests.unit.server.replication.brokers import Broker, Cluster, in_virtual_time


def home_of(broker: Broker, index: int) -> UUID:
    home = broker.partitions.log_dir_of(broker.partition("t", index))
    assert home is not None
    return home.directory_id


def known(cluster: Cluster, broker: Broker, index: int) -> UUID:
    state = cluster.image.topics.partition("t", index)
    assert state is not None
    return state.directory_of(broker.number)


def test_failed_directory_moves_its_leaderships() -> None:
    async def main(cluster: Cluster) -> None:
        first, second = cluster.add(1, dirs=2), cluster.add(2)
        cluster.create("t", [[1, 2], [1, 2]])
        await cluster.until(lambda: all(len(b.partitions) == 2 for b in cluster.brokers.values()))
        for index in (0, 1):
            assert await first.produce(b"%d" % index, index=index) is ErrorCode.NONE
        assert len({home_of(first, 0), home_of(first, 1)}) == 2
        await cluster.until(lambda: all(known(cluster, first, n) == home_of(first, n) for n in (0, 1)))

        failed = first.partitions.log_dir_of(first.partition("t", 1))
        assert failed is not None
        first.process.run(failed.fail, DiskIoError("the cable is out"))
        assert first.partitions.offline_dirs == [failed.directory_id]
        first.heartbeat()
        await cluster.until(lambda: second.partition("t", 1).is_leader)
        assert (cluster.isr("t", 0), cluster.isr("t", 1)) == ([1, 2], [2])
        assert await second.produce(b"after", index=1) is ErrorCode.NONE
        assert await first.produce(b"still", index=0) is ErrorCode.NONE
        assert second.values(index=1) == [b"1", b"after"]

    in_virtual_time(main, brokers=0)


def test_epoch_file_failure_after_an_append_takes_only_its_directory_offline() -> None:
    async def main(cluster: Cluster) -> None:
        first, second = cluster.add(1), cluster.add(2, dirs=2)
        cluster.create("t", [[1, 2], [1, 2]])
        await cluster.until(lambda: all(len(b.partitions) == 2 for b in cluster.brokers.values()))
        fail_epochs_of(second, 1)
        first.append(b"x", index=1)
        await cluster.until(lambda: second.partition("t", 1).log is None)
        await the_other_goes_on(cluster, first, second)

    in_virtual_time(main, brokers=0)


def test_epoch_file_failure_after_a_truncation_takes_only_its_directory_offline() -> None:
    """An epoch in which it led and wrote nothing is all that there is to cut."""

    async def main(cluster: Cluster) -> None:
        first, second = cluster.add(1), cluster.add(2, dirs=2)
        cluster.create("t", [[1, 2], [1, 2]])
        await cluster.until(lambda: all(len(b.partitions) == 2 for b in cluster.brokers.values()))
        for index in (0, 1):
            assert await first.produce(b"a", index=index) is ErrorCode.NONE
        cluster.fence(1)
        await cluster.until(lambda: all(second.partition("t", n).is_leader for n in (0, 1)))
        first.heartbeat()
        await cluster.until(lambda: all(cluster.isr("t", n) == [1, 2] for n in (0, 1)))
        fail_epochs_of(second, 1)
        cluster.fence(2)
        second.heartbeat()
        await cluster.until(lambda: second.partition("t", 1).log is None)
        await the_other_goes_on(cluster, first, second)

    in_virtual_time(main, brokers=0)


def fail_epochs_of(broker: Broker, index: int) -> None:
    """Its disk takes everything but a new file of leader epochs."""
    home = broker.partitions.log_dir_of(broker.partition("t", index))
    assert home is not None
    epochs = f"{home.path}/t-{index}/{names.LEADER_EPOCH_CHECKPOINT}"
    broker.disk.fail_writes = lambda path: path.startswith(epochs)


async def the_other_goes_on(cluster: Cluster, leader: Broker, follower: Broker) -> None:
    """t-0, in another directory."""
    before = leader.values()
    assert await leader.produce(b"still") is ErrorCode.NONE
    await cluster.until(lambda: follower.values() == [*before, b"still"])
    await cluster.until(lambda: cluster.isr("t") == [1, 2])
