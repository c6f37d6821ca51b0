"""Machine: the transactional ids of one partition of `__transaction_state`.

`TransactionShard` implements the runtime's `CoordinatorShard`. `transitions` makes the decisions. This module looks up
the transactional ids, writes records, handles timeouts and expiry, and passes prepared transactions to the marker queue
when the decision is committed. A marker that is sent earlier could exist without its decision.

Each request of a producer sets `op.wait_for_pending`: an answer like PRODUCER_FENCED, which ends the producer, is sent
only when the records that it was read from are committed, because they may still be rolled back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import NO_PRODUCER_ID, TopicPartition
from barnabas.protocol.wire.messages.end_txn import EndTxnResponse
from barnabas.protocol.wire.messages.init_producer_id import InitProducerIdResponse
from barnabas.server.coordination.operation import CoordinatorRecord, TimerKey, WriteOperation
from barnabas.server.coordination.ports import ProducerIdAndEpoch
from barnabas.server.coordination.timeline import Timeline, TimelineMap
from barnabas.server.coordination.transaction import transitions
from barnabas.server.coordination.transaction.answers import EPOCH_BUMPS_SINCE
from barnabas.server.coordination.transaction.config import TransactionConfig
from barnabas.server.coordination.transaction.ports import MarkerJob, MarkerQueue
from barnabas.server.coordination.transaction.records import FORMAT, TransactionLogKey
from barnabas.server.coordination.transaction.state import (
    PREPARED,
    TransactionMetadata,
    TxnState,
    from_record,
    to_record,
)
from barnabas.server.coordination.transaction.transitions import InitProducerIdArgs

ABORT_TIMER: Final[TimerKey] = ("abort",)
EXPIRE_TIMER: Final[TimerKey] = ("expire",)
EXPIRED_PER_OPERATION: Final = 1_000
"""The number of expired ids that one operation removes. Further ids are removed at once by the next operation."""


class TransactionShard:
    """The transactional ids of one partition."""

    log_format = FORMAT

    def __init__(
        self,
        state_partition: int,
        config: TransactionConfig,
        timeline: Timeline,
        markers: MarkerQueue,
        feature_level: Callable[[], int],
    ) -> None:
        self.state_partition = state_partition
        self.config = config
        self.transactions: TimelineMap[str, TransactionMetadata] = TimelineMap(timeline)
        self._ongoing: TimelineMap[str, None] = TimelineMap(timeline)
        """The keys of `transactions` in state ONGOING, so that a search for timeouts does not visit all ids."""
        self._markers = markers
        self._feature_level = feature_level
        self._newest_connection: dict[str, int] = {}
        """Transactional id -> the newest connection that has added partitions to its open transaction. Not in the log,
        because connections are volatile."""

    # -- requests of producers -------------------------------------------------------------------------------------

    def init_producer_id(
        self, op: WriteOperation, transactional_id: str, args: InitProducerIdArgs, fresh_id: int = NO_PRODUCER_ID
    ) -> InitProducerIdResponse:
        """Handle InitProducerId. Raises KafkaError, ProducerIdNeededError."""
        op.wait_for_pending = True
        before = self.transactions.get(transactional_id)
        if before is not None and before.state is TxnState.ONGOING and not args.keep_prepared:
            checked = transitions.initialize(before, args, fresh_id, op.now_ms, self._feature_level())
            self._prepare(op, transactional_id, checked)
            return InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS, producer_epoch=-1)
        after = transitions.initialize(before, args, fresh_id, op.now_ms, self._feature_level())
        self._put(op, transactional_id, after)
        producer_id, epoch = after.identity
        response = InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)
        if after.kept:
            response.ongoing_txn_producer_id = after.producer_id
            response.ongoing_txn_producer_epoch = after.epoch
        return response

    def add_partitions(
        self,
        op: WriteOperation,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
        version: int,
        connection: int = 0,
    ) -> ErrorCode:
        """Handle AddPartitionsToTxn. Raises KafkaError."""
        op.wait_for_pending = True
        before = self.transactions.get(transactional_id)
        after = transitions.add_partitions(before, producer.producer_id, producer.epoch, partitions, version, op.now_ms)
        if after is not before:
            self._put(op, transactional_id, after)
        self._newest_connection[transactional_id] = max(connection, self._newest_connection.get(transactional_id, 0))
        return ErrorCode.NONE

    def verify_partitions(
        self,
        op: WriteOperation,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        """For each partition NONE if the producer's open transaction contains the partition, else TRANSACTION_ABORTABLE
        (KIP-890). Raises KafkaError."""
        op.wait_for_pending = True
        txn = transitions.check_producer(self.transactions.get(transactional_id), producer.producer_id, producer.epoch)
        return {tp: ErrorCode.NONE if tp in txn.partitions else ErrorCode.TRANSACTION_ABORTABLE for tp in partitions}

    def end_txn(
        self,
        op: WriteOperation,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        *,
        commit: bool,
        version: int,
        connection: int = 0,
        fresh_id: int = NO_PRODUCER_ID,
    ) -> EndTxnResponse:
        """Handle EndTxn. Raises KafkaError, ProducerIdNeededError."""
        op.wait_for_pending = True
        before = self.transactions.get(transactional_id)
        after = transitions.end(
            before,
            producer.producer_id,
            producer.epoch,
            commit=commit,
            version=version,
            fresh_id=fresh_id,
            now_ms=op.now_ms,
        )
        if after is not before:
            self._reject_delayed(transactional_id, before, version, connection)
            self._prepare(op, transactional_id, after)
        producer_id, epoch = after.identity_after
        return EndTxnResponse(producer_id=producer_id, producer_epoch=epoch)

    def _reject_delayed(
        self, transactional_id: str, txn: TransactionMetadata | None, version: int, connection: int
    ) -> None:
        """Reject a delayed EndTxn of an earlier transaction. Raises KafkaError INVALID_TXN_STATE.

        Before transaction version 2 an EndTxn does not identify its transaction, because all transactions of a producer
        have the same producer id and epoch. But a client never returns to a connection that it has replaced. So an
        EndTxn on an older connection than the newest one that has added partitions to the open transaction belongs to
        an earlier transaction, which has already ended.
        """
        newest = self._newest_connection.get(transactional_id, 0)
        if (
            version < EPOCH_BUMPS_SINCE
            and txn is not None
            and txn.state is TxnState.ONGOING
            and 0 < connection < newest
        ):
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                "This EndTxn was received on a connection that the producer closed before the open transaction.",
            )

    # -- records and markers -----------------------------------------------------------------------------------------

    def _put(self, op: WriteOperation, transactional_id: str, txn: TransactionMetadata) -> None:
        op.write(to_record(transactional_id, txn, 1 if self._feature_level() >= 1 else 0))

    def _prepare(self, op: WriteOperation, transactional_id: str, txn: TransactionMetadata) -> None:
        """Write the decision. The markers are sent when the decision is committed."""
        self._put(op, transactional_id, txn)
        op.append_callback = partial(self._queue_markers, transactional_id)

    def _queue_markers(self, transactional_id: str, op: WriteOperation, code: ErrorCode) -> None:
        txn = self.transactions.get(transactional_id)
        if code is not ErrorCode.NONE or txn is None or txn.state not in PREPARED:
            return
        # also without partitions, because the queue retries if the completion cannot be written
        self._markers.put(
            MarkerJob(
                self.state_partition,
                transactional_id,
                txn.producer_id,
                txn.epoch,
                txn.state is TxnState.PREPARE_COMMIT,
                txn.client_version,
                txn.partitions,
            )
        )

    def markers_written(self, op: WriteOperation, job: MarkerJob) -> None:
        """Write the completion: each partition of the job has its marker or has been deleted."""
        txn = self.transactions.get(job.transactional_id)
        if txn is not None and txn.state in PREPARED and (txn.producer_id, txn.epoch) == (job.producer_id, job.epoch):
            self._put(op, job.transactional_id, transitions.complete(txn, op.now_ms))

    # -- CoordinatorShard --------------------------------------------------------------------------------------------

    def apply(self, record: CoordinatorRecord, offset: int, producer_id: int) -> None:
        key, value = record.key, record.value
        assert isinstance(key, TransactionLogKey)
        transactional_id = key.transactional_id
        if value is None:
            self.transactions.pop(transactional_id)
            self._ongoing.pop(transactional_id)
            self._newest_connection.pop(transactional_id, None)
            return
        txn = self.transactions[transactional_id] = from_record(value)
        if txn.state is not TxnState.ONGOING:
            self._ongoing.pop(transactional_id)
        elif transactional_id not in self._ongoing:
            self._ongoing[transactional_id] = None

    def apply_marker(self, producer: ProducerIdAndEpoch, *, committed: bool) -> None:
        """Does nothing, because `__transaction_state` has no transactional records."""

    def on_loaded(self, op: WriteOperation) -> None:
        config = self.config
        op.schedule(ABORT_TIMER, config.transaction_abort_timed_out_transaction_cleanup_interval_ms)
        op.schedule(EXPIRE_TIMER, config.transaction_remove_expired_transaction_cleanup_interval_ms, retry=True)
        decided = [name for name, txn in self.transactions.items() if txn.state in PREPARED]
        for transactional_id in sorted(decided):
            op.schedule(("markers", transactional_id), 0, retry=True)

    def on_timer(self, op: WriteOperation, key: TimerKey) -> None:
        match key:
            case ("abort",):
                op.schedule(ABORT_TIMER, self.config.transaction_abort_timed_out_transaction_cleanup_interval_ms)
                for transactional_id in sorted(self._ongoing):
                    if transitions.has_timed_out(self.transactions[transactional_id], op.now_ms):
                        op.schedule(("timeout", transactional_id), 0)
            case ("timeout", transactional_id):
                txn = self.transactions.get(transactional_id)
                if txn is not None and transitions.has_timed_out(txn, op.now_ms):
                    self._prepare(op, transactional_id, transitions.fence(txn, op.now_ms, self._feature_level()))
            case ("markers", transactional_id):  # prepared by a previous coordinator; wait until that is committed
                op.append_callback = partial(self._queue_markers, transactional_id)
            case ("expire",):
                self._expire(op)

    def _expire(self, op: WriteOperation) -> None:
        config = self.config
        expired = [
            name
            for name, txn in self.transactions.items()
            if transitions.has_expired(txn, config.transactional_id_expiration_ms, op.now_ms)
        ]
        for transactional_id in sorted(expired)[:EXPIRED_PER_OPERATION]:
            op.write(CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id), None))
        more = len(expired) > EXPIRED_PER_OPERATION
        wait_ms = 0 if more else config.transaction_remove_expired_transaction_cleanup_interval_ms
        op.schedule(EXPIRE_TIMER, wait_ms, retry=True)

    def on_unloaded(self, op: WriteOperation) -> None:
        self._markers.drop(self.state_partition)
