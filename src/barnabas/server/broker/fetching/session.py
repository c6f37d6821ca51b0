"""Machine: one incremental fetch session (KIP-227): its partitions, and the marks of those that must be read next.

A client may fetch from a thousand partitions, most of them without new records, many times per second. A request of a
session therefore reads only the marked partitions of the session. A partition is marked if

- the client adds the partition or changes its fetch offset,
- the last read of the partition returned data or did not reach the end of the log,
- the partition has changed since its last read: an append, a new high watermark, log start offset or leader.

To notice changes, a session registers a watcher in the purgatory of each partition that it has read. While no request
of the session is being served, a watcher removes itself after its first notification, because the partition is marked
from then on. The session of a client that has disconnected therefore adds no cost to further appends.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Final
from uuid import UUID

from msgspec import Struct

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.fetch import PartitionData
from barnabas.server.replication.purgatory import COMPLETE_NOW, DelayedOperation, Purgatory
from barnabas.server.replication.rules.leader import NEVER_MS

PartitionKey = tuple[str | UUID, int]
"""Topic name or topic id, and partition index. A session uses either names or ids for all its partitions."""

OnCaughtUp = Callable[[int], None]
"""Called with the time (`ReplicationContext.now_ms`) at which a follower had all records of a partition."""

UNKNOWN: Final = -1
"""Stands for an offset that the client does not know, so that the next response must contain the partition."""
_EPOCH_MAX: Final = 0x7FFFFFFF


class RequestedPartition(Struct):
    """One partition of a Fetch request, with the request's field names."""

    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    follower_log_start_offset: int = -1


class CachedPartition:
    """One partition of a session (Kafka's FetchSession.CachedPartition), and its entry in a purgatory."""

    __slots__ = ("_session", "high_watermark", "key", "log_start_offset", "on_caught_up", "purgatory", "requested")

    def __init__(self, session: FetchSession, key: PartitionKey, requested: RequestedPartition) -> None:
        self._session = session
        self.key = key
        self.requested = requested
        self.high_watermark = UNKNOWN
        """The high watermark of the last response to the client."""
        self.log_start_offset = UNKNOWN
        """The log start offset of the last response to the client."""
        self.purgatory: Purgatory | None = None
        """The purgatory that holds this entry; None if the session is not notified of changes."""
        self.on_caught_up: OnCaughtUp | None = None

    # ---- PurgatoryWatcher

    def record_caught_up(self) -> None:
        """Record that the follower was caught up at its last request, unless the partition is marked: a follower may
        lack records of a marked partition."""
        if self.on_caught_up is not None and not self._session.is_marked(self.key):
            self.on_caught_up(self._session.last_request_ms)

    def mark_changed(self) -> None:
        self.record_caught_up()
        self._session.mark(self.key)
        if not self._session.requests_in_progress:
            self.unwatch()

    def on_bytes(self, count: int) -> None:
        self.mark_changed()
        self._session.operation.on_bytes(count)

    def complete_by(self, deadline: float) -> None:
        self.mark_changed()
        self._session.operation.complete_by(deadline)

    # ---- for the session

    def watch(self, purgatory: Purgatory, on_caught_up: OnCaughtUp | None) -> None:
        """Register in `purgatory`, and leave the purgatory of a previous replica of the partition."""
        if self.purgatory is not purgatory:
            self.unwatch()
            self.purgatory = purgatory
            self.on_caught_up = on_caught_up
            purgatory.add(self)

    def unwatch(self) -> None:
        """Leave the purgatory."""
        if self.purgatory is not None:
            self.record_caught_up()
            self.purgatory.discard(self)
            self.purgatory = self.on_caught_up = None

    def must_send(self, data: PartitionData) -> bool:
        """Whether an incremental response must contain `data`; stores the offsets of `data` as known to the client."""
        error = data.error_code != ErrorCode.NONE
        send = (
            bool(data.records)
            or error
            or data.diverging_epoch.epoch >= 0
            or data.preferred_read_replica >= 0
            or self.high_watermark != data.high_watermark
            or self.log_start_offset != data.log_start_offset
        )
        self.remember(data)
        return send

    def remember(self, data: PartitionData) -> None:
        """Store the offsets of `data` as known to the client. After an error the next success must be sent, too."""
        self.log_start_offset = data.log_start_offset
        self.high_watermark = data.high_watermark if data.error_code == ErrorCode.NONE else UNKNOWN


