"""Shell: the part of a hosted partition that is independent of its role: log, high watermark, waiting requests.

`Partition` is a `LocalReplica` with a role. The roles (`roles/`) know the `LocalReplica` and never the `Partition`, so
the modules of this package import each other in one direction only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.core.errors import ErrorCode
from barnabas.core.ids import TopicId, TopicPartition
from barnabas.server.replication.context import ReplicationContext
from barnabas.server.replication.purgatory import COMPLETE_NOW, CommitPurgatory, Purgatory
from barnabas.server.storage.log import Log
from barnabas.server.tiering.values import RemotePartition

FLUSH_EVERY_MESSAGE = 1
"""With flush.messages=1 a record counts as written only after an fsync, at the leader and at followers."""
NEWS_S = 0.05
"""The longest time in seconds that a waiting follower's fetch is held after the high watermark or the log start moved.
Consumers of that follower (KIP-392) and DeleteRecords requests wait for the follower to learn the new value."""


class LocalReplica:
    """The log of one partition on this broker, and the requests that wait for a change of that log.

    `log` is None if the log directory is offline.
    """

    def __init__(
        self, name: TopicPartition, topic_id: TopicId, log: Log | None, context: ReplicationContext, high_watermark: int
    ) -> None:
        """`high_watermark` is the checkpointed value of the previous process, 0 if there is none."""
        self.name = name
        self.topic_id = topic_id
        self.log = log
        self.context = context
        self.traffic = context.traffic.of(name.topic)
        """What the replicas of the topic append and read, counted."""
        self.leader_id = -1
        self.leader_epoch = -1
        self.high_watermark = 0
        if log is not None:  # what lies below the local start was committed when it was copied to the object store
            self.high_watermark = min(max(high_watermark, log.local_log_start_offset), log.log_end_offset)
        self.consumer_fetches = Purgatory()
        """Fetches of consumers; the high watermark wakes them up."""
        self.follower_fetches = Purgatory()
        """Fetches of followers; appends wake them up."""
        self.delayed_deletes = Purgatory()
        """DeleteRecords requests that wait until every replica has deleted the records."""
        self.delayed_produces: CommitPurgatory[ErrorCode] = CommitPurgatory()
        """Produce requests with acks=all that wait for the high watermark."""
        self._progress_events: set[asyncio.Event] = set()
        self._unannounced_bytes = 0
        """Bytes appended since `consumer_fetches` were last notified that the whole log is committed."""

    @contextmanager
    def progress_of_followers(self) -> Iterator[asyncio.Event]:
        """An event that is set whenever the progress of a follower is known anew, within the block."""
        event = asyncio.Event()
        self._progress_events.add(event)
        try:
            yield event
        finally:
            self._progress_events.discard(event)

    def on_progress(self) -> None:
        """The progress of a follower is known anew."""
        for event in self._progress_events:
            event.set()

    @property
    def remote(self) -> RemotePartition:
        """The partition as tiered storage knows it."""
        return RemotePartition(self.topic_id, self.name.partition, self.name.topic)

    @property
    def open_log(self) -> Log:
        """The log of a replica that leads or follows: such a replica always has a log."""
        assert self.log is not None
        return self.log

    def mark_changed(self) -> None:
        """Mark the partition as changed for fetch sessions without waking a waiting fetch: the ISR or the log start
        changed."""
        self.consumer_fetches.mark_changed()
        self.follower_fetches.mark_changed()

    # -- high watermark ------------------------------------------------------------------------------------------------

    @property
    def high_watermark_to_checkpoint(self) -> int:
        """The high watermark for the next process. Records that a truncation removed may reappear after a power
        failure and were never committed, so an unsynced truncation bounds this value."""
        unsynced = None if self.log is None else self.log.unsynced_truncation
        return self.high_watermark if unsynced is None else min(self.high_watermark, unsynced)

    def announce_high_watermark(self, log_end_offset: int) -> None:
        """Notify waiting fetches that the high watermark rose."""
        if self.consumer_fetches:
            self.consumer_fetches.notify(self._unannounced_bytes or COMPLETE_NOW)
        if self.high_watermark >= log_end_offset:
            self._unannounced_bytes = 0
        if self.follower_fetches:
            self.follower_fetches.complete_within(NEWS_S)

    def add_unannounced(self, size: int) -> None:
        """Count appended bytes; `consumer_fetches` are notified of them when the records are committed."""
        self._unannounced_bytes += size

    # -- fsync before acknowledging ------------------------------------------------------------------------------------

    @property
    def must_flush(self) -> bool:
        """Whether flush.messages requires an fsync before the appended records are acknowledged."""
        log = self.log
        return log is not None and log.must_flush

    def flush_if_due(self) -> None:
        """Request an fsync if flush.messages requires one."""
        if self.must_flush and self.log is not None:
            self.context.flush(self.log)

    @property
    def flushes_first(self) -> bool:
        """Whether only synced records count as replicated, which is so with flush.messages=1.

        Committed records then survive a power failure of all brokers at once.
        """
        log = self.log
        return log is not None and log.config.flush_messages <= FLUSH_EVERY_MESSAGE
