"""Shell: runs the copier of a pair: starts it with what is to be copied, starts it again when that changes or the
copier fails, and writes offset syncs of what it has copied.

The copier itself notices lost records and topics that were created anew, because it knows the positions.
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
from barnabas.spark.mirror.config.values import PairConfig
from barnabas.spark.mirror.deciding.lag import LagBoard
from barnabas.spark.mirror.deciding.topics import SeenTopic
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
"""The upstream offsets that groups have committed in a source partition."""


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
        self._runs = runs
        self._shape: tuple[tuple[str, str, int], ...] | None = None
        """What the running copier copies: source topic, target topic, partitions. None if none runs."""
        self._loop = asyncio.get_running_loop()
        self._pending: list[OffsetSync] = []
        self.committed: Committed = lambda _: []
        self.board = LagBoard()
        self.batches = 0
        self.restarts = 0

    # -- the copier ------------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Create what the target cluster lacks, and let the copier copy what is there. Raises BarnabasError."""
        changes, source = await self._administration.refresh_topics()
        shape = tuple((name, copy, source[name].partitions) for name, copy in changes.copies.items())
        if shape == self._shape:
            return
        if self._shape is not None and (failure := self._copier.failure()) is not None:
            log.warning("the copier has failed, and is started with other topics", reason=str(failure))
        await self.stop()
        if shape:
            await self._start(changes.copies, source)
        self._shape = shape

    async def _start(self, copies: Mapping[str, str], source: Mapping[str, SeenTopic]) -> None:
        config = self._config
        partitions = [TopicPartition(name, index) for name in copies for index in range(source[name].partitions)]
        known = await read_positions(config, self._clients.target.admin)
        positions = {tp: known[tp] for tp in partitions if tp in known}
        self.board.started(positions | await self._first_positions([tp for tp in partitions if tp not in positions]))
        plan = CopyPlan(
            source_alias=config.source,
            target_alias=config.target,
            source_settings=config.source_clients.consumer,
            target_settings=config.target_clients.producer,
            topics=copies,
            positions=positions,
            offsets_topic=config.offsets_topic,
            transactional=config.transactional,
            fail_on_data_loss=config.fail_on_data_loss,
            provenance_header=config.provenance_header,
            options=config.copy_options,
        )
        log.info("copying", pair=config.name, topics=len(copies), partitions=len(partitions))
        await asyncio.to_thread(self._copier.start, plan, self._on_copied_in_thread)

    async def _first_positions(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        latest = self._config.source_clients.consumer["auto.offset.reset"].lower() == "latest"
        return await self._source_offsets(partitions, LATEST if latest else EARLIEST)

    async def stop(self) -> None:
        """Stop the copier, and write the offset syncs of its last micro-batches."""
        self._shape = None
        await asyncio.to_thread(self._copier.stop, STOP_TIMEOUT_S)
        await asyncio.sleep(0)  # callbacks of the copier's thread that are due
        await self.write_syncs()

    async def check(self) -> None:
        """Raises the copier's failure, after which `refresh` starts it again; a MirrorDataLossError as it is."""
        if self._shape is None:
            return
        failure = self._copier.failure()
        if failure is None:
            return
        self.restarts += 1
        await self.stop()
        if isinstance(failure, MirrorDataLossError):
            raise failure
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

    # -- lag -------------------------------------------------------------------------------------------------------

    async def measure(self) -> None:
        """Ask for the ends of the source logs, for the lag. Raises KafkaError."""
        ends = await self._source_offsets(list(self.board.positions()), LATEST)
        self.board.ends_seen(ends, self._clock.now_ms())

    async def _source_offsets(self, partitions: list[TopicPartition], which: int) -> dict[TopicPartition, int]:
        """The offsets of source partitions, without those of partitions that do not answer."""
        if not partitions:
            return {}
        level = IsolationLevel.parse(self._config.source_clients.consumer["isolation.level"])
        cluster = self._clients.source.cluster
        answers = await list_offsets(cluster, dict.fromkeys(partitions, which), isolation=level)
        return {tp: at.offset for tp, at in answers.items() if not isinstance(at, KafkaError)}
