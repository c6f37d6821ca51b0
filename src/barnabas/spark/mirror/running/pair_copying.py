"""Shell: runs the copier of a pair: starts it with what is to be copied, starts it again when that changes or the
copier fails, and writes offset syncs of what it has copied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from barnabas.client.offsets import list_offsets
from barnabas.client.values import EARLIEST, LATEST, IsolationLevel
from barnabas.core.clock import Clock
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.core.telemetry import get_logger
from barnabas.spark.errors import DataLossError
from barnabas.spark.mirror.config.values import PairConfig
from barnabas.spark.mirror.deciding.lag import LagBoard
from barnabas.spark.mirror.deciding.topics import SeenTopic
from barnabas.spark.mirror.deciding.watching import Loss, LossKind, SourceWatch, lost_ranges
from barnabas.spark.mirror.errors import MirrorDataLossError, MirrorError
from barnabas.spark.mirror.offsets.runs import CopiedRuns, syncs_of
from barnabas.spark.mirror.ports import CopiedRanges, CopyPlan, RecordCopier
from barnabas.spark.mirror.records import OffsetSync, encode_offset_sync
from barnabas.spark.mirror.running.administration import Administration
from barnabas.spark.mirror.running.clusters import PairClients
from barnabas.spark.mirror.running.internal_topics import read_positions

log = get_logger("barnabas.mirror")

STOP_TIMEOUT_S: Final = 30.0
PENDING_SYNCS_MAX: Final = 10_000
"""Offset syncs that are not yet written; the oldest are dropped beyond this number."""
Committed = Callable[[TopicPartition], list[int]]


class PairCopying:
    """The copying of one pair."""

    def __init__(
        self,
        config: PairConfig,
        clients: PairClients,
        administration: Administration,
        copier: RecordCopier,
        runs: CopiedRuns,
        clock: Clock,
    ) -> None:
        self._config = config
        self._clients = clients
        self._administration = administration
        self._copier = copier
        self._clock = clock
        self._watch = SourceWatch()
        self._shape: tuple[tuple[str, str, int], ...] | None = None
        """What the running copier copies: source topic, target topic, partitions. None if none runs."""
        self._loop = asyncio.get_running_loop()
        self._pending: list[OffsetSync] = []
        self.committed: Committed = lambda _: []
        self.board = LagBoard()
        self._runs = runs
        self.losses: list[str] = []
        self.batches = 0
        self.restarts = 0

    # -- the copier ------------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Create what the target cluster lacks, and let the copier copy what is there. Raises BarnabasError,
        MirrorDataLossError if records are lost and the pair is to fail then."""
        changes, source = await self._administration.refresh_topics()
        topics = {name: source[name] for name in changes.copies}
        recreated = {loss.topic for loss in self._report(self._watch.topics_seen(topics.values()))}
        shape = tuple((name, copy, topics[name].partitions) for name, copy in changes.copies.items())
        if shape == self._shape and not recreated:
            return
        await self.stop()
        if shape:
            await self._start(changes.copies, topics, recreated)
        self._shape = shape

    async def _start(self, copies: Mapping[str, str], topics: Mapping[str, SeenTopic], recreated: set[str]) -> None:
        partitions = [TopicPartition(name, index) for name in copies for index in range(topics[name].partitions)]
        known = await read_positions(self._config, self._clients.target.admin)
        positions = {tp: known[tp] for tp in partitions if tp in known}
        positions = await self._checked(positions, recreated)
        plan = CopyPlan(
            source_alias=self._config.source,
            target_alias=self._config.target,
            source_settings=self._config.source_clients.consumer,
            target_settings=self._config.target_clients.producer,
            topics=copies,
            positions=positions,
            offsets_topic=self._config.offsets_topic,
            transactional=self._config.transactional,
            fail_on_data_loss=self._config.fail_on_data_loss,
            provenance_header=self._config.provenance_header,
            checkpoint_dir=_directory(self._config),
            options=self._config.copy_options,
        )
        self.board.started(positions | await self._begins([tp for tp in partitions if tp not in positions]))
        log.info("copying", pair=self._config.name, topics=len(copies), partitions=len(partitions))
        await asyncio.to_thread(self._copier.start, plan, self._on_copied_in_thread)

    async def _checked(self, positions: Mapping[TopicPartition, int], recreated: set[str]) -> dict[TopicPartition, int]:
        """The positions, without those that the source logs do not have any more."""
        starts, ends = await self._source_offsets(positions)
        losses = self._report(lost_ranges(positions, starts, ends))
        gone = {TopicPartition(loss.topic, loss.partition) for loss in losses}
        return {
            tp: starts.get(tp, 0) if tp in gone or tp.topic in recreated else position
            for tp, position in positions.items()
        }

    async def _begins(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        starts, ends = await self._source_offsets(dict.fromkeys(partitions, 0))
        latest = self._config.source_clients.consumer["auto.offset.reset"].lower() == "latest"
        return ends if latest else starts

    async def stop(self) -> None:
        """Stop the copier, and write the offset syncs of its last micro-batches."""
        self._shape = None
        await asyncio.to_thread(self._copier.stop, STOP_TIMEOUT_S)
        await asyncio.sleep(0)  # callbacks of the copier's thread that are due
        await self.write_syncs()

    async def check(self) -> None:
        """Raises the copier's failure, after which `refresh` starts it again; MirrorDataLossError for a data loss."""
        if self._shape is None:
            return
        failure = self._copier.failure()
        if failure is None:
            return
        self.restarts += 1
        await self.stop()
        if isinstance(failure, DataLossError) and self._config.fail_on_data_loss:
            raise _fatal(self._config.name, str(failure)) from failure
        raise MirrorError(f"the copier of {self._config.name} failed and is started again: {failure}") from failure

    # -- what was copied -------------------------------------------------------------------------------------------

    def _on_copied_in_thread(self, batch: CopiedRanges) -> None:
        self._loop.call_soon_threadsafe(self._on_copied, batch)

    def _on_copied(self, batch: CopiedRanges) -> None:
        self.batches += 1
        self.board.copied(batch)
        for copied in batch.ranges:
            self._runs.add(copied)
            if self._config.offset_syncs_enabled:
                self._pending += syncs_of(copied, self.committed(copied.partition))
        del self._pending[:-PENDING_SYNCS_MAX]

    async def write_syncs(self) -> None:
        """Write the offset syncs of what was copied. Raises KafkaError; then they are written next time."""
        if not self._pending:
            return
        written = list(self._pending)
        having = self._clients.having_syncs(self._config)
        await having.write(self._config.offset_syncs_topic, [encode_offset_sync(sync) for sync in written])
        done = set(written)
        self._pending = [sync for sync in self._pending if sync not in done]

    # -- lag and loss ----------------------------------------------------------------------------------------------

    async def measure(self) -> None:
        """Compare the positions with the source logs. Raises KafkaError, and MirrorDataLossError as `refresh` does."""
        positions = self.board.positions()
        starts, ends = await self._source_offsets(positions)
        self.board.ends_seen(ends, self._clock.now_ms())
        losses = [loss for loss in lost_ranges(positions, starts, ends) if loss.kind is not LossKind.TRUNCATED]
        if self._config.fail_on_data_loss:
            self._report(losses)

    async def _source_offsets(
        self, positions: Mapping[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        cluster = self._clients.source.cluster
        level = IsolationLevel.parse(self._config.source_clients.consumer["isolation.level"])
        found = []
        for which in (EARLIEST, LATEST):
            answers = await list_offsets(cluster, dict.fromkeys(positions, which), isolation=level) if positions else {}
            found.append({tp: at.offset for tp, at in answers.items() if not isinstance(at, KafkaError)})
        return found[0], found[1]

    def _report(self, losses: list[Loss]) -> list[Loss]:
        """Log the losses, or raise MirrorDataLossError (`on.data.loss=fail`)."""
        for loss in losses:
            if self._config.fail_on_data_loss:
                raise _fatal(self._config.name, str(loss))
            log.error("records are lost", pair=self._config.name, reason=str(loss))
            self.losses.append(str(loss))
        return losses


def _fatal(pair: str, what: str) -> MirrorDataLossError:
    return MirrorDataLossError(
        f"{pair}: {what}. Set {pair}.on.data.loss=report to go on with what the source cluster has now, and decide what"
        " to do with the copy"
    )


def _directory(config: PairConfig) -> str | None:
    location = config.storage_location.rstrip("/")
    return f"{location}/{config.source}-to-{config.target}" if location else None
