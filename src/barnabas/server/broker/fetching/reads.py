"""Shell: reads one partition for a Fetch: for a consumer up to the high watermark, for a follower up to the log's end.

A consumer that sends its rack (`rack_id`) may be directed to an in-sync replica in that rack (KIP-392); since version
11 a consumer may also read from a broker that follows the partition. A follower's fetch offset shows how far its log
reaches. A follower that is not in sync gets at most leader.replication.throttled.rate bytes per second of the
partitions in the topic's leader.replication.throttled.replicas (KIP-73).
"""

from __future__ import annotations

import functools
from collections.abc import Hashable
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from barnabas.core.ids import CONSUMER_REPLICA_ID
from barnabas.protocol.wire.messages.fetch import FetchRequest
from barnabas.server.broker.fetching.session import OnCaughtUp, RequestedPartition
from barnabas.server.broker.handlers.data.port import DataPort
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.replication.context import ReplicationContext
from barnabas.server.replication.partition import FollowerFetch, Isolation, Partition, PartitionRead
from barnabas.server.replication.purgatory import Purgatory
from barnabas.server.replication.rules.leader import is_stale_fetch

FOLLOWER_READS_SINCE: Final = 11
RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_UNKNOWN_BROKER_EPOCH: Final = -1
_NO_DATA: Final = b""


class FetchParams(Struct, frozen=True):
    """The fields of one Fetch request that concern all its partitions (Kafka's FetchParams)."""

    replica_id: int
    """The broker id of a follower; CONSUMER_REPLICA_ID for a consumer."""
    broker_epoch: int
    """The epoch with which the follower's broker is registered (KIP-903); -1 if unknown."""
    isolation: int
    leader_only: bool
    rack_brokers: frozenset[int] | None
    """The brokers in the consumer's rack; None unless the broker selects the nearest replica."""
    reads_all: bool
    """Read all partitions of a session rather than the marked ones."""

    @property
    def from_follower(self) -> bool:
        return self.replica_id >= 0

    @property
    def reader(self) -> Hashable:
        """The fields of the Fetch request that decide up to which offset it can read a partition."""
        return self.replica_id, self.isolation, self.leader_only


class FetchRead(NamedTuple):
    """The result of reading one partition, with the data that a fetch session needs to watch the partition."""

    read: PartitionRead
    purgatory: Purgatory
    """The purgatory that is notified when there is more to read."""
    at_end: bool
    """There is nothing more to read until `purgatory` is notified."""
    throttled: bool = False
    """The size of the read counts against leader.replication.throttled.rate."""
    on_caught_up: OnCaughtUp | None = None
    """Records that a follower was caught up at the given time. The follower's fetch session calls it after the follower
    has read the whole log, until the session reads the partition again. None for a consumer."""


def build_params(port: DataPort, ctx: RequestContext, request: FetchRequest) -> FetchParams:
    """The parameters of a request. A follower sends its replica id, in `replica_state` since version 15 (KIP-903)."""
    state = request.replica_state
    if state.replica_id >= 0:
        return _follower_params(port.partitions.context, state.replica_id, state.replica_epoch)
    if request.replica_id >= 0:
        return _follower_params(port.partitions.context, request.replica_id, _UNKNOWN_BROKER_EPOCH)
    leader_only = ctx.api_version < FOLLOWER_READS_SINCE
    rack_brokers: frozenset[int] | None = None
    if request.rack_id and not leader_only and port.config.current.replica_selector_class == RACK_AWARE:
        rack_brokers = frozenset(
            broker.broker_id
            for broker in port.metadata.image.brokers.alive()
            if broker.rack == request.rack_id and broker.endpoint(ctx.client.listener) is not None
        )
    # All partitions are read, because the preferred replica of a partition may change while the partition does not.
    reads_all = rack_brokers is not None
    return FetchParams(CONSUMER_REPLICA_ID, -1, request.isolation_level, leader_only, rack_brokers, reads_all)


def _follower_params(context: ReplicationContext, replica_id: int, broker_epoch: int) -> FetchParams:
    # Every partition of a request with an old broker epoch is answered with an error.
    reads_all = is_stale_fetch(broker_epoch, context.active_brokers.get(replica_id))
    return FetchParams(replica_id, broker_epoch, Isolation.READ_UNCOMMITTED, True, None, reads_all)


def read_for_consumer(
    params: FetchParams, partition: Partition, requested: RequestedPartition, max_bytes: int, *, min_one_batch: bool
) -> FetchRead:
    """Read batches below the high watermark, or below the last stable offset with `read_committed`. Raises KafkaError.

    If the consumer should read from another replica (KIP-392), the result names that replica and has no records.
    """
    fetch_offset, committed = requested.fetch_offset, params.isolation == Isolation.READ_COMMITTED
    preferred = partition.preferred_read_replica(fetch_offset, params.rack_brokers) if params.rack_brokers else None
    found = partition.read(
        fetch_offset,
        0 if preferred is not None else max_bytes,
        isolation=params.isolation,
        min_one_batch=min_one_batch and preferred is None,
        current_leader_epoch=requested.current_leader_epoch,
        last_fetched_epoch=requested.last_fetched_epoch,
        replica_id=CONSUMER_REPLICA_ID,
        leader_only=params.leader_only,
    )
    if committed and found.aborted is None:
        found = replace(found, aborted=[])
    if preferred is not None and found.diverging is None:
        found = replace(found, data=_NO_DATA, preferred_read_replica=preferred)
    end = found.last_stable_offset if committed else found.high_watermark
    at_end = fetch_offset >= end and found.diverging is None and not params.reads_all
    return FetchRead(found, partition.consumer_fetches, at_end)


def read_for_follower(
    context: ReplicationContext,
    params: FetchParams,
    partition: Partition,
    requested: RequestedPartition,
    max_bytes: int,
    *,
    min_one_batch: bool,
    first_pass: bool,
) -> FetchRead:
    """Read batches up to the log end offset. Raises KafkaError.

    Only the first pass over the partitions of a request records the follower's fetch offset and the time. A fetch
    session does not read a partition again while the follower is at the end of the log (`at_end`). When that is about
    to change, the session calls `on_caught_up`, which records that the follower had the whole log at the time of the
    session's last request. A follower that is not in sync is never `at_end`, because each of its fetches may let it
    join the ISR.
    """
    replica_id, name, throttle, leader = params.replica_id, partition.name, context.leader_throttle, partition.leader
    throttled = throttle.covers(name.topic, name.partition) and leader is not None and replica_id not in leader.isr
    if throttled and throttle.is_used_up(context.now_ms()):
        max_bytes, min_one_batch = 0, False
    fetch = FollowerFetch(
        replica_id,
        params.broker_epoch,
        requested.fetch_offset,
        max_bytes,
        requested.current_leader_epoch,
        requested.last_fetched_epoch,
        requested.follower_log_start_offset,
    )
    found = partition.read_by_follower(fetch, min_one_batch=min_one_batch, first=first_pass)
    log, leader = partition.log, partition.leader
    at_end = (
        log is not None
        and leader is not None
        and found.diverging is None
        and requested.fetch_offset == log.log_end_offset
        and replica_id in leader.isr
    )
    on_caught_up = functools.partial(partition.was_caught_up, replica_id)
    return FetchRead(found, partition.follower_fetches, at_end, throttled, on_caught_up)
