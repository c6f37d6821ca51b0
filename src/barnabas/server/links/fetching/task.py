"""Shell: one mirror partition that this broker leads: carries out the steps of `machine.py`, one after the other.

A task lives for one leadership. Steps that wait for the source, or for other replicas, end as soon as the operator
wants something else, so that a failover does not wait for a source that is gone. Everything that changes the log
happens between two awaits, and only while the state allows it: a response that arrives after a stop is discarded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Executor
from typing import Any, Final, assert_never

from msgspec import Struct

from barnabas.core.clock import Clock
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.rng import Rng
from barnabas.core.telemetry import get_logger
from barnabas.server.links.fetching import leader
from barnabas.server.links.fetching import machine as m
from barnabas.server.links.fetching.fetched import ContradictsLog, plan_append
from barnabas.server.links.fetching.fetcher import SourceFetcher
from barnabas.server.links.fetching.lag import MirrorTimeLag
from barnabas.server.links.fetching.link import ActiveLink, FoundSource
from barnabas.server.links.fetching.ports import (
    MirrorController,
    MirrorPartition,
    MirrorStates,
    OppositeMirrors,
    SourceFetch,
    SourceFetched,
    SourceKey,
)
from barnabas.server.links.fetching.states import MirrorState
from barnabas.server.links.fetching.tails import save_tail
from barnabas.server.links.fetching.values import NO_OFFSET, UNKNOWN_POSITION, MirrorMode, MirrorReport
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.rules.follower import divergence_point
from barnabas.server.storage.errors import StorageError

log = get_logger("barnabas.server.replication")

_EPOCH_WAIT_S: Final = 5.0
"""How long a raised leader epoch may take to arrive with an image before it is requested again."""
_COMMIT_WAIT_S: Final = 30.0
_GONE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_REFUSED: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUEST,
    }
)
"""Errors that an operator has to mend: the partition becomes FAILED."""


class TaskPorts(Struct, frozen=True):
    """What all tasks of a broker share."""

    states: MirrorStates
    controller: MirrorController
    opposite: OppositeMirrors
    disk: Executor
    clock: Clock
    rng: Rng


class MirrorTask:
    """The leader's side of one mirror partition. Implements `FetchedPartition`."""

    def __init__(self, partition: Partition, link: ActiveLink, mode: MirrorMode, ports: TaskPorts) -> None:
        config = partition.open_log.config
        self.link = link
        self.leader_epoch = partition.leader_epoch
        self.name = MirrorPartition(link.name, partition.name.topic, partition.topic_id, partition.name.partition)
        self._partition = partition
        self._ports = ports
        self._mirror = m.elected(partition.leader_epoch, mode, recovers=config.mirror_support_unclean_leader_election)
        self._changed = asyncio.Event()
        """Set when the next step may be another one."""
        self._source: FoundSource | None = None
        """Where the partition is fetched from, if it is."""
        self._source_error: KafkaError | None = None
        self._stale_since = -1.0
        """The source's metadata must be newer than this (seconds of the loop's clock)."""
        self._source_watermark = NO_OFFSET
        self._lag = MirrorTimeLag()
        self._last_fetch_ms = NO_OFFSET
        self._skipped = 0
        self._fetcher: SourceFetcher | None = None
        """The fetcher that this partition is added to."""

    @property
    def key(self) -> SourceKey:
        return self.name.topic, self.name.partition

    @property
    def state(self) -> MirrorState | None:
        return self._mirror.state

    def belongs_to(self, partition: Partition) -> bool:
        """Whether this task is of the present leadership of `partition`."""
        return self._partition is partition and self.leader_epoch == partition.leader_epoch

    def set_mode(self, mode: MirrorMode, *, recovers: bool) -> None:
        """The topic's configs changed."""
        self._mirror = m.with_recovery(self._mirror, recovers=recovers)
        self._become(m.on_mode(self._mirror, mode, self._partition.open_log))

    def report(self) -> MirrorReport:
        mirror, watermark = self._mirror, self._partition.high_watermark
        current = mirror.current
        known, answered_ms = self._source_watermark, self._answered_ms()
        lag = NO_OFFSET if known == NO_OFFSET else max(known - watermark, 0)
        return MirrorReport(
            self.link.name,
            self.name.topic,
            self.name.partition,
            None if current is None else current.state,
            UNKNOWN_POSITION if current is None else current.position,
            known,
            lag,
            self._bytes_of(lag),
            self._lag.milliseconds(watermark, answered_ms, self._ports.clock.now_ms()),
            answered_ms,
            self._skipped,
            mirror.trouble or ("" if current is None else current.reason),
        )

    def _bytes_of(self, records: int) -> int:
        """The bytes of so many records of the source, if they are as large as those here; -1 if that is unknown."""
        target = self._partition.log
        here = 0 if target is None else target.log_end_offset - target.log_start_offset
        if records <= 0 or target is None or here == 0:
            return records if records <= 0 else NO_OFFSET
        return records * target.size_bytes // here

    async def run(self) -> None:
        """Carry out steps until cancelled, which happens when the leadership ends."""
        while self._partition.log is not None:
            self._changed.clear()
            step = m.next_step(self._mirror, self._partition.open_log, self._now_ms())
            try:
                await self._do(step)
            except KafkaError as error:
                self._on_error(error, from_source=isinstance(step, m.CompareLogs | m.FindSource | m.FetchSource))

    # -- steps -------------------------------------------------------------------------------------------------------

    async def _do(self, step: m.Step) -> None:
        partition, ports, target = self._partition, self._ports, self._partition.open_log
        match step:
            case m.LoadState():
                stored = await ports.states.read(self.name, self.leader_epoch)
                self._become(m.on_loaded(self._mirror, stored, target))
            case m.StoreState():
                await ports.states.write(self.name, step.state)
                self._become(m.on_stored(self._mirror, step.state))
            case m.CompareLogs():
                await self._unless_changed(self._compare())
            case m.FindSource():
                await self._unless_changed(self._find())
            case m.SaveTail():
                await save_tail(target, step.offset, ports.disk)
                self._become(m.on_tail_saved(self._mirror))
            case m.RaiseLeaderEpoch():
                await ports.controller.raise_leader_epoch(self.name, self.leader_epoch, step.minimum)
                await asyncio.sleep(_EPOCH_WAIT_S)  # the image with the new epoch cancels this task
            case m.TruncateMirror():
                leader.truncate(partition, step.offset, ports.clock.now_ms())
            case m.AwaitReplicas():
                await self._unless_changed(self._converge(step.offset))
            case m.FetchSource():
                await self._unless_changed(self._fetch())
            case m.DropFetcher():
                self._become(m.on_drained(self._mirror))  # responses are discarded since the state changed
            case m.RaiseProducerIds():
                largest = leader.largest_producer_id(partition)
                if largest >= 0:
                    await ports.controller.raise_producer_ids(largest)
                self._become(m.on_barrier(self._mirror))
            case m.AbortTransactions():
                await self._abort()
            case m.Retry():
                self._stale_since = asyncio.get_running_loop().time()
                self._become(m.on_retry(self._mirror))
            case m.Idle():
                await self._wait_changed(step.until_ms)
            case _:
                assert_never(step)

    async def _compare(self) -> None:
        partition, target, now_ms = self._partition, self._partition.open_log, self._ports.clock.now_ms()
        found = await self._find_source()
        bounds = await found.source.bounds(found.node_id, self.key, found.leader_epoch)
        _check(bounds.error)
        position = None
        if target.log_end_offset > target.log_start_offset:
            position = await self._ports.opposite.stopped_position(found.source, self.name)
        elif bounds.log_start_offset > target.log_end_offset:
            leader.restart_at(partition, bounds.log_start_offset, now_ms)
        comparison = m.LogComparison(found.topic_id, bounds.log_start_offset, position)
        self._become(m.on_compared(self._mirror, comparison, target, self._now_ms(), self._ports.rng))

    async def _find(self) -> None:
        found = await self._find_source()
        self._on_found(found)

    async def _converge(self, offset: int) -> None:
        partition = self._partition
        with partition.progress_of_followers() as progress:
            while not leader.has_converged(partition, offset):
                progress.clear()
                self._mirror = m.waiting(self._mirror, "not every replica has truncated its log to the source's yet.")
                await progress.wait()
        self._become(m.on_converged(self._mirror, partition.open_log))

    async def _abort(self) -> None:
        partition = self._partition
        aborted = leader.abort_open_transactions(partition, self._ports.clock.now_ms())
        if aborted:
            log.info("open transactions of a mirror are aborted", partition=str(partition.name), count=aborted)
        deadline = asyncio.get_running_loop().time() + _COMMIT_WAIT_S
        _check(await partition.wait_committed(partition.open_log.log_end_offset, deadline))
        self._become(m.on_aborted(self._mirror))

    # -- the source --------------------------------------------------------------------------------------------------

    async def _find_source(self) -> FoundSource:
        """The source's leader of the partition. Raises KafkaError."""
        return await self.link.find(self.key, newer_than=self._stale_since)

    def on_metadata(self) -> None:
        """The link has newer metadata of the source: has the topic been created again, has its leader moved?"""
        source = self._source
        if source is None:
            return
        found = self.link.known(self.key)
        if found is None or (found.node_id, found.leader_epoch, found.topic_id) != (
            source.node_id,
            source.leader_epoch,
            source.topic_id,
        ):
            self._changed.set()

    def on_reopened(self) -> None:
        """The link has another definition."""
        self._become(m.on_reopened(self._mirror))

    def _on_found(self, found: FoundSource) -> None:
        epoch, topic_id = found.leader_epoch, found.topic_id
        self._become(m.on_source_found(self._mirror, epoch, topic_id, self._now_ms(), self._ports.rng))

    async def _fetch(self) -> None:
        """Fetch until the state changes or the source rejects the fetch."""
        found = await self._find_source()
        self._on_found(found)
        if self._mirror.state is not MirrorState.MIRRORING or not self._mirror.is_stored:
            return
        leader.forget_empty_epochs(self._partition, self._ports.clock.now_ms())
        if await self._has_diverged(found):
            return
        fetcher = self.link.fetcher(found.node_id, self.key)
        self._source, self._source_error = found, None
        self._fetcher = fetcher
        fetcher.add(self)
        try:
            await asyncio.get_running_loop().create_future()  # `_unless_changed` cancels this
        finally:
            self._source = None
            self._fetcher = None
            fetcher.remove(self)

    async def _has_diverged(self, found: FoundSource) -> bool:
        """Compare the bounds and the last leader epoch with the source's. A source before Kafka 2.7 reports a
        divergence in no other way."""
        target, error = self._partition.open_log, self._source_error
        out_of_range = error is not None and error.code is ErrorCode.OFFSET_OUT_OF_RANGE
        if out_of_range:
            bounds = await found.source.bounds(found.node_id, self.key, found.leader_epoch)
            _check(bounds.error)
            if bounds.log_start_offset > target.log_end_offset:
                self._skip_to(bounds.log_start_offset)
            elif bounds.log_end_offset < target.log_end_offset:
                self._diverge(bounds.log_end_offset)
                return True
        epoch = target.latest_epoch
        if epoch is None or await found.source.reports_divergence(found.node_id):
            return False
        end = await found.source.epoch_end(found.node_id, self.key, found.leader_epoch, epoch)
        point = divergence_point(end, target) if end.end_offset >= 0 else target.log_end_offset
        if point < target.log_end_offset:
            self._diverge(point)
            return True
        return False

    def _skip_to(self, offset: int) -> None:
        target = self._partition.open_log
        lost = offset - target.log_end_offset
        self._skipped += lost
        log.warning(
            "retention on the source has overtaken a mirror: it continues at the source's log start offset",
            partition=str(self._partition.name),
            link=self.link.name,
            skipped_offsets=lost,
        )
        leader.restart_at(self._partition, offset, self._ports.clock.now_ms())

    def _diverge(self, offset: int) -> None:
        self._become(m.on_diverged(self._mirror, offset, self._now_ms(), self._ports.rng))

    def _answered_ms(self) -> int:
        """When the source last answered a fetch of this partition, also without records for it."""
        if self._fetcher is None or self._last_fetch_ms == NO_OFFSET:
            return self._last_fetch_ms
        ago_s = asyncio.get_running_loop().time() - self._fetcher.answered_at
        return max(self._last_fetch_ms, self._ports.clock.now_ms() - round(ago_s * 1000))

    # -- the fetcher -------------------------------------------------------------------------------------------------

    def next_fetch(self) -> SourceFetch | None:
        source, target = self._source, self._partition.log
        if source is None or target is None or self._mirror.state is not MirrorState.MIRRORING:
            return None
        epoch = target.latest_epoch
        return SourceFetch(source.topic_id, source.leader_epoch, target.log_end_offset, -1 if epoch is None else epoch)

    def on_fetched(self, request: SourceFetch, fetched: SourceFetched) -> int:
        partition, target = self._partition, self._partition.log
        if target is None or self._mirror.state is not MirrorState.MIRRORING:
            return 0
        if request.fetch_offset != target.log_end_offset or not partition.is_leader:
            return 0
        if fetched.diverging is not None:
            self._diverge(divergence_point(fetched.diverging, target))
            return 0
        self._mirror = m.on_answered(self._mirror)
        self._source_watermark = fetched.high_watermark
        self._last_fetch_ms = self._ports.clock.now_ms()
        self._lag.on_answer(fetched.high_watermark, partition.high_watermark, self._last_fetch_ms)
        try:
            size = self._append(fetched)
            leader.advance_log_start(partition, fetched.log_start_offset)
        except StorageError as error:
            self._on_error(error, from_source=False)
            return 0
        except KafkaError as error:
            self._fail(f"the source's records could not be appended: {error}")
            return 0
        return size

    def _append(self, fetched: SourceFetched) -> int:
        target = self._partition.open_log
        plan = plan_append(fetched.records, target.log_start_offset, target.log_end_offset, self.leader_epoch)
        if isinstance(plan, ContradictsLog):
            self._fail(plan.reason)
            return 0
        size = leader.append(self._partition, fetched.records, plan, self._last_fetch_ms)
        if plan.later_epoch is not None:
            epoch = plan.later_epoch
            self._become(m.on_source_found(self._mirror, epoch, None, self._now_ms(), self._ports.rng))
        return size

    def on_source_error(self, error: KafkaError) -> None:
        self._source_error = error
        self._stale_since = asyncio.get_running_loop().time()
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            self._on_error(error, from_source=True)
        self._changed.set()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return self._partition.context.now_ms()

    def _become(self, mirror: m.Mirror) -> None:
        if mirror == self._mirror:
            return
        if mirror.state is not self._mirror.state:
            log.info(
                "mirror partition changed its state",
                partition=str(self._partition.name),
                link=self.link.name,
                state=None if mirror.state is None else mirror.state.name,
                reason=mirror.trouble,
            )
        self._mirror = mirror
        self._changed.set()

    def _on_error(self, error: KafkaError, *, from_source: bool) -> None:
        self._stale_since = asyncio.get_running_loop().time()
        if error.code in _GONE and from_source:
            self._fail("the topic does not exist on the source any more. Delete it here, too, or stop the mirror.")
        elif error.code in _REFUSED and from_source:
            if error.code is ErrorCode.SASL_AUTHENTICATION_FAILED:
                self.link.on_definition_changed()  # the password may have been changed here, too
            self._fail(f"the source refuses the link: {error}")
        else:
            now_ms, rng = self._now_ms(), self._ports.rng
            self._become(m.on_trouble(self._mirror, f"{error.code.name}: {error}", now_ms, rng))

    def _fail(self, reason: str) -> None:
        self._become(m.on_failed(self._mirror, reason, self._now_ms(), self._ports.rng))

    async def _wait_changed(self, until_ms: int | None) -> None:
        wait_s = None if until_ms is None else max(until_ms - self._now_ms(), 0) / 1000
        try:
            async with asyncio.timeout(wait_s):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _unless_changed(self, work: Coroutine[Any, Any, None]) -> None:
        """Do `work` until the next step may be another one."""
        doing, changed = asyncio.ensure_future(work), asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait((doing, changed), return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                doing.result()
        finally:
            for waiting in (doing, changed):
                waiting.cancel()
            await asyncio.gather(doing, changed, return_exceptions=True)


def _check(code: ErrorCode) -> None:
    if code is not ErrorCode.NONE:
        raise KafkaError(code)
