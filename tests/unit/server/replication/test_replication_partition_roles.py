"""The roles of a partition, with a listener that records the calls of the partition."""

from __future__ import annotations

import asyncio
from typing import cast
from uuid import UUID

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.records.validate import Origin
from barnabas.server.metadata.image.cluster import PartitionImage
from barnabas.server.replication.context import ReplicationContext
from barnabas.server.replication.partition import FollowerFetch, Partition
from barnabas.server.replication.roles.follower import FollowerRole
from barnabas.server.replication.roles.leader import LeaderRole
from barnabas.server.replication.roles.offline import OfflineRole
from barnabas.server.replication.rules.leader import IsrProposal
from barnabas.server.replication.rules.throttle import ReplicaThrottle
from barnabas.server.storage.log import Log
from barnabas.testing.sim.disk import MemoryDisk
from tests.configs import log_config

NAME = TopicPartition("t", 0)
A_LONG_TIME = 1e9
BATCH = build_batch([SimpleRecord(None, b"v", 0)])


class RecordingListener:
    """Records the calls of one partition."""

    def __init__(self) -> None:
        self.roles: list[type] = []
        self.fetchable = 0
        self.proposals: list[IsrProposal] = []

    def propose_isr(self, partition: Partition, proposal: IsrProposal) -> None:
        self.proposals.append(proposal)

    def on_role_changed(self, partition: Partition) -> None:
        self.roles.append(type(partition.role))

    def on_fetchable(self, partition: Partition) -> None:
        self.fetchable += 1


class World:
    """One partition of broker 1, on a disk in memory."""

    def __init__(self, **configs: int) -> None:
        fs = MemoryDisk().mount()
        fs.mkdir("/t-0")
        self.log = Log.open(fs, "/t-0", log_config(**configs), topic_partition=NAME, now_ms=0)
        self.listener = RecordingListener()
        self.flushed: list[Log] = []
        self.context = ReplicationContext(
            node_id=1,
            now_ms=lambda: 0,
            flush=self.flushed.append,
            sync_created=lambda directory: None,
            replica_lag_time_max_ms=1_000,
            leader_throttle=ReplicaThrottle(),
            follower_throttle=ReplicaThrottle(),
            active_brokers={1: 10, 2: 20},
        )
        self.partition = Partition(NAME, UUID(int=7), self.log, self.context, self.listener, 0)

    def apply(self, leader: int, leader_epoch: int, isr: tuple[int, ...] = (1,), elr: tuple[int, ...] = ()) -> bool:
        image = PartitionImage(
            replicas=(1, 2), isr=isr, elr=elr, leader=leader, leader_epoch=leader_epoch, partition_epoch=leader_epoch
        )
        return self.partition.apply_image(image)


def code_of(partition: Partition) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        partition.require_log()
    return cast("ErrorCode", caught.value.code)


