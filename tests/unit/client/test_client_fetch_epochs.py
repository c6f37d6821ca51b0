"""What a fetch says of its position must be true of that position (KIP-320).

The epoch of the last record *given out* went with the position of the last *fetched*, and a broker that had begun a new
epoch between the two had to take the log for truncated: the consumer went back, and gave records out again.
"""

from __future__ import annotations

from barnabas.client.consumer.consumer import AsyncConsumer
from barnabas.core.ids import NO_LEADER_EPOCH, TopicPartition
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.control import EndTxn, build_end_txn_marker
from barnabas.protocol.wire.apis import ApiKey
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.client.test_client_reader import batch


async def test_the_epoch_of_a_fetch_is_that_of_the_batch_before_its_position() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    log = fake.log("t")
    for epoch in range(6):
        log.leader_epoch = epoch
        for _ in range(3):
            log.put(batch(*(b"%d" % n for n in range(5))))
        log.put(build_end_txn_marker(EndTxn(True, 0), producer_id=7, producer_epoch=0, timestamp=0))
    before = {header.next_offset: header.partition_leader_epoch for header in map(read_header, log.batches)}
    settings = {"max_partition_fetch_bytes": 300, "fetch_max_wait_ms": 1, "auto_offset_reset": "earliest"}
    seen: list[int] = []
    async with fake.cluster() as cluster, AsyncConsumer(cluster=cluster, **settings) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        while len(seen) < 6 * 15:
            seen += [record.offset for record in await consumer.poll(100, max_records=2)]
    assert seen == sorted(set(seen))
    asked = [
        (partition.fetch_offset, partition.last_fetched_epoch)
        for _, key, request in fake.requests
        if key is ApiKey.FETCH
        for topic in request.topics
        for partition in topic.partitions
    ]
    assert len(asked) > 6
    assert asked == [(offset, before.get(offset, NO_LEADER_EPOCH)) for offset, _ in asked]


async def test_diverging_epoch_of_a_follower_does_not_move_the_position() -> None:
    """A follower that has lost unsynced records is behind the leader: the consumer asks the leader before it moves."""
    fake = FakeCluster()
    fake.add_topic("t")
    async with fake.cluster() as cluster, AsyncConsumer(cluster=cluster, auto_offset_reset="earliest") as consumer:
        partition = TopicPartition("t", 0)
        consumer.assign([partition])
        state = consumer._subscription.partitions[partition]
        state.seek(212)
        state.preferred_replica = 2
        consumer._fetcher._on_diverging(state, 182, leader_epoch=3)
        assert (state.position, state.preferred_replica) == (212, -1)
        consumer._fetcher._on_diverging(state, 182, leader_epoch=3)
        assert state.position == 182
