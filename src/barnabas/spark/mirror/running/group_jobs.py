"""Shell: checkpoints of groups, and their offsets in the target cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from barnabas.client.admin import AsyncAdmin
from barnabas.client.values import OffsetAndMetadata
from barnabas.core.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.core.telemetry import get_logger
from barnabas.spark.mirror.config.values import PairConfig
from barnabas.spark.mirror.deciding.checkpoints import Checkpoints, GroupTranslation
from barnabas.spark.mirror.deciding.group_offsets import is_consumer_group, may_write, offsets_to_write
from barnabas.spark.mirror.offsets.runs import CopiedRuns
from barnabas.spark.mirror.offsets.sync_store import OffsetSyncStore
from barnabas.spark.mirror.offsets.translation import Translator
from barnabas.spark.mirror.records import (
    Checkpoint,
    decode_checkpoint,
    decode_offset_sync,
    encode_checkpoint,
)
from barnabas.spark.mirror.running.clusters import PairClients
from barnabas.spark.mirror.running.topic_reader import TopicReader

log = get_logger("barnabas.mirror")

T = TypeVar("T")
U = TypeVar("U")
REQUESTS_MAX: Final = 16
"""Groups whose offsets are requested at the same time."""
Offsets = dict[TopicPartition, OffsetAndMetadata]


class SyncedOffsets:
    """The offset syncs of a pair, read from their topic."""

    def __init__(self, reader: TopicReader, *, optional: bool = False) -> None:
        """With `optional`, the topic need not exist."""
        self.store = OffsetSyncStore()
        self._reader = reader
        self._optional = optional

    async def read(self) -> None:
        """Read what is new. Raises KafkaError."""
        try:
            await self._reader.read_new(self._on_record)
        except KafkaError as error:
            if not self._optional or error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return
        self.store.loaded()

    def _on_record(self, key: bytes, value: bytes | None) -> None:
        if value is not None:
            self.store.add(decode_offset_sync(key, value))


class GroupJobs:
    """The jobs of one pair that concern groups."""

    def __init__(
        self, config: PairConfig, clients: PairClients, runs: CopiedRuns, opposite: tuple[PairConfig, CopiedRuns] | None
    ) -> None:
        """`opposite` is the pair in the other direction, and what this process has copied of it."""
        self._config = config
        self._clients = clients
        self._groups: list[str] = []
        self._offsets: dict[str, Offsets] = {}
        self._checkpoints = Checkpoints()
        having = clients.having_syncs(config)
        self._syncs = SyncedOffsets(TopicReader(having.cluster, config.offset_syncs_topic))
        self._is_loaded = False
        self._reverse: SyncedOffsets | None = None
        reverse = None
        if opposite is not None and config.reverse_checkpoints:
            other, other_runs = opposite
            cluster = (clients.target if other.offset_syncs_in_source else clients.source).cluster
            self._reverse = SyncedOffsets(TopicReader(cluster, other.offset_syncs_topic), optional=True)
            reverse = Translator(self._reverse.store, other_runs)
        self._translation = GroupTranslation(config.selection, Translator(self._syncs.store, runs), reverse)

    def committed(self, partition: TopicPartition) -> list[int]:
        """The offsets of a source partition that groups had committed when they were last asked."""
        return [offsets[partition].offset for offsets in self._offsets.values() if partition in offsets]

    async def refresh_groups(self) -> None:
        """Raises KafkaError."""
        listed = await self._clients.source.admin.list_groups()
        found = [group.group_id for group in listed if is_consumer_group(group) and self._config.groups(group.group_id)]
        if found != self._groups:
            log.info("groups to translate", pair=self._config.name, groups=len(found))
        self._groups = found

    async def emit_checkpoints(self) -> None:
        """Raises KafkaError."""
        await self._load()
        await self._read_offsets()
        due: list[Checkpoint] = []
        for group, offsets in self._offsets.items():
            due += self._checkpoints.due(group, offsets, self._translation)
        if due:
            await self._clients.target.write(
                self._config.checkpoints_topic, [encode_checkpoint(found) for found in due]
            )
            self._checkpoints.emitted(due)

    async def sync_groups(self) -> None:
        """Write the translated offsets of groups that have no members in the target cluster. Raises KafkaError."""
        await self._load()
        await self._read_offsets()
        translated = {group: self._translated(group, offsets) for group, offsets in self._offsets.items()}
        groups = [group for group, found in translated.items() if found]
        if not groups:
            return
        described = await self._clients.target.admin.describe_groups(groups)
        for group in groups:
            if may_write(described.get(group)):
                await self._write_group(group, translated[group])

    def _translated(self, group: str, offsets: Offsets) -> dict[TopicPartition, Checkpoint]:
        found = (self._translation.checkpoint(group, partition, offset) for partition, offset in offsets.items())
        return {checkpoint.partition: checkpoint for checkpoint in found if checkpoint is not None}

    async def _write_group(self, group: str, translated: dict[TopicPartition, Checkpoint]) -> None:
        admin = self._clients.target.admin
        present = await group_offsets(admin, group)
        topics = admin.cluster.metadata
        changes = {
            partition: replace(commit, topic_id=topics.topic_id(partition.topic))
            for partition, commit in offsets_to_write(translated, present).items()
        }
        if not changes:
            return
        try:
            outcomes = await admin.alter_group_offsets(group, changes)
        except KafkaError as error:
            outcomes = dict.fromkeys(changes, error)
        errors = [error for error in outcomes.values() if error is not None]
        if errors and errors[0].code is not ErrorCode.UNKNOWN_MEMBER_ID:  # it has members now
            raise KafkaError(errors[0].code, f"the offsets of the group {group} cannot be written: {errors[0]}")

    async def _load(self) -> None:
        """Read the checkpoints once, and what is new of the offset syncs."""
        if not self._is_loaded:
            readable = await self._load_checkpoints()
            self._syncs.store.begin(only_newest=not readable)
            if self._reverse is not None:
                self._reverse.store.begin(only_newest=not readable)
            self._is_loaded = True
        await self._syncs.read()
        if self._reverse is not None:
            await self._reverse.read()

    async def _load_checkpoints(self) -> bool:
        def on_record(key: bytes, value: bytes | None) -> None:
            if value is not None:
                self._checkpoints.loaded(decode_checkpoint(key, value))

        try:
            await TopicReader(self._clients.target.cluster, self._config.checkpoints_topic).read_new(on_record)
        except KafkaError as error:
            if error.retriable and error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            log.warning("the checkpoints cannot be read", pair=self._config.name, reason=str(error))
            return False
        return True

    async def _read_offsets(self) -> None:
        """The committed offsets of all groups in the source cluster. A group that cannot be asked keeps its former
        ones."""

        async def ask(group: str) -> tuple[str, Offsets | None]:
            try:
                return group, await group_offsets(self._clients.source.admin, group)
            except BarnabasError as error:
                log.warning("a group's offsets cannot be read", group=group, reason=str(error))
                return group, self._offsets.get(group)

        answers = await gather_limited(self._groups, ask, REQUESTS_MAX)
        self._offsets = {group: offsets for group, offsets in answers if offsets}


async def group_offsets(admin: AsyncAdmin, group: str) -> Offsets:
    """The committed offsets of a group, without partitions that have an error; empty for an unknown group. Raises
    KafkaError."""
    try:
        found = await admin.list_group_offsets(group)
    except KafkaError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return {}
        raise
    return {tp: offset for tp, offset in found.items() if not isinstance(offset, KafkaError) and offset.offset >= 0}


async def gather_limited(items: Sequence[T], ask: Callable[[T], Awaitable[U]], limit: int) -> list[U]:
    """The answers for all items, of which at most `limit` are asked for at the same time."""
    turns = asyncio.Semaphore(limit)

    async def one(item: T) -> U:
        async with turns:
            return await ask(item)

    return list(await asyncio.gather(*(one(item) for item in items)))
