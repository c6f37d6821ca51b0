"""Shell: appends the records of the controller's decisions to the metadata log.

    request -> Controller.decide -> records + response
               apply at once (the next decision sees them) -> MetadataLog.propose -> committed -> release the response
                                                                               \\-> refused   -> revert, NOT_CONTROLLER

Images are immutable, so reverting means using the previous image again. When one proposal fails, all later decisions
fail, too, because they were made on top of it. The controller then continues from the committed image. (Kafka's
controller "renounces" and replays in the same case.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from barnabas.core.clock import Clock
from barnabas.core.decision import Decision
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.rng import Rng
from barnabas.protocol.wire.schema import Message
from barnabas.server.metadata.controller.controller import Controller
from barnabas.server.metadata.controller.settings import Charge, DecideContext, unlimited
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.ports import MetadataLog
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.metadata.records.topics import PartitionChangeRecord

ResponseT = TypeVar("ResponseT")

PENDING_PROPOSALS_MAX: Final = 10_000
"""The largest number of uncommitted proposals. New requests are rejected while this number is reached, because the log
is too slow."""
CHANGES_PER_BATCH: Final = 10_000
"""A decision about many partitions, as when a broker is fenced, is appended in batches of about this many records."""


class ControllerDriver:
    """Runs the decisions of a `Controller`, and appends their records to a `MetadataLog`. `committed` returns the
    newest committed image (`Publisher.image`)."""

    def __init__(
        self,
        controller: Controller,
        log: MetadataLog,
        committed: Callable[[], ClusterImage],
        *,
        clock: Clock,
        rng: Rng,
        live_brokers: Callable[[], frozenset[int]] = frozenset,
        may_stop: Callable[[int], bool] = lambda _: True,
        kraft_version: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._controller = controller
        self._log = log
        self._committed = committed
        self._clock = clock
        self._rng = rng
        self._live_brokers = live_brokers
        self._may_stop = may_stop
        self._kraft_version = kraft_version
        self._inflight: set[asyncio.Future[int]] = set()
        self._generation = 0

    @property
    def image(self) -> ClusterImage:
        """The image for the next decision: the committed image with all proposed records applied."""
        return self._image_now()

    @property
    def pending(self) -> int:
        """The number of proposals that are neither committed nor rejected yet."""
        return len(self._inflight)

    async def handle(self, request: Message, version: int, charge: Charge = unlimited) -> Message:
        """Decide on a request that the controller handles (`Controller.HANDLED`), and wait until its records are
        committed.

        Raises KafkaError NOT_CONTROLLER when the records could not be committed, UNSUPPORTED_VERSION for a request
        that controllers do not handle.
        """
        return await self.submit(
            lambda image, ctx: self._controller.decide(image, request, ctx), version=version, charge=charge
        )

    async def submit(
        self,
        decide: Callable[[ClusterImage, DecideContext], Decision[MetadataRecord, ResponseT]],
        *,
        version: int = 0,
        charge: Charge = unlimited,
    ) -> ResponseT:
        """Make one decision and return its response when its records are committed, or at once if it has no records.

        The decision and the proposal happen before the first suspension, so that decisions take effect in the order of
        calls.
        """
        if len(self._inflight) >= PENDING_PROPOSALS_MAX:
            raise KafkaError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The metadata log has too many uncommitted proposals; retry later."
            )
        image = self._image_now()
        ctx = DecideContext(
            now_ms=self._clock.now_ms(),
            rng=self._rng,
            settings=self._controller.settings,
            version=version,
            live_brokers=self._live_brokers(),
            may_stop=self._may_stop,
            charge=charge,
            kraft_version=self._kraft_version(),
        )
        decision = decide(image, ctx)
        if decision.records:
            await self._commit(image, decision.records)
        elif self._inflight:
            # A response that was read from uncommitted state must wait until that state is committed.
            await self._settled(tuple(self._inflight))
        return decision.response

    def reset(self) -> None:
        """Continue from the committed image, without the uncommitted proposals, because a proposal has failed or the
        leader has changed. Requests that wait for such a proposal fail with NOT_CONTROLLER."""
        self._generation += 1
        self._inflight.clear()

    async def _commit(self, before: ClusterImage, records: Sequence[MetadataRecord]) -> None:
        generation = self._generation
        self._controller.apply(before, records)
        waiters: list[asyncio.Future[int]] = []
        try:
            for batch in _batches(records):
                waiters.append(asyncio.ensure_future(self._log.propose(batch)))  # noqa: PERF401 - it may raise half-way
        except BaseException:  # any error: the image must not have records that are not proposed
            self._controller.image = before
            if waiters:  # some batches of this decision are proposed: the outcome is unknown until the log responds
                self.reset()
            raise
        for waiter in waiters:
            self._inflight.add(waiter)
            waiter.add_done_callback(self._on_settled)
        for waiter in waiters:
            await asyncio.shield(waiter)
        if generation != self._generation:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)

    def _on_settled(self, waiter: asyncio.Future[int]) -> None:
        # retrieve the exception even if the caller was cancelled
        failed = waiter.cancelled() or waiter.exception() is not None
        if waiter in self._inflight:
            self._inflight.discard(waiter)
            if failed:
                self.reset()
            self._image_now()  # releases the image of the proposals once the committed one has them

    async def _settled(self, waiters: Sequence[asyncio.Future[int]]) -> None:
        generation = self._generation
        await asyncio.wait(waiters)
        if generation != self._generation:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)

    def _image_now(self) -> ClusterImage:
        if not self._inflight:
            self._controller.image = self._committed()
        return self._controller.image


def _batches(records: Sequence[MetadataRecord]) -> Iterator[Sequence[MetadataRecord]]:
    """Split `records` into batches, a single one if they are few. A batch may end only before a change of a partition,
    because such a record is complete by itself. Other records stay together, for example a topic and its partitions."""
    start = 0
    for index, record in enumerate(records):
        if index - start >= CHANGES_PER_BATCH and type(record) is PartitionChangeRecord:
            yield records[start:index]
            start = index
    yield records[start:]
