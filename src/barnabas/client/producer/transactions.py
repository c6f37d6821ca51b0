"""Shell: the requests of a producer to its transaction coordinator (KIP-98, KIP-360, KIP-447, KIP-890).

    UNINITIALIZED ──init──▶ READY ──begin──▶ IN_TRANSACTION ──commit, abort──▶ ENDING ──▶ READY
                                                  │ a batch or a commit of offsets failed
                                                  ▼
                                              ABORTABLE ──abort──▶ ENDING ──▶ READY
    IN_TRANSACTION ──prepare──▶ PREPARED ──commit, abort──▶ ENDING ──▶ READY        (two-phase commit, KIP-939)
    UNINITIALIZED ──init, keeping a prepared transaction──▶ PREPARED
    IN_TRANSACTION ──hand over──▶ HANDED_OVER: another client ends the transaction; this producer can only be closed
    FATAL: fenced by a newer producer, or not authorized; only a new producer can continue

With transaction.version 2 (KIP-890) a write adds its partition to the transaction, and every EndTxn returns
the next epoch. With older brokers each partition is added first, and the epoch changes only after errors.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import Enum
from typing import Any, Final

from barnabas.client.cluster.cluster import Cluster
from barnabas.client.cluster.coordinators import CoordinatorType
from barnabas.client.cluster.versions import Versioned
from barnabas.client.commit_marks import with_marks
from barnabas.client.errors import TransactionAbortedError, TransactionStateError, UnsupportedApiError
from barnabas.client.producer.accumulator import NO_IDENTITY, ProducerIdentity
from barnabas.client.producer.transaction_requests import (
    ADD_PARTITIONS_VERSION_MAX,
    END_TXN_VERSION_MAX,
    FEATURE,
    IMPLICIT_FROM,
    OFFSET_COMMIT_VERSION_MAX,
    PRODUCE_VERSION_MAX,
    TWO_PHASE_VERSION,
    build_add_offsets,
    build_add_partitions,
    build_end,
    build_offset_commit,
    code_of,
    codes_of_added_partitions,
    codes_of_offsets,
)
from barnabas.client.resumed import Resumed
from barnabas.client.values import GroupMetadata, HandedOverTransaction, OffsetAndMetadata, PreparedTransaction
from barnabas.core.config import ConfigError
from barnabas.core.errors import BarnabasError, ErrorCode, KafkaError, error_code
from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages.end_txn import EndTxnResponse
from barnabas.protocol.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_FATAL: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    }
)
_COORDINATOR_TRIES_AGAIN: Final = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})


class State(Enum):
    UNINITIALIZED = "not initialized"
    READY = "ready"
    IN_TRANSACTION = "in a transaction"
    PREPARED = "holding a prepared transaction"
    ENDING = "ending a transaction"
    ABORTABLE = "in a transaction that must be aborted"
    HANDED_OVER = "without its transaction, which it has handed over"
    FATAL = "unusable"


class Transactions:
    """The transactional state of one producer. The sender checks partitions with it and reports failures to it."""

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        timeout_ms: int,
        wake: Callable[[], None],
        *,
        two_phase: bool = False,
    ) -> None:
        self.transactional_id = transactional_id
        self.state = State.UNINITIALIZED
        self.identity = NO_IDENTITY
        self.error: BarnabasError | None = None
        self.implicit = False
        self.prepared: PreparedTransaction | None = None
        self.two_phase = two_phase
        self._cluster = cluster
        self._timeout_ms = timeout_ms
        self._wake = wake
        self._added: set[TopicPartition] = set()
        self._to_add: set[TopicPartition] = set()
        self._started = False
        """Whether a record or an offset was written in this transaction, so that the coordinator must end it."""
        self._doubtful = False
        """Whether a partition's sequence is in doubt, so that the epoch must change before the next transaction."""
        self._commits = False
        """Whether the last call that ends a transaction is a commit."""
        self._decided: bool | None = None
        """Whether the coordinator was asked to commit (True) or abort (False) this transaction and the outcome is not
        known; None before the request."""
        self._initializing: Resumed[None] = Resumed("barnabas-init-transactions")
        self._adding_offsets: Resumed[None] = Resumed("barnabas-transaction-offsets")
        self._ending: Resumed[None] = Resumed("barnabas-end-transaction")

    @property
    def produce_version_max(self) -> int | None:
        return None if self.implicit else PRODUCE_VERSION_MAX

    # -- called by producer and sender -----------------------------------------------------------------------------

    def check_can_send(self) -> None:
        """Raises TransactionStateError outside of a transaction, or the error that made the transaction fail."""
        if self._decided is not None:
            raise self._other_end_is_due()
        if self.state is State.IN_TRANSACTION:
            return
        if self.error is not None:
            raise self.error
        raise TransactionStateError(
            f"A record of a transactional producer belongs to a transaction, and this one is {self.state.value};"
            " call init_transactions() once and begin_transaction() before sending."
        )

    def may_send(self, partition: TopicPartition) -> bool:
        """Whether a batch for this partition may be sent now. If only the partition is missing in the transaction, note
        the partition for `add_partitions`, which wakes the sender."""
        if self.state not in (State.IN_TRANSACTION, State.ENDING):
            return False
        if self.implicit:
            self._started = True
            return True
        if partition in self._added:
            return True
        self._to_add.add(partition)
        return False

    @property
    def doomed(self) -> BarnabasError | None:
        """The error after which the transaction must be aborted or the producer is unusable; None if there is none.

        No more batches are sent after it.
        """
        return self.error if self.state in (State.ABORTABLE, State.FATAL) else None

    @property
    def has_partitions_to_add(self) -> bool:
        return bool(self._to_add)

    async def add_partitions(self) -> None:
        """Send AddPartitionsToTxn for the partitions that `may_send` has collected (before KIP-890)."""
        wanted = sorted(self._to_add)
        request = build_add_partitions(self.transactional_id, self.identity, wanted)
        try:
            await self._ask(
                request, codes_of_added_partitions, "Adding partitions", max_version=ADD_PARTITIONS_VERSION_MAX
            )
        except KafkaError as error:
            self.on_failure(error)
            return
        finally:
            self._to_add.difference_update(wanted)
        self._added.update(wanted)
        self._started = True
        self._wake()

    def on_failure(self, error: BarnabasError, *, in_doubt: bool = False) -> None:
        """Handle the final failure of a batch or a request: the transaction must be aborted, or a new producer is
        needed."""
        self._doubtful |= in_doubt
        code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
        if code in _FATAL:
            self.state = State.FATAL
            self.error = error
        elif self.state in (State.IN_TRANSACTION, State.ENDING):
            self.state = State.ABORTABLE
            self.error = error

    # -- called by the user, through the producer ------------------------------------------------------------------

    async def init(self, deadline: float, *, keep_prepared: bool = False) -> None:
        """Get a producer id and the next epoch. Fences older producers, and ends their open transactions. A call that
        was cancelled is continued by the next one.

        With `keep_prepared` a prepared transaction stays open, to be committed or aborted later (KIP-939).
        """
        if not self._initializing.is_under_way:
            self._require(State.UNINITIALIZED)
        if keep_prepared:
            self._require_two_phase()
        await self._initializing.run(lambda: self._initialize(deadline, keep_prepared=keep_prepared))

    async def _initialize(self, deadline: float, *, keep_prepared: bool) -> None:
        await self._init(NO_IDENTITY, deadline, keep_prepared=keep_prepared)
        self.state = State.READY if self.prepared is None else State.PREPARED

    async def _init(self, current: ProducerIdentity, deadline: float, *, keep_prepared: bool = False) -> None:
        def build(version: int) -> InitProducerIdRequest:
            if self.two_phase and version < TWO_PHASE_VERSION:
                raise UnsupportedApiError(
                    "transaction.two.phase.commit.enable needs brokers with InitProducerId version 6 (KIP-939)."
                )
            return InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=self._timeout_ms,
                producer_id=current.producer_id,
                producer_epoch=current.epoch,
                enable_2pc=self.two_phase,
                keep_prepared_txn=keep_prepared,
            )

        request = Versioned(ApiKey.INIT_PRODUCER_ID, build, unstable=self.two_phase)
        response: InitProducerIdResponse = await self._ask(
            request, code_of, "Initializing transactions", deadline=deadline
        )
        if response.ongoing_txn_producer_id >= 0:
            self.prepared = PreparedTransaction(response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch)
            self._started = True
        self.identity = ProducerIdentity(response.producer_id, response.producer_epoch)
        self._doubtful = False
        coordinator = await self._cluster.coordinators.find(CoordinatorType.TRANSACTION, self.transactional_id)
        connection = await self._cluster.connection(coordinator, deadline)
        self.implicit = connection.versions.features.get(FEATURE, 0) >= IMPLICIT_FROM

    def begin(self) -> None:
        self._require(State.READY)
        self._initializing.drop()
        self._ending.drop()
        self.state = State.IN_TRANSACTION
        self._started = False
        self._added.clear()
        self._to_add.clear()

    def check_can_prepare(self) -> None:
        """Raises an error if the transaction cannot be prepared."""
        self._require_two_phase()
        if self.state is State.ABORTABLE:
            raise self._cannot_commit()
        self._require(State.IN_TRANSACTION)

    def prepare(self) -> PreparedTransaction:
        """Prepare the transaction, whose records are all acknowledged. It can only be committed or aborted
        afterwards."""
        self.check_can_prepare()
        self.state = State.PREPARED
        self.prepared = PreparedTransaction(self.identity.producer_id, self.identity.epoch)
        return self.prepared

    def check_can_hand_over(self) -> None:
        """Raises an error if the transaction cannot be handed over."""
        if self.state is State.ABORTABLE:
            raise self._cannot_commit()
        self._require(State.IN_TRANSACTION)

    def hand_over(self) -> HandedOverTransaction | None:
        """Give up the transaction, whose records are all acknowledged, without ending it. None if nothing was written:
        then no coordinator has a transaction."""
        self.check_can_hand_over()
        self.state = State.HANDED_OVER
        if not self._started:
            return None
        return HandedOverTransaction(self.transactional_id, self.identity.producer_id, self.identity.epoch)

    def _require_two_phase(self) -> None:
        if not self.two_phase:
            raise ConfigError("Prepared transactions need transaction.two.phase.commit.enable=true.")

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata, deadline: float
    ) -> None:
        """Add a consumer's positions to the transaction (KIP-447: the consumer's generation fences old members)."""
        await self._adding_offsets.settle()  # of a call that was cancelled
        if self.state is State.ABORTABLE:
            raise self._cannot_commit()
        self._require(State.IN_TRANSACTION)
        if offsets:
            await self._adding_offsets.run(lambda: self._send_offsets(offsets, group, deadline))

    async def _send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata, deadline: float
    ) -> None:
        identity = self.identity
        try:
            if not self.implicit:
                request = build_add_offsets(self.transactional_id, identity, group.group_id)
                await self._ask(request, code_of, "Adding offsets", deadline=deadline)
            self._started = True
            metadata = self._cluster.metadata
            marked = with_marks(offsets, metadata)
            try:
                await self._commit_offsets(marked, group, deadline)
            except KafkaError as error:
                if error.code is not ErrorCode.OFFSET_METADATA_TOO_LARGE or marked == offsets:
                    raise
                metadata.marks_commits = False  # offset.metadata.max.bytes is less than a mark has
                await self._commit_offsets(offsets, group, deadline)
        except KafkaError as error:
            self.on_failure(error)
            raise

    async def _commit_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata, deadline: float
    ) -> None:
        await self._ask(
            build_offset_commit(self.transactional_id, self.identity, group, offsets),
            codes_of_offsets,
            "Committing offsets",
            deadline=deadline,
            max_version=None if self.implicit else OFFSET_COMMIT_VERSION_MAX,
            coordinator=(CoordinatorType.GROUP, group.group_id),
        )

    async def end(self, *, commit: bool, settle: Callable[[], Awaitable[None]], deadline: float) -> None:
        """Commit or abort. `settle` sends, or drops, the queued batches and waits for those in flight. A call that was
        cancelled goes on, and the next call of the same kind gets its outcome.

        Raises TransactionAbortedError when a commit is no longer possible, and the error of a fenced producer.
        """
        if self._ending.is_under_way and self._commits is not commit:
            await self._turn_from(commit)
        if not self._ending.is_under_way:
            self._check_can_end(commit)
            self._commits = commit
        await self._ending.run(lambda: self._settle_and_end(commit, settle, deadline))

    async def _turn_from(self, commit: bool) -> None:
        """Make way for a call of the other kind than the one that is under way; raises TransactionStateError if its
        request was sent, or if it has ended."""
        if self._commits and self._decided is None and self.state is State.IN_TRANSACTION:
            await self._ending.stop()
            return
        if self.state is not State.ENDING:
            self._ending.drop()
            if self.state is State.READY:
                raise TransactionStateError(
                    f"The transaction {'was aborted' if commit else 'was committed'} already: the call that was"
                    " cancelled has ended."
                )
            return
        raise self._other_end_is_due()

    def _other_end_is_due(self) -> TransactionStateError:
        doing, call = ("committed", "commit") if self._commits else ("aborted", "abort")
        return TransactionStateError(
            f"The transaction is being {doing}, and the coordinator has not answered yet: call {call}_transaction()"
            " again."
        )

    def _check_can_end(self, commit: bool) -> None:
        if self._decided is not None and self._decided is not commit:
            raise self._other_end_is_due()
        if commit:
            if self.state is State.ABORTABLE:
                raise self._cannot_commit()
            self._require(State.IN_TRANSACTION, State.PREPARED)
        else:
            self._require(State.IN_TRANSACTION, State.ABORTABLE, State.PREPARED)

    async def _settle_and_end(self, commit: bool, settle: Callable[[], Awaitable[None]], deadline: float) -> None:
        await self._adding_offsets.settle()
        if commit:
            await settle()
            if self.state not in (State.IN_TRANSACTION, State.PREPARED):
                raise self._cannot_commit()
            self.state = State.ENDING
        else:
            self.state = State.ENDING
            await settle()
            if self.error is not None and isinstance(self.error, KafkaError) and self.error.code in _FATAL:
                raise self.error
        await self._end(commit, deadline)
        self.error = None
        self.prepared = None
        self._decided = None
        self.state = State.READY

    @property
    def can_be_aborted(self) -> bool:
        """Whether a transaction is open that must be aborted if it is not committed. (A prepared one is completed.)"""
        return self.state in (State.IN_TRANSACTION, State.ABORTABLE) or (
            self.state is State.ENDING and not self._commits
        )

    @property
    def commit_is_due(self) -> bool:
        """Whether the coordinator may have got the request to commit: the transaction cannot be aborted."""
        return self._decided is True and self.state is not State.FATAL

    @property
    def ended_meanwhile(self) -> bool | None:
        """Whether a call that was cancelled has committed the transaction (True) or aborted it (False); None if there
        is no such call, or it has not ended."""
        return self._commits if self._ending.is_under_way and self.state is State.READY else None

    async def settle(self) -> None:
        """Wait for the end of calls that were cancelled."""
        await self._initializing.settle()
        await self._ending.settle()

    async def stop(self) -> None:
        """Cancel what calls that were cancelled have left running."""
        for work in (self._initializing, self._adding_offsets, self._ending):
            await work.stop()

    async def _end(self, commit: bool, deadline: float) -> None:
        try:
            if self._started:
                self._decided = commit
                request = build_end(self.transactional_id, self.identity, commit=commit)
                response: EndTxnResponse = await self._ask(
                    request,
                    code_of,
                    "Committing the transaction" if commit else "Aborting the transaction",
                    deadline=deadline,
                    max_version=None if self.implicit else END_TXN_VERSION_MAX,
                )
                if response.producer_epoch >= 0:
                    self.identity = ProducerIdentity(response.producer_id, response.producer_epoch)
                    self._doubtful = False
            if self._doubtful:
                await self._init(self.identity, deadline)
        except KafkaError as error:
            if error.code is ErrorCode.TRANSACTION_ABORTABLE and commit:
                self.state = State.ABORTABLE
                self._decided = None
            elif not error.retriable:
                self.state = State.FATAL
            else:
                self._may_try_again(commit)
            self.error = error
            raise

    def _may_try_again(self, commit: bool) -> None:
        """Go back to the state before the call, because the coordinator did not end the transaction in time. The user
        may repeat the same call (commit or abort)."""
        if self.prepared is not None:
            self.state = State.PREPARED
        else:
            self.state = State.IN_TRANSACTION if commit else State.ABORTABLE

    # -- requests --------------------------------------------------------------------------------------------------

    async def _ask(
        self,
        request: Any,
        codes: Callable[[Any], Iterable[int]],
        what: str,
        *,
        deadline: float | None = None,
        max_version: int | None = None,
        coordinator: tuple[CoordinatorType, str] | None = None,
    ) -> Any:
        """Send a request to the coordinator, with retries until the deadline. Returns a response without an error."""
        kind, key = coordinator or (CoordinatorType.TRANSACTION, self.transactional_id)
        cluster = self._cluster
        limit = cluster.deadline() if deadline is None else deadline

        async def attempt() -> Any:
            broker_id = await cluster.coordinators.find(kind, key, deadline=limit)
            try:
                response = await cluster.send(broker_id, request, deadline=limit, max_version=max_version)
            except KafkaError as error:
                cluster.coordinators.note_error(kind, key, error.code)
                raise
            for number in codes(response):
                code = error_code(number)
                cluster.coordinators.note_error(kind, key, code)
                if code is ErrorCode.INVALID_PRODUCER_EPOCH:
                    code = ErrorCode.PRODUCER_FENCED  # from a coordinator the two codes mean the same
                if code is not ErrorCode.NONE:
                    raise KafkaError(code, f"{what} of {self.transactional_id!r}: {code.message}")
            return response

        return await cluster.retrying(f"{what} of {self.transactional_id!r}", attempt, deadline=limit)

    def _require(self, *states: State) -> None:
        if self.state in states:
            return
        if self.state is State.FATAL and self.error is not None:
            raise self.error
        raise TransactionStateError(
            f"This producer is {self.state.value}; the call needs it to be {' or '.join(s.value for s in states)}."
        )

    def _cannot_commit(self) -> BarnabasError:
        if self.state is State.FATAL and self.error is not None:
            return self.error
        failure = TransactionAbortedError(
            f"The transaction cannot be committed, because a part of it failed: {self.error} Abort it, and do its work"
            " again in a new one."
        )
        failure.__cause__ = self.error
        return failure
