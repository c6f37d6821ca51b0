"""Shell: the transaction coordinator as the broker calls it (Kafka's TransactionCoordinator): one async method per API.

Each method takes the request's context and the decoded request, and returns the response with error codes. The methods
raise no KafkaError. The broker has checked authorization, quotas, and that the topics exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, Protocol, TypeVar

from barnabas.core.clock import Clock
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.hashing import coordinator_partition
from barnabas.core.ids import NO_PRODUCER_ID, TRANSACTION_STATE_TOPIC, TopicPartition
from barnabas.core.rng import Rng
from barnabas.core.work import Pauses
from barnabas.protocol.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from barnabas.protocol.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from barnabas.protocol.wire.regex import Re2Pattern
from barnabas.server.coordination.errors import error_for_client
from barnabas.server.coordination.operation import WriteOperation
from barnabas.server.coordination.ports import PartitionWriter, ProducerIdAndEpoch
from barnabas.server.coordination.runtime import CoordinatorRuntime, RuntimeConfig
from barnabas.server.coordination.transaction import describe
from barnabas.server.coordination.transaction.config import TransactionConfig
from barnabas.server.coordination.transaction.markers import MarkerSender
from barnabas.server.coordination.transaction.partition_results import batched_result, distinct_partitions
from barnabas.server.coordination.transaction.ports import MarkerChannel, MarkerJob
from barnabas.server.coordination.transaction.shard import TransactionShard
from barnabas.server.coordination.transaction.transitions import InitProducerIdArgs, ProducerIdNeededError

R = TypeVar("R")

IMPLICIT_SINCE: Final = 5
"""The version of EndTxn that first uses transaction version 2 (KIP-890)."""

_COST_ON_LOOP_MAX: Final = 250_000
"""The cost of matching a regular expression on the event loop, about 10 ms; a more expensive one is matched in a
thread."""
END_WAITERS_MAX: Final = 8
"""The maximum number of requests of one transactional id that wait for the end of its previous transaction. A producer
sends one such request at a time."""


class TransactionRequestContext(Protocol):
    """The API version and the connection of a request. Connection ids ascend in the order of opening."""

    @property
    def api_version(self) -> int: ...

    @property
    def connection_id(self) -> int: ...


class TransactionCoordinator:
    """The transactional ids whose partition of `__transaction_state` this node leads."""

    def __init__(
        self,
        config: TransactionConfig,
        writer: PartitionWriter,
        markers: MarkerChannel,
        producer_ids: Callable[[], Awaitable[int]],
        clock: Clock,
        rng: Rng,
    ) -> None:
        self._config = config
        self._clock = clock
        self._next_producer_id = producer_ids
        self._partitions = 0
        self._feature_level = 2
        self._selecting = asyncio.Lock()
        self._end_waiters: dict[str, list[asyncio.Future[None]]] = {}
        """The futures of requests that wait for the end of a transaction, by transactional id."""
        self.markers = MarkerSender(markers, self._coordinator_epoch, self._markers_written)
        self._runtime = CoordinatorRuntime(
            RuntimeConfig(TRANSACTION_STATE_TOPIC, config.request_timeout_ms),
            writer,
            clock,
            rng,
            lambda state_partition, timeline: TransactionShard(
                state_partition, config, timeline, self.markers, lambda: self._feature_level
            ),
        )

    def active_shards(self) -> Iterator[tuple[int, TransactionShard]]:
        """The loaded shards, in ascending order of partition."""
        return self._runtime.active()

    async def run(self) -> None:
        """Run the coordinator's tasks until cancelled. This method and `markers.run` must be running before the first
        election."""
        await self._runtime.run()

    # -- leadership and metadata, called by the node -----------------------------------------------------------------

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """Load `__transaction_state-<partition>`, which this node leads now. The leader epoch is the coordinator
        epoch."""
        self._runtime.on_elected(partition, leader_epoch)

    def on_resigned(self, partition: int, leader_epoch: int | None = None) -> None:
        self._runtime.on_resigned(partition, leader_epoch)

    def on_partition_count(self, partitions: int) -> None:
        """Set the number of partitions of `__transaction_state`; 0 while the topic does not exist."""
        self._partitions = partitions

    def on_feature_level(self, level: int) -> None:
        """Set the finalized level of the feature `transaction.version`."""
        self._feature_level = level

    def partition_for(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` that has the transactional id. Raises KafkaError NOT_COORDINATOR while
        this broker does not know the topic (see `GroupShards.partition_for`)."""
        if self._partitions == 0:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"This broker does not know {TRANSACTION_STATE_TOPIC} yet.")
        return coordinator_partition(transactional_id, self._partitions)

    # -- producers ---------------------------------------------------------------------------------------------------

    async def init_producer_id(
        self, ctx: TransactionRequestContext, request: InitProducerIdRequest
    ) -> InitProducerIdResponse:
        """InitProducerId with a transactional id. The broker handles requests without one."""
        transactional_id = request.transactional_id or ""
        args = InitProducerIdArgs(
            request.transaction_timeout_ms,
            request.producer_id,
            request.producer_epoch,
            request.enable_2pc,
            request.keep_prepared_txn,
        )
        try:
            self._check_init(transactional_id, args)
            return await self._write_with_id(
                transactional_id, lambda shard, op, fresh: shard.init_producer_id(op, transactional_id, args, fresh)
            )
        except KafkaError as error:
            code = _for_old_clients(error.code, ctx.api_version < 4)
            return InitProducerIdResponse(error_code=code, producer_epoch=-1)

    def _check_init(self, transactional_id: str, args: InitProducerIdArgs) -> None:
        _check_id(transactional_id)
        if (args.producer_id == NO_PRODUCER_ID) != (args.epoch == -1):
            raise KafkaError(ErrorCode.INVALID_REQUEST)  # a producer id and its epoch must be sent together
        two_phase = args.two_phase or args.keep_prepared
        if two_phase and not self._config.transaction_two_phase_commit_enable:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if not args.two_phase and not 0 < args.timeout_ms <= self._config.transaction_max_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)

    async def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
        *,
        version: int,
        connection: int = 0,
        max_wait_ms: int = 0,
    ) -> ErrorCode:
        """Add partitions to the producer's transaction.

        `version` is the transaction version: 2 if a partition leader adds the partition for a write (KIP-890), 0 or 1
        if the producer does. While the markers of the previous transaction are being written, the result is
        CONCURRENT_TRANSACTIONS, and a producer retries after 20 ms or more. Markers are usually written sooner, so this
        method first waits up to `max_wait_ms` for them.
        """
        wanted = frozenset(partitions)
        deadline = asyncio.get_running_loop().time() + max_wait_ms / 1000
        while True:
            try:
                _check_id(transactional_id)
                return await self._runtime.write(
                    self.partition_for(transactional_id),
                    lambda shard, op: shard.add_partitions(op, transactional_id, producer, wanted, version, connection),
                )
            except KafkaError as error:
                if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    return error.code
            if not await self._ended(transactional_id, deadline):
                return ErrorCode.CONCURRENT_TRANSACTIONS

    async def _ended(self, transactional_id: str, deadline: float) -> bool:
        """Wait until all markers of the transactional id are written. False if the deadline passes first, or if too
        many requests wait already. The request may run without a task, so `asyncio.timeout` cannot be used."""
        loop = asyncio.get_running_loop()
        waiting = self._end_waiters.get(transactional_id, [])
        if loop.time() >= deadline or len(waiting) >= END_WAITERS_MAX:
            return False
        future: asyncio.Future[None] = loop.create_future()
        waiting.append(future)
        self._end_waiters[transactional_id] = waiting
        timer = loop.call_at(deadline, future.cancel)
        try:
            await asyncio.wait((future,))
            return not future.cancelled()
        finally:
            timer.cancel()
            waiting.remove(future)
            if not waiting:
                self._end_waiters.pop(transactional_id, None)

    async def add_or_verify_partitions(
        self, transaction: AddPartitionsToTxnTransaction, *, version: int, max_wait_ms: int = 0
    ) -> AddPartitionsToTxnResult:
        """Handle one transaction of an AddPartitionsToTxn request of version 4 or later, which a partition leader
        sends: add the partitions to the transaction, or only verify that the transaction contains them (VerifyOnly)."""
        transactional_id = transaction.transactional_id
        producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
        wanted = await distinct_partitions(transaction.topics)
        if not transaction.verify_only:
            code = await self.add_partitions(
                transactional_id, producer, wanted, version=version, max_wait_ms=max_wait_ms
            )
            return await batched_result(transactional_id, transaction.topics, lambda _: code)
        try:
            _check_id(transactional_id)
            codes = await self._runtime.write(
                self.partition_for(transactional_id),
                lambda shard, op: shard.verify_partitions(op, transactional_id, producer, wanted),
            )
        except KafkaError as error:
            codes = dict.fromkeys(wanted, error.code)
        return await batched_result(transactional_id, transaction.topics, codes.__getitem__)

    async def end_txn(self, ctx: TransactionRequestContext, request: EndTxnRequest) -> EndTxnResponse:
        transactional_id = request.transactional_id
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        version = 2 if ctx.api_version >= IMPLICIT_SINCE else min(self._feature_level, 1)
        try:
            _check_id(transactional_id)
            return await self._write_with_id(
                transactional_id,
                lambda shard, op, fresh: shard.end_txn(
                    op,
                    transactional_id,
                    producer,
                    commit=request.committed,
                    version=version,
                    connection=ctx.connection_id,
                    fresh_id=fresh,
                ),
            )
        except KafkaError as error:
            return EndTxnResponse(error_code=_for_old_clients(error.code, ctx.api_version < 2))

    # -- tools (KIP-664) ---------------------------------------------------------------------------------------------

    async def describe_transactions(
        self, ctx: TransactionRequestContext, request: DescribeTransactionsRequest
    ) -> DescribeTransactionsResponse:
        response = DescribeTransactionsResponse()
        pauses = Pauses()
        for transactional_id in request.transactional_ids:
            described = self._describe(transactional_id)
            response.transaction_states.append(described)
            await pauses.after(1 + len(described.topics))
        return response

    def _describe(self, transactional_id: str) -> TransactionState:
        try:
            _check_id(transactional_id)
            return self._runtime.read(
                self.partition_for(transactional_id), lambda shard: describe.describe(shard, transactional_id)
            )
        except KafkaError as error:
            return TransactionState(error_code=error.code, transactional_id=transactional_id)

    async def list_transactions(
        self, ctx: TransactionRequestContext, request: ListTransactionsRequest
    ) -> ListTransactionsResponse:
        if self._runtime.is_loading:
            return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        pattern = request.transactional_id_pattern
        try:
            compiled = Re2Pattern(pattern) if pattern else None
        except KafkaError as error:
            return ListTransactionsResponse(error_code=error.code)
        wanted, unknown = describe.filter_of(request)
        response = ListTransactionsResponse(unknown_state_filters=unknown)
        if wanted is not None:
            now_ms = self._clock.now_ms()
            pauses = Pauses()
            for _, shard in list(self._runtime.active()):
                response.transaction_states.extend(describe.list_transactions(shard, wanted, now_ms))
                await pauses.after(1 + len(shard.transactions) // 5)
        if compiled is not None:
            try:
                matching = await self._select(compiled, [txn.transactional_id for txn in response.transaction_states])
            except KafkaError as error:
                return ListTransactionsResponse(error_code=error.code)
            response.transaction_states = [t for t in response.transaction_states if t.transactional_id in matching]
        return response

    async def _select(self, pattern: Re2Pattern, names: Sequence[str]) -> frozenset[str]:
        """The names that the pattern matches. Raises KafkaError INVALID_REGULAR_EXPRESSION."""
        if pattern.check_cost(names) <= _COST_ON_LOOP_MAX:
            return frozenset(pattern.select(names))
        async with self._selecting:  # RE2 releases the interpreter lock while it matches
            return frozenset(await asyncio.get_running_loop().run_in_executor(None, pattern.select, names))

    def producer_transactions(self, producer_ids: Collection[int]) -> dict[int, describe.ProducerTransaction]:
        """The transactions of these producer ids, as far as this node coordinates them."""
        return {
            producer_id: holder
            for _, shard in self._runtime.active()
            for producer_id, holder in describe.producer_transactions(shard, producer_ids)
        }

    # -- shards -----------------------------------------------------------------------------------------------------

    async def _write_with_id(
        self, transactional_id: str, decide: Callable[[TransactionShard, WriteOperation, int], R]
    ) -> R:
        """Execute an operation that may need a new producer id, which the controller allocates: the operation is
        repeated with a new id if it raises ProducerIdNeededError."""
        partition = self.partition_for(transactional_id)
        try:
            return await self._runtime.write(partition, lambda shard, op: decide(shard, op, NO_PRODUCER_ID))
        except ProducerIdNeededError:
            fresh = await self._fresh_producer_id()
        return await self._runtime.write(partition, lambda shard, op: decide(shard, op, fresh))

    async def _fresh_producer_id(self) -> int:
        try:
            return await self._next_producer_id()
        except KafkaError as error:
            code = error.code if error.retriable else ErrorCode.COORDINATOR_NOT_AVAILABLE
            raise KafkaError(code, error.detail) from error

    def _coordinator_epoch(self, state_partition: int) -> int | None:
        try:
            return self._runtime.context(state_partition).leader_epoch
        except KafkaError:
            return None

    def _markers_written(self, job: MarkerJob) -> None:
        try:
            self._runtime.context(job.state_partition).run(lambda shard, op: shard.markers_written(op, job))
        except KafkaError as error:
            raise KafkaError(error_for_client(error.code), error.detail) from error
        for waiting in self._end_waiters.get(job.transactional_id, ()):
            if not waiting.done():
                waiting.set_result(None)


def _check_id(transactional_id: str) -> None:
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST)


def _for_old_clients(code: ErrorCode, old: bool) -> ErrorCode:
    """Clients before KIP-588 do not know PRODUCER_FENCED and get INVALID_PRODUCER_EPOCH."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if old and code is ErrorCode.PRODUCER_FENCED else code