class FetchSession:
    """The state that the broker keeps for one client between its Fetch requests. It ends with `close`."""

    def __init__(
        self,
        session_id: int,
        partitions: Iterable[tuple[PartitionKey, RequestedPartition]],
        now_ms: int,
        *,
        uses_topic_ids: bool,
        privileged: bool,
    ) -> None:
        self.session_id = session_id
        self.epoch = 1
        """The epoch that the next request must carry."""
        self.uses_topic_ids = uses_topic_ids
        self.privileged = privileged
        """Whether the session belongs to a follower."""
        self.created_ms = now_ms
        self.used_ms = now_ms
        self.partitions: dict[PartitionKey, CachedPartition] = {
            key: CachedPartition(self, key, requested) for key, requested in partitions
        }
        self._marked: dict[PartitionKey, None] = dict.fromkeys(self.partitions)
        """The keys of the marked partitions, in the order in which they are read. A partition that is not in a
        purgatory is always marked."""
        self.operation = DelayedOperation()
        """The wait of the request in progress. A change of a partition completes the wait, if the change came after the
        session had begun to read the marked partitions for this request."""
        self.requests_in_progress = 0
        self.last_request_ms = NEVER_MS
        """The time at which the session's last request arrived, by the clock of `ReplicationContext.now_ms`."""
        self.closed = False
        self._reader: Hashable = None

    # ---- one request

    def update(
        self,
        requested: Iterable[tuple[PartitionKey, RequestedPartition]],
        forgotten: Iterable[PartitionKey],
        now_ms: int,
    ) -> None:
        """Apply the partitions that a request adds, changes and removes, and expect the next epoch."""
        for key, wanted in requested:
            partition = self.partitions.get(key)
            if partition is None:
                self.partitions[key] = CachedPartition(self, key, wanted)
            else:
                if not _accepted_response(partition.requested, wanted):
                    partition.high_watermark = partition.log_start_offset = UNKNOWN
                partition.requested = wanted
            self._marked[key] = None
        for key in forgotten:
            partition = self.partitions.get(key)
            if partition is not None:
                partition.unwatch()
                del self.partitions[key]
            self._marked.pop(key, None)
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1
        self.used_ms = now_ms

    def on_request(self, reader: Hashable, now_ms: int, *, reads_all: bool) -> None:
        """A request of the session begins to read. `reader` is the request's `FetchParams.reader`.

        All partitions are marked if `reads_all`, or if the reader differs from the last one: a read_uncommitted
        consumer can read records after a read_committed one has reached its end.
        """
        if reads_all or reader != self._reader:
            self._marked.clear()
            self._marked.update(dict.fromkeys(self.partitions))
        if not reads_all:
            self.last_request_ms = now_ms
        self._reader = reader

    def begin_pass(self) -> None:
        """Begin a pass over the marked partitions. The wait after the pass counts all changes since this call."""
        self.operation = DelayedOperation()

    def marked(self) -> list[tuple[PartitionKey, RequestedPartition]]:
        """The marked partitions, in the order in which they are to be read."""
        partitions = self.partitions
        return [(key, found.requested) for key in self._marked if (found := partitions.get(key)) is not None]

    def on_read(
        self,
        key: PartitionKey,
        requested: RequestedPartition,
        purgatory: Purgatory,
        on_caught_up: OnCaughtUp | None,
        *,
        at_end: bool,
    ) -> None:
        """The partition `key` was read: register in its purgatory, and unmark the partition if it was read `at_end`.

        Does nothing if the session has closed, or if another request of the session has changed `requested`.
        """
        partition = self.partitions.get(key)
        if partition is not None and partition.requested is requested and not self.closed:
            partition.watch(purgatory, on_caught_up)
            if at_end:
                self._marked.pop(key, None)

    async def wait(self, missing: int, deadline: float) -> None:
        """Wait until about `missing` bytes have been added since the latest pass began, or until the deadline."""
        if not self.closed:
            await self.operation.wait(missing, deadline)

    def has_new_offsets(self, key: PartitionKey, data: PartitionData) -> bool:
        """Whether `data` has another high watermark or log start offset than the last response to the client."""
        partition = self.partitions.get(key)
        if partition is None or partition.high_watermark == UNKNOWN:
            return False
        return partition.high_watermark != data.high_watermark or partition.log_start_offset != data.log_start_offset

    def must_send(self, key: PartitionKey, data: PartitionData) -> bool:
        """Whether the response must contain `data`, the result of reading `key`."""
        partition = self.partitions.get(key)
        if partition is None:  # removed by another request of the session
            return True
        send = partition.must_send(data)
        if data.records:
            # A partition that returned data goes to the end, so that the response limit starves no partition.
            del self.partitions[key]
            self.partitions[key] = partition
            self._marked.pop(key, None)
            self._marked[key] = None
        return send

    def on_replaced(self, keys: Iterable[PartitionKey]) -> None:
        """The response with these partitions was replaced by an empty one, because of a quota: the next response must
        contain them."""
        for key in keys:
            partition = self.partitions.get(key)
            if partition is not None:
                partition.high_watermark = partition.log_start_offset = UNKNOWN
                self.mark(key)

    # ---- marks

    def is_marked(self, key: PartitionKey) -> bool:
        return key in self._marked

    def mark(self, key: PartitionKey) -> None:
        self._marked.setdefault(key)

    def close(self) -> None:
        """End the session, because the client has closed it or the cache needs its slot. A request of the session that
        waits for records is completed at once."""
        for partition in self.partitions.values():
            partition.unwatch()
        self.closed = True
        self.operation.on_bytes(COMPLETE_NOW)


def _accepted_response(before: RequestedPartition, now: RequestedPartition) -> bool:
    """Whether the client has processed the last response for a partition.

    A follower that has truncated its log, or that fetches in another leader epoch by now, has discarded the response.
    If the next response did not contain the offsets again, the follower's high watermark would not advance until the
    next append.
    """
    return now.current_leader_epoch == before.current_leader_epoch and (
        (now.last_fetched_epoch, now.fetch_offset) >= (before.last_fetched_epoch, before.fetch_offset)
    )