def test_partition_without_an_image_rejects_requests() -> None:
    world = World()
    assert isinstance(world.partition.role, OfflineRole)
    assert code_of(world.partition) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.partition.try_committed(0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.partition.next_fetch(0) is None


def test_images_change_the_role_and_notify_the_listener() -> None:
    world = World()
    assert world.apply(leader=1, leader_epoch=1)
    assert not world.apply(leader=1, leader_epoch=1), "the same leader epoch begins no leadership"
    assert not world.apply(leader=2, leader_epoch=2)
    assert not world.apply(leader=1, leader_epoch=1), "an older image is ignored"
    assert world.apply(leader=1, leader_epoch=3)
    assert world.listener.roles == [LeaderRole, FollowerRole, LeaderRole]


@pytest.mark.parametrize(("isr", "elr", "electable"), [((2,), (), False), ((1, 2), (), True), ((2,), (1,), True)])
def test_follower_may_be_elected_from_the_isr_and_the_eligible_leader_replicas(
    isr: tuple[int, ...], elr: tuple[int, ...], electable: bool
) -> None:
    world = World()
    world.apply(leader=2, leader_epoch=2, isr=isr, elr=elr)
    role = world.partition.role
    assert isinstance(role, FollowerRole)
    assert role.state.electable is electable


def test_leader_appends_and_proposes_a_caught_up_follower() -> None:
    world = World()
    world.apply(leader=1, leader_epoch=1)
    world.partition.append(BATCH, 1, 0)
    assert world.partition.high_watermark == 1
    world.partition.read_by_follower(FollowerFetch(2, 20, 1, 1_000, log_start_offset=0), min_one_batch=True)
    assert [sorted(proposal.members) for proposal in world.listener.proposals] == [[1, 2]]


def test_a_leader_that_is_cut_off_rejects_clients_and_lets_coordinators_wait() -> None:
    async def run() -> None:
        world = World()
        partition, context = world.partition, world.context
        world.apply(leader=1, leader_epoch=1, isr=(1, 2))
        client = asyncio.create_task(
            partition.wait_committed(partition.append(BATCH, -1, 0).next_offset, A_LONG_TIME, for_client=True)
        )
        coordinator = asyncio.create_task(partition.wait_committed(1, A_LONG_TIME))
        await asyncio.sleep(0)
        context.now_ms = lambda: 5_000
        partition.append(BATCH, -1, 0)
        partition.release_clients()
        assert not client.done(), "the controller answers: it removes the follower from the ISR if that is necessary"
        context.silence_max_ms = 4_500
        with pytest.raises(KafkaError) as caught:
            partition.append(BATCH, -1, 0)
        assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition.append(BATCH, 1, 0)
        partition.append(BATCH, -1, 0, Origin.COORDINATOR)
        partition.release_clients()
        assert await client is ErrorCode.NOT_LEADER_OR_FOLLOWER
        end = world.log.log_end_offset
        partition.read_by_follower(FollowerFetch(2, 20, end, 1_000, log_start_offset=0), min_one_batch=True)
        assert await coordinator is ErrorCode.NONE
        partition.append(BATCH, -1, 0)  # the follower fetches: no controller is needed

    asyncio.run(run())


def test_a_leader_without_followers_needs_no_controller() -> None:
    world = World()
    world.apply(leader=1, leader_epoch=1)
    world.context.now_ms = lambda: 60_000
    world.context.silence_max_ms = 4_500
    end = world.partition.append(BATCH, -1, 0).next_offset
    assert world.partition.try_committed(end) is ErrorCode.NONE


def test_follower_requests_a_flush_before_its_next_fetch() -> None:
    world = World(flush_messages=1)
    world.apply(leader=1, leader_epoch=1)
    world.partition.append(BATCH, 1, 0)
    assert world.partition.high_watermark == 0, "the record is not synced yet"
    world.apply(leader=2, leader_epoch=2)
    assert world.partition.next_fetch(0) is None
    assert world.partition.waits_for_flush
    job = world.log.flush_job(everything=True)
    assert job is not None
    job.run()
    job.finish()
    assert world.listener.fetchable == 1
    assert world.partition.next_fetch(0) is not None


def test_followers_describe_their_producers() -> None:
    world = World()
    world.apply(leader=1, leader_epoch=1)
    batch = build_batch([SimpleRecord(None, b"1", 0)], producer_id=7, producer_epoch=3, base_sequence=0)
    world.partition.append(batch, 1, 0)
    led = world.partition.producers()
    world.apply(leader=2, leader_epoch=2)
    assert [(one.producer_id, one.epoch) for one in world.partition.producers()] == [(7, 3)]
    assert world.partition.producers() == led
    world.partition.on_log_dir_failed()
    with pytest.raises(KafkaError) as refused:
        world.partition.producers()
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_offline_log_directory_rejects_requests_with_a_storage_error() -> None:
    world = World()
    world.apply(leader=1, leader_epoch=1)
    world.partition.on_log_dir_failed()
    assert code_of(world.partition) is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.partition.try_committed(0) is ErrorCode.KAFKA_STORAGE_ERROR
    assert not world.apply(leader=1, leader_epoch=2), "a partition without a log takes no role"
    world.partition.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert code_of(world.partition) is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.listener.roles == [LeaderRole, OfflineRole, OfflineRole]
