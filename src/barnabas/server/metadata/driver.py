"""Shell: the one place where decisions of the controller become metadata.

    request -> Controller.decide -> records + response
               apply at once (the next decision sees them) -> MetadataLog.propose -> committed -> release the response
                                                                               \\-> refused   -> revert, NOT_CONTROLLER

Images are immutable, so reverting is going back to the image before. When one proposal fails, whatever was decided
after it stands on sand and fails with it; the controller then starts again from the committed image (Kafka's
controller "renounces" and replays in the same case).
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
from barnabas.server.metadata.controller.settings import DecideContext
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.ports import MetadataLog
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.metadata.records.topics import PartitionChangeRecord

ResponseT = TypeVar("ResponseT")

PENDING_PROPOSALS_MAX: Final = 10_000
"""Beyond this many uncommitted proposals new ones are refused: the log is not keeping up."""
CHANGES_PER_BATCH: Final = 10_000
"""A decision about many partitions (a broker is fenced) goes to the log in batches of about so many records."""


class ControllerDriver:
    """Runs a `Controller` over a `MetadataLog`. `committed` gives the newest committed image (the publisher's)."""

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
        """What the next decision will see: the committed image and everything proposed since."""
        return self._image_now()

    @property
    def pending(self) -> int:
        """Proposals that are neither committed nor refused yet."""
        return len(self._inflight)

    async def handle(self, request: Message, version: int) -> Message:
        """Decide on a request of any kind the controller knows (`Controller.HANDLED`), and wait until it is committed.

        Raises KafkaError NOT_CONTROLLER when the records could not be committed, UNSUPPORTED_VERSION for a request
        that is not the controller's.
        """
        return await self.submit(lambda image, ctx: self._controller.decide(image, request, ctx), version=version)

    async def submit(
        self,
        decide: Callable[[ClusterImage, DecideContext], Decision[MetadataRecord, ResponseT]],
        *,
        version: int = 0,
    ) -> ResponseT:
        """Run one decision; return its response once its records are committed (at once if it has none).

        Everything up to the proposal happens before the first suspension, so calls take effect in their order.
        """
        if len(self._inflight) >= PENDING_PROPOSALS_MAX:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The metadata log is not keeping up; retry later.")
        image = self._image_now()
        ctx = DecideContext(
            now_ms=self._clock.now_ms(),
            rng=self._rng,
            settings=self._controller.settings,
            version=version,
            live_brokers=self._live_brokers(),
            may_stop=self._may_stop,
            kraft_version=self._kraft_version(),
        )
        decision = decide(image, ctx)
        if decision.records:
            await self._commit(image, decision.records)
        elif self._inflight:
            # A read decided on uncommitted state must not be answered before that state is safe.
            await self._settled(tuple(self._inflight))
        return decision.response

    def reset(self) -> None:
        """Forget what is not committed (leadership was lost or won); waiting requests are answered NOT_CONTROLLER."""
        self._generation += 1
        self._inflight.clear()

    async def _commit(self, before: ClusterImage, records: Sequence[MetadataRecord]) -> None:
        generation = self._generation
        self._controller.apply(before, records)
        waiters: list[asyncio.Future[int]] = []
        try:
            for batch in _batches(records):
                waiters.append(asyncio.ensure_future(self._log.propose(batch)))  # noqa: PERF401 - it may raise half-way
        except BaseException:
            self._controller.image = before
            if waiters:  # a part is on its way: only the log knows what there will be
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
        failed = waiter.cancelled() or waiter.exception() is not None  # asked for even when nobody waits any more
        if waiter in self._inflight:
            self._inflight.discard(waiter)
            if failed:
                self.reset()

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
    """What is to be written, in one batch if that is not too long. A longer one may end before the change of a
    partition, which stands for itself; everything else stays together (a topic and its partitions, say)."""
    start = 0
    for index, record in enumerate(records):
        if index - start >= CHANGES_PER_BATCH and type(record) is PartitionChangeRecord:
            yield records[start:index]
            start = index
    yield records[start:]
