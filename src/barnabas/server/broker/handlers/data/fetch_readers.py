"""Shell: what a Fetch gets of one partition: a consumer below the watermark, a follower up to the log's end.

A consumer that says where it is (`rack_id`) may be sent to an in-sync replica in its rack (KIP-392); with version 11
it may also read from this broker where it is a follower. A follower's fetch says how far its copy is; a replica that is
not in sync and whose topic says so gets no more bytes than leader.replication.throttled.rate (KIP-73).
"""

from __future__ import annotations

import functools
from collections.abc import Hashable
from typing import Final, Protocol

from msgspec.structs import replace

from barnabas.core.ids import CONSUMER_REPLICA_ID
from barnabas.protocol.wire.messages.fetch import FetchRequest
from barnabas.server.broker.fetch_sessions import Wanted
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services
from barnabas.server.replication.host import Host
from barnabas.server.replication.leading import FollowerFetch
from barnabas.server.replication.partition import Isolation, Partition, PartitionRead
from barnabas.server.replication.purgatory import Purgatory
from barnabas.server.replication.rules.leader import is_stale_fetch
from barnabas.server.replication.session_watch import WhenAtRest

ANY_REPLICA_SINCE: Final = 11
RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_NO_DATA: Final = b""


class Reader(Protocol):
    """Reads partition after partition for one request; `begin` before each pass over them, `finish` at the end."""

    is_follower: bool
    looks_at_all: bool
    """Rather than only at those partitions of its session of which something has changed."""

    @property
    def kind(self) -> Hashable:
        """A session that is read as another kind than before is looked at as a whole."""
        ...

    def begin(self) -> None: ...

    def read(self, partition: Partition, want: Wanted, max_bytes: int, *, min_one_batch: bool) -> PartitionRead:
        """Raises KafkaError."""
        ...

    def took(self, size: int) -> None:
        """So many bytes of what was read last are in the answer, be they from memory or from the disk."""
        ...

    def watch(self, partition: Partition) -> Purgatory:
        """What wakes this reader when there is more."""
        ...

    def is_settled(self, partition: Partition, want: Wanted, found: PartitionRead) -> bool:
        """There is no more, and this reader need not look again before `watch` has something."""
        ...

    def at_rest(self, partition: Partition) -> WhenAtRest | None:
        """Who is to be told that this reader had everything of a partition that it did not look at."""
        ...

    def finish(self) -> None: ...


def choose_reader(services: Services, ctx: RequestContext, request: FetchRequest) -> Reader:
    """By who asks."""
    if request.replica_state.replica_id >= 0:
        return FollowerReader(
            services.partitions.host, request.replica_state.replica_id, request.replica_state.replica_epoch
        )
    if request.replica_id >= 0:
        return FollowerReader(services.partitions.host, request.replica_id, -1)
    return ConsumerReader(services, ctx, request)


