"""Shell: follows `__remote_log_metadata`, and writes events to it.

A broker reads those partitions of the topic that have the events of the partitions that it hosts, from their start.
What it has read is the only source of its `RemoteLog`s: an event that this broker writes changes nothing until it has
come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from msgspec import Struct, field

from barnabas.core.backoff import Backoff
from barnabas.core.rng import Rng
from barnabas.core.telemetry import get_logger
from barnabas.server.tiering.errors import RemoteMetadataError, RemoteStorageError
from barnabas.server.tiering.ports import EventBatch, EventTopic
from barnabas.server.tiering.records import decode_event, encode_event, metadata_partition
from barnabas.server.tiering.remote_log import RemoteLog
from barnabas.server.tiering.values import (
    PartitionDeleteState,
    RemoteLogEvent,
    RemotePartition,
    partition_of,
)

log = get_logger("barnabas.server.tiering")


class _Followed(Struct):
    """One partition of the topic that this broker reads."""

    number: int
    position: int = 0
    ready_at: int | None = None
    """The high watermark of the first read. What was committed before has been applied when `position` reaches it."""
    logs: dict[RemotePartition, RemoteLog] = field(default_factory=dict)
    writing: int = 0
    """The number of writes that wait for their event."""
    outcomes: dict[int, bool] = field(default_factory=dict)
    """Whether the event at each offset fitted, while there are writes."""
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    task: asyncio.Task[None] | None = None

    @property
    def is_ready(self) -> bool:
        return self.ready_at is not None and self.position >= self.ready_at


class RemoteEvents:
    """Implements `RemoteLogMetadata` over an `EventTopic`."""

    def __init__(self, topic: EventTopic, rng: Rng, *, timeout_ms: int = 60_000) -> None:
        self._topic = topic
        self._rng = rng
        self._timeout_s = timeout_ms / 1000
        """How long a write waits for its event to come back."""
        self._backoff = Backoff(100, 5_000)
        self._count: int | None = None
        self._wanted: set[RemotePartition] = set()
        self._led: frozenset[int] = frozenset()
        self._wanted_changed = asyncio.Event()
        self._followed: dict[int, _Followed] = {}

    async def run(self) -> None:
        """Read until cancelled."""
        failures = 0
        async with asyncio.TaskGroup() as group:
            while True:
                await self._wanted_changed.wait()
                try:
                    if (self._wanted or self._led) and self._count is None:
                        self._count = await self._topic.partition_count()
                except RemoteStorageError as error:
                    emit = log.warning if failures else log.info
                    emit("the topic of remote segments is not available", reason=str(error))
                    await asyncio.sleep(self._backoff.delay_ms(failures, self._rng) / 1000)
                    failures += 1
                    continue
                failures = 0
                self._wanted_changed.clear()
                self._settle(group)

    def follow(self, partitions: Iterable[RemotePartition], led: Iterable[int] = ()) -> None:
        """Read the events of exactly these partitions, which this broker hosts, and all events in the partitions `led`
        of the topic: the broker that leads such a partition cleans up after topics that are deleted."""
        self._wanted = set(partitions)
        self._led = frozenset(led)
        self._wanted_changed.set()

    def _settle(self, group: asyncio.TaskGroup) -> None:
        """Begin to read what is needed, and drop what is not needed any more."""
        needed: set[int] = set()
        if self._count:
            needed = {metadata_partition(partition, self._count) for partition in self._wanted}
            needed |= {number for number in self._led if number < self._count}
        for number in sorted(self._followed.keys() - needed):
            task = self._followed.pop(number).task
            assert task is not None, "a followed partition has a task"
            task.cancel()
        for number in sorted(needed - self._followed.keys()):
            followed = self._followed[number] = _Followed(number)
            followed.task = group.create_task(self._read(followed))

    async def _read(self, followed: _Followed) -> None:
        failures = 0
        while True:
            try:
                batch = await self._topic.read(followed.number, followed.position, wait=followed.ready_at is not None)
            except RemoteStorageError as error:
                emit = log.warning if failures else log.info  # the leader has just changed
                emit("events of remote segments cannot be read", partition=followed.number, reason=str(error))
                await asyncio.sleep(self._backoff.delay_ms(failures, self._rng) / 1000)
                failures += 1
                continue
            failures = 0
            self._apply(followed, batch)
            async with followed.changed:
                followed.changed.notify_all()

    def _apply(self, followed: _Followed, batch: EventBatch) -> None:
        for offset, value in batch.records:
            if offset < followed.position:
                continue  # a batch is read as a whole, from its first record on
            fits = False
            try:
                event = decode_event(value)
                fits = self._apply_event(followed, event)
            except RemoteMetadataError as error:
                log.error(
                    "a record of the topic of remote segments was skipped",
                    partition=followed.number,
                    offset=offset,
                    reason=str(error),
                )
            if followed.writing:
                followed.outcomes[offset] = fits
        followed.position = max(followed.position, batch.next_offset)
        if followed.ready_at is None:
            followed.ready_at = batch.high_watermark

    def _apply_event(self, followed: _Followed, event: RemoteLogEvent) -> bool:
        partition = partition_of(event)
        remote = followed.logs.setdefault(partition, RemoteLog())
        fits = remote.apply(event)
        if remote.delete_state is PartitionDeleteState.DELETE_PARTITION_FINISHED and not remote.segments():
            del followed.logs[partition]  # its topic is gone, and the topic's id never comes back
        return fits

    def remote_log(self, partition: RemotePartition) -> RemoteLog:
        """The state of a partition; see `RemoteLogMetadata`."""
        followed = self._of(partition)
        if followed is None or not followed.is_ready:
            raise RemoteStorageError(f"The remote segments of {partition} are not known yet; they are being read.")
        return followed.logs.setdefault(partition, RemoteLog())

    def known(self, number: int) -> dict[RemotePartition, RemoteLog]:
        """All partitions with events in one partition of the topic; empty until its committed events are read."""
        followed = self._followed.get(number)
        return dict(followed.logs) if followed is not None and followed.is_ready else {}

    @property
    def event_count(self) -> int:
        """The number of events that have been read, as far as they are in the partitions that are followed."""
        return sum(followed.position for followed in self._followed.values())

    def _of(self, partition: RemotePartition) -> _Followed | None:
        return None if self._count is None else self._followed.get(metadata_partition(partition, self._count))

    async def write(self, event: RemoteLogEvent) -> bool:
        """Write an event and wait until it has come back; see `RemoteLogMetadata`."""
        partition = partition_of(event)
        followed = self._of(partition)
        if followed is None:
            raise RemoteStorageError(f"An event of {partition} was not written: this broker does not host it.")
        followed.writing += 1
        try:
            offset = await self._topic.append(followed.number, encode_event(event))
            async with asyncio.timeout(self._timeout_s), followed.changed:
                await followed.changed.wait_for(lambda: followed.position > offset)
            return followed.outcomes[offset]
        except TimeoutError:
            raise RemoteStorageError(
                f"An event of {partition} was written and has not come back for {self._timeout_s:.0f} s."
            ) from None
        finally:
            followed.writing -= 1
            if not followed.writing:
                followed.outcomes.clear()
