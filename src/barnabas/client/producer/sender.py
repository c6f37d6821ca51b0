"""Shell: sends ready batches to the leaders and settles them by the responses.

One task executes `run`. The task wakes up when a batch is full, has lingered, was answered or must be retried. The task
never waits for a single broker: other tasks connect, refresh metadata and request a producer id. `_settle` decides how
a response settles its batch, after Kafka's Sender.completeBatch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final
from uuid import UUID

from barnabas.client.cluster.cluster import Cluster
from barnabas.client.errors import DeliveryTimeoutError
from barnabas.client.fetching import note_leader_hints
from barnabas.client.producer.accumulator import NO_IDENTITY, Accumulator, PartitionQueue, ProducerIdentity
from barnabas.client.producer.delivery import ProducerBatch
from barnabas.client.producer.links import BrokerLink, BrokerLinks
from barnabas.client.producer.producing import SenderConfig, answers_of, build_produce
from barnabas.client.producer.transactions import Transactions
from barnabas.core.errors import BarnabasError, ErrorCode, KafkaError, error_code
from barnabas.protocol.records.batch import HEADER_SIZE
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
)

EPOCH_MAX: Final = 32_766
EXPIRY_CHECK_S: Final = 0.1
_LOST_PLACE: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""The errors of a broker whose next sequence number differs from that of the producer."""
_IN_DOUBT: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""The errors after which a batch may have been written nevertheless."""


class Sender:
    """Sends the batches of an accumulator until `stop`."""

    def __init__(self, cluster: Cluster, accumulator: Accumulator, options: SenderConfig) -> None:
        self.identity: ProducerIdentity = NO_IDENTITY
        self.transactions: Transactions | None = None
        self.flushing = 0
        self.fatal: BarnabasError | None = None
        self.on_progress: Callable[[], None] = lambda: None
        """Called when batches were settled, so that memory may be free again."""
        self.on_fatal: Callable[[], None] = lambda: None
        """Called when `fatal` was set."""
        self.on_availability: Callable[[], None] = lambda: None
        """Called when the set of available brokers has changed."""
        self._cluster = cluster
        self._accumulator = accumulator
        self._options = options
        self.links = BrokerLinks(options.availability_timeout_s)
        self._wake = asyncio.Event()
        self._stopping = False
        self._busy = False
        """Whether a round, or the handling of a response, is in progress."""
        self._refreshing = False
        self._identifying = False
        self._adding = False
        self._expiry_at = 0.0
        self._tasks: asyncio.TaskGroup | None = None

    def wake(self) -> None:
        """Wake the task up, because a batch may be ready."""
        self._wake.set()

    def send_now(self, now: float) -> None:
        """Run a round at once, for a record with an empty queue before it. This saves a turn of the event loop.

        This may leave the batch queued, for example when a delivery callback calls this during a round. The caller
        must then call `wake`.
        """
        if self._tasks is not None and not self._stopping and not self._busy:
            self._round(now)

    def stop(self) -> None:
        """End `run` at its next step. Unsent batches stay in the accumulator."""
        self._stopping = True
        self._wake.set()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            background: set[asyncio.Task[None]] = set()
            self._start: Callable[[Coroutine[Any, Any, None]], None] = partial(_start, tasks, background)
            while not self._stopping:
                self._wake.clear()
                next_at = self._round(loop.time())
                if self._wake.is_set():
                    await asyncio.sleep(0)
                    continue
                timer = loop.call_at(next_at, self._wake.set) if next_at is not None else None
                await self._wake.wait()
                if timer is not None:
                    timer.cancel()
            for task in background:
                task.cancel()

    # -- one round -------------------------------------------------------------------------------------------------

    def _round(self, now: float) -> float | None:
        self._busy = True
        try:
            return self._send_ready(now)
        finally:
            self._busy = False

    def _send_ready(self, now: float) -> float | None:
        """Send all ready batches. Returns the loop time of the next round, if nothing wakes the task before."""
        accumulator = self._accumulator
        if not accumulator.unfinished:
            return None
        if now >= self._expiry_at:
            self._expire(now)
            self._refresh_old(now)
            self._expiry_at = now + EXPIRY_CHECK_S
        if self._options.idempotent and not self._identify():
            return self._expiry_at
        transactions = self.transactions
        if transactions is not None and transactions.doomed is not None:
            self.drop_queued(transactions.doomed)
        next_at = self._expiry_at
        ready: dict[int, list[PartitionQueue]] = {}
        topics = self._cluster.metadata.topics
        brokers = self._cluster.metadata.brokers
        flushing = self.flushing > 0 or not accumulator.has_room(accumulator.batch_size)
        leaderless: set[str] = set()
        for queue in accumulator.queues.values():
            if not queue.queue:
                continue
            if not queue.is_ready(now, flushing=flushing):
                first_at = max(queue.queue[0].send_at, queue.retry_at)
                if first_at > now:
                    next_at = min(next_at, first_at)
                continue
            if transactions is not None and not transactions.may_send(queue.partition):
                continue
            view = topics.get(queue.partition.topic)
            index = queue.partition.partition
            if view is None or index >= len(view.partitions) or view.partitions[index].leader not in brokers:
                leaderless.add(queue.partition.topic)
                continue
            if view.updated_at == float("-inf"):
                leaderless.add(queue.partition.topic)
            ready.setdefault(view.partitions[index].leader, []).append(queue)
        if leaderless:
            self._refresh(leaderless)
        if transactions is not None and transactions.has_partitions_to_add and not self._adding:
            self._adding = True
            self._start(self._add_partitions(transactions))
        for leader, queues in ready.items():
            at = self._send_to(leader, queues, now)
            if at is not None:
                next_at = min(next_at, at)
        return max(next_at, now)

    def _send_to(self, leader: int, queues: list[PartitionQueue], now: float) -> float | None:
        if not self.links.has_timeout:
            return self._send_over(self.links.to(leader, now), leader, queues, now)
        unavailable = self.links.unavailable()
        try:
            return self._send_over(self.links.to(leader, now), leader, queues, now)
        finally:
            if self.links.unavailable() != unavailable:
                self.on_availability()

    def _send_over(self, link: BrokerLink, leader: int, queues: list[PartitionQueue], now: float) -> float | None:
        if link.paused_until > now:
            return link.paused_until
        if link.connection is None or not link.connection.alive:
            link.connection = None
            if not link.connecting:
                link.connecting = True
                self._start(self._connect(leader, link))
            return None
        if link.in_flight < self._options.in_flight_max:
            link.drained_at = now
        remaining = queues
        while remaining and link.in_flight < self._options.in_flight_max:
            remaining = self._send_request(link, remaining, now)
        return None

    def _send_request(self, link: BrokerLink, queues: list[PartitionQueue], now: float) -> list[PartitionQueue]:
        """Send one produce request with the first batch of as many partitions as fit. Returns the partitions with more
        batches."""
        taken: list[tuple[PartitionQueue, ProducerBatch]] = []
        size = 0
        left: list[PartitionQueue] = []
        flushing = self.flushing > 0
        for place, queue in enumerate(queues):
            if queue.needs_new_epoch:
                if queue.in_flight:
                    continue
                if self.transactions is None:
                    self._bump_epoch(queue)
                elif queue.identity == self.identity:
                    continue  # the epoch of a transaction changes only after an abort
            first = queue.queue[0]
            first_size = len(first.encoded) or HEADER_SIZE + first.charged
            if taken and size + first_size > self._options.request_bytes_max:
                left += queues[place:]
                break
            batch = queue.take(self.identity, transactional=self.transactions is not None)
            size += len(batch.encoded)
            taken.append((queue, batch))
            if queue.is_ready(now, flushing=flushing):
                left.append(queue)
        if taken:
            self._write(link, taken)
        return left

    def _write(self, link: BrokerLink, taken: list[tuple[PartitionQueue, ProducerBatch]]) -> None:
        connection = link.connection
        assert connection is not None
        options = self._options
        request, max_version = build_produce(
            [(queue.partition, batch.encoded) for queue, batch in taken], self._cluster.metadata, options
        )
        if self.transactions is not None and self.transactions.produce_version_max is not None:
            max_version = self.transactions.produce_version_max
        try:
            version = connection.choose_version(ApiKey.PRODUCE, max_version=max_version)
        except KafkaError as error:
            for queue, batch in taken:
                self._fail(queue, batch, error, in_doubt=False)
            return
        if options.acks == 0:
            connection.send(request, version, expect_response=False)
            for queue, batch in taken:
                self._acknowledge(queue, batch, -1, -1)
            return
        link.in_flight += 1
        deadline = self._cluster.deadline(options.request_timeout_ms)
        ids = {topic.name: topic.topic_id for topic in request.topic_data}
        connection.post(request, version, deadline, partial(self._on_answer, link, taken, ids))

    # -- answers ---------------------------------------------------------------------------------------------------

    def _on_answer(
        self,
        link: BrokerLink,
        taken: list[tuple[PartitionQueue, ProducerBatch]],
        ids: dict[str, UUID],
        response: ProduceResponse | None,
        error: BarnabasError | None,
    ) -> None:
        link.in_flight -= 1
        now = self._cluster.now()
        self._busy = True
        try:
            self._take_answers(link, taken, ids, response, error, now)
        finally:
            self._busy = False
        self.on_progress()
        if self._accumulator.unfinished:
            self.wake()

    def _take_answers(
        self,
        link: BrokerLink,
        taken: list[tuple[PartitionQueue, ProducerBatch]],
        ids: dict[str, UUID],
        response: ProduceResponse | None,
        error: BarnabasError | None,
        now: float,
    ) -> None:
        """`ids` has the topic ids of the request: the topics may have been created again since."""
        taken = [(queue, batch) for queue, batch in taken if not batch.done]  # `close` may have given batches up
        if response is None:
            problem = error or KafkaError(ErrorCode.NETWORK_EXCEPTION)
            for queue, batch in taken:
                self._settle(queue, batch, problem, now)
        else:
            if response.throttle_time_ms:
                link.paused_until = now + response.throttle_time_ms / 1000.0
            answers = answers_of(response)
            for queue, batch in taken:
                topic, index = queue.partition.topic, queue.partition.partition
                answer = answers.get((topic, index)) or answers.get((ids[topic], index))
                self._take_answer(queue, batch, response, answer, now)

    def _take_answer(
        self,
        queue: PartitionQueue,
        batch: ProducerBatch,
        response: ProduceResponse,
        answer: PartitionProduceResponse | None,
        now: float,
    ) -> None:
        if answer is None:
            self._settle(queue, batch, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The broker left it out."), now)
            return
        code = error_code(answer.error_code)
        if code is ErrorCode.NONE or code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._acknowledge(queue, batch, answer.base_offset, answer.log_append_time_ms)
            return
        note_leader_hints(self._cluster, response, queue.partition, answer.current_leader)
        message = answer.error_message or code.message
        if answer.record_errors:
            first = answer.record_errors[0]
            message += f" Record {first.batch_index} of the batch: {first.batch_index_error_message}"
        self._settle(queue, batch, KafkaError(code, f"Writing to {queue.partition}: {message}"), now)

    def _acknowledge(self, queue: PartitionQueue, batch: ProducerBatch, offset: int, append_time: int) -> None:
        builder = batch.builder
        if builder is not None and builder.bytes:
            ratio = (len(batch.encoded) - HEADER_SIZE) / builder.bytes
            self._accumulator.note_ratio(queue.partition.topic, ratio)
        queue.on_acked(batch)
        self._accumulator.release(batch)
        batch.succeed(offset, append_time)

    def _settle(self, queue: PartitionQueue, batch: ProducerBatch, error: BarnabasError, now: float) -> None:
        """Decide after a failed attempt: retry the batch, split it, or fail it."""
        code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
        if code is ErrorCode.MESSAGE_TOO_LARGE and batch.record_count > 1:
            queue.replace(batch, self._accumulator.split(batch))
            return
        lost_place = code in _LOST_PLACE and self._options.idempotent
        if self.transactions is not None and queue.is_first(batch):
            lost_place = False  # no earlier batch has failed: the transaction must be aborted
        retriable = lost_place or (isinstance(error, KafkaError) and error.retriable)
        if not retriable or batch.attempts > self._options.retries:
            self._fail(queue, batch, error, in_doubt=code in _IN_DOUBT or lost_place)
            return
        if now >= batch.deadline:
            late = DeliveryTimeoutError(
                f"A batch of {batch.record_count} records for {queue.partition} was not acknowledged within"
                f" delivery.timeout.ms, after {batch.attempts} attempts. The last error was: {error}"
            )
            self._fail(queue, batch, late, in_doubt=code in _IN_DOUBT or lost_place)
            return
        self._cluster.note_error(queue.partition, code)
        if lost_place and queue.is_first(batch):
            queue.needs_new_epoch = True  # no earlier batch has failed, so the broker has lost the producer's state
        delay = self._cluster.options.retry_backoff.delay_ms(batch.attempts - 1, self._cluster.rng)
        queue.on_retry(batch, now + (0.0 if lost_place else delay / 1000.0))

    def _fail(self, queue: PartitionQueue, batch: ProducerBatch, error: BarnabasError, *, in_doubt: bool) -> None:
        queue.on_failed(batch, in_doubt=in_doubt)
        if self.transactions is not None:
            self.transactions.on_failure(error, in_doubt=in_doubt or batch.attempts > 0)
        self._accumulator.fail(batch, error)

    def _expire(self, now: float) -> None:
        """Fail the batches that are still queued after the delivery time-out, for example because there was no
        leader, no connection or no free request for them."""
        expired = list(self._accumulator.expired(now))
        for queue, batch in expired:
            batch.seal_count()
            tried = f" after {batch.attempts} attempts" if batch.attempts else "; it could not even be sent"
            error = DeliveryTimeoutError(
                f"{batch.record_count} records for {queue.partition} were not acknowledged within delivery.timeout.ms"
                f"{tried}. The partition may have no leader, or the brokers may be out of reach or overloaded."
                f"{self._cluster.problems.hint()}"
            )
            self._fail(queue, batch, error, in_doubt=batch.attempts > 0)
        if expired:
            self.on_progress()

    def _refresh_old(self, now: float) -> None:
        """Refresh the metadata of topics in use after `metadata.max.age.ms`, because they may have new partitions."""
        oldest = now - self._options.metadata_max_age_s
        topics = self._cluster.metadata.topics
        used = {queue.partition.topic for queue in self._accumulator.queues.values() if queue.queue or queue.in_flight}
        old = {name for name in used if name in topics and topics[name].updated_at < oldest}
        if old:
            self._refresh(old)

    # -- beside the rounds -----------------------------------------------------------------------------------------

    async def _connect(self, leader: int, link: BrokerLink) -> None:
        try:
            link.connection = await self._cluster.connection(leader)
        except KafkaError as error:
            self._cluster.metadata.mark_stale(self._cluster.metadata.led_by(leader))
            if not error.retriable:
                self._give_up(error)
            else:
                await self._cluster.backoff(0)
        finally:
            link.connecting = False
            self.wake()

    def _refresh(self, topics: set[str]) -> None:
        if not self._refreshing:
            self._refreshing = True
            self._start(self._refresh_metadata(topics))

    async def _refresh_metadata(self, topics: set[str]) -> None:
        try:
            await self._cluster.refresh(sorted(topics))
        except KafkaError as error:
            if not error.retriable:
                self._give_up(error)
        finally:
            self.wake()
            await self._cluster.backoff(0)  # batches continue at once; only the next refresh has to wait
            self._refreshing = False
            self.wake()

    def _identify(self) -> bool:
        """Whether the producer has a producer id. If not, a task requests one."""
        if self.transactions is not None:
            self.identity = self.transactions.identity
            return self.identity.valid
        if self.identity.valid:
            return True
        if not self._identifying:
            self._identifying = True
            self._start(self._init_producer_id())
        return False

    async def _init_producer_id(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2_147_483_647)

        async def attempt() -> InitProducerIdResponse:
            response: InitProducerIdResponse = await self._cluster.ask_any(request)
            if response.error_code:
                raise KafkaError(response.error_code)
            return response

        try:
            deadline = self._cluster.deadline(self._options.request_timeout_ms)
            got: InitProducerIdResponse = await self._cluster.retrying(
                "Getting a producer id", attempt, deadline=deadline
            )
            self.identity = ProducerIdentity(got.producer_id, got.producer_epoch)
        except KafkaError as error:
            if not error.retriable:
                self._give_up(error)
        finally:
            self._identifying = False
            self.wake()

    async def _add_partitions(self, transactions: Transactions) -> None:
        try:
            await transactions.add_partitions()
        finally:
            self._adding = False
            self.wake()

    def drop_queued(self, error: BarnabasError) -> None:
        """Fail all batches that have not been sent, because the transaction is being aborted."""
        for queue in self._accumulator.queues.values():
            for batch in list(queue.queue):
                batch.seal_count()
                self._fail(queue, batch, error, in_doubt=batch.attempts > 0)
        self.on_progress()

    def _bump_epoch(self, queue: PartitionQueue) -> None:
        """Restart the partition's sequence numbers with the next epoch (KIP-360 for producers without transactions)."""
        if self.identity.epoch >= EPOCH_MAX:
            self.identity = NO_IDENTITY
            queue.retry_at = self._cluster.now()
            return
        if queue.identity == self.identity:
            self.identity = ProducerIdentity(self.identity.producer_id, self.identity.epoch + 1)
        queue.adopt(self.identity)

    def _give_up(self, error: BarnabasError) -> None:
        """Fail all batches after a fatal error, such as a failed authentication."""
        self.fatal = error
        self.on_fatal()
        self._accumulator.abandon(error)
        self.on_progress()


def _start(tasks: asyncio.TaskGroup, background: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
    task = tasks.create_task(work)
    background.add(task)
    task.add_done_callback(background.discard)