class ConsumerReader:
    """For consumers (and for whoever debugs a broker, with replica id -2)."""

    is_follower = False

    def __init__(self, services: Services, ctx: RequestContext, request: FetchRequest) -> None:
        self._services = services
        self._listener = ctx.client.listener
        self._isolation = request.isolation_level
        self._leader_only = ctx.api_version < ANY_REPLICA_SINCE
        self._near: frozenset[int] | None = None
        if request.rack_id and not self._leader_only and services.settings.replica_selector_class == RACK_AWARE:
            self._near = frozenset(
                broker.broker_id
                for broker in services.metadata.image.brokers.alive()
                if broker.rack == request.rack_id and broker.endpoint(self._listener) is not None
            )
        self.looks_at_all = self._near is not None  # the best replica may change while the records do not

    @property
    def kind(self) -> Hashable:
        return self._isolation, self._leader_only

    def begin(self) -> None:
        """Nothing is counted."""

    def read(self, partition: Partition, want: Wanted, max_bytes: int, *, min_one_batch: bool) -> PartitionRead:
        preferred = partition.preferred_read_replica(want.fetch_offset, self._near) if self._near else None
        found = partition.read(
            want.fetch_offset,
            0 if preferred is not None else max_bytes,
            isolation=self._isolation,
            min_one_batch=min_one_batch and preferred is None,
            current_leader_epoch=want.current_leader_epoch,
            last_fetched_epoch=want.last_fetched_epoch,
            replica_id=CONSUMER_REPLICA_ID,
            leader_only=self._leader_only,
        )
        if self._isolation == Isolation.READ_COMMITTED and found.aborted is None:
            found = replace(found, aborted=[])
        if preferred is not None and found.diverging is None:
            return replace(found, data=_NO_DATA, preferred_read_replica=preferred)
        return found

    def took(self, size: int) -> None:
        """Nothing is counted."""

    def watch(self, partition: Partition) -> Purgatory:
        return partition.consumer_fetches

    def is_settled(self, partition: Partition, want: Wanted, found: PartitionRead) -> bool:
        committed = self._isolation == Isolation.READ_COMMITTED
        end = found.last_stable_offset if committed else found.high_watermark
        return want.fetch_offset >= end and found.diverging is None and not self.looks_at_all

    def at_rest(self, partition: Partition) -> WhenAtRest | None:
        return None

    def finish(self) -> None:
        """Nothing was counted."""


class FollowerReader:
    """For a replica on another broker. Only the first pass says how far it is: later ones find it where it was.

    A partition that its session does not look at is one of which it has everything; that it had it when it asked is
    written down when that changes (`leading.was_caught_up`)."""

    is_follower = True

    def __init__(self, host: Host, replica_id: int, broker_epoch: int) -> None:
        self._host = host
        self._replica_id = replica_id
        self._broker_epoch = broker_epoch
        self._passes = 0
        self._throttled = False
        """What was read last counts."""
        self._throttled_bytes = 0
        """In the latest pass, which is the one that is sent."""
        self.looks_at_all = is_stale_fetch(broker_epoch, host.active.get(replica_id))  # each is refused by itself

    @property
    def kind(self) -> Hashable:
        return self._replica_id

    def begin(self) -> None:
        self._passes += 1
        self._throttled_bytes = 0

    def read(self, partition: Partition, want: Wanted, max_bytes: int, *, min_one_batch: bool) -> PartitionRead:
        name, throttle, leader = partition.name, self._host.leader_throttle, partition.leader
        self._throttled = (
            throttle.covers(name.topic, name.partition) and leader is not None and self._replica_id not in leader.isr
        )
        if self._throttled and throttle.is_used_up(self._host.now_ms()):
            max_bytes, min_one_batch = 0, False
        fetch = FollowerFetch(
            self._replica_id,
            self._broker_epoch,
            want.fetch_offset,
            max_bytes,
            want.current_leader_epoch,
            want.last_fetched_epoch,
            want.follower_log_start_offset,
        )
        return partition.read_by_follower(fetch, min_one_batch=min_one_batch, first=self._passes == 1)

    def took(self, size: int) -> None:
        if self._throttled:
            self._throttled_bytes += size

    def watch(self, partition: Partition) -> Purgatory:
        return partition.follower_fetches

    def is_settled(self, partition: Partition, want: Wanted, found: PartitionRead) -> bool:
        """Not while it might join the in-sync replicas: each of its fetches may be the one that makes it."""
        log, leader = partition.log, partition.leader
        if log is None or leader is None or found.diverging is not None:
            return False
        return want.fetch_offset == log.log_end_offset and self._replica_id in leader.isr

    def at_rest(self, partition: Partition) -> WhenAtRest | None:
        return functools.partial(partition.was_caught_up, self._replica_id)

    def finish(self) -> None:
        if self._throttled_bytes:
            self._host.leader_throttle.take(self._throttled_bytes, self._host.now_ms())
