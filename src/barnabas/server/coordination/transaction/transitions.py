"""Machine: the decisions about one transactional id: from a state and a request to the next state.

Each function is pure. It returns the new `TransactionMetadata`, or raises the `KafkaError` for the producer. Which of
the two, for a state and the age of the request's epoch, is in the grids of `answers`; this module computes the age and
carries the answer out. The rules are those of Kafka's TransactionCoordinator and TransactionMetadata. Comments refer to
KIP-360 (a producer recovers with its current id), KIP-890 (version 2: each transaction has its own epoch) and KIP-939
(an external coordinator decides).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from barnabas.core.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.core.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from barnabas.server.coordination.transaction import answers
from barnabas.server.coordination.transaction.answers import EPOCH_BUMPS_SINCE, Answer, EpochAge
from barnabas.server.coordination.transaction.state import (
    EPOCH_MAX,
    FOLLOWS,
    IDLE,
    NO_TIMEOUT_MS,
    PREPARED,
    TransactionMetadata,
    TxnState,
    is_exhausted,
)


class ProducerIdNeededError(BarnabasError):
    """The decision needs a new producer id. The caller allocates one and repeats the call."""


class InitProducerIdArgs(Struct, frozen=True):
    """The fields of an InitProducerId request."""

    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH
    two_phase: bool = False
    keep_prepared: bool = False

    @property
    def recovers(self) -> bool:
        """Whether a running producer recovers with its current id (KIP-360). Otherwise it is a new incarnation."""
        return self.producer_id != NO_PRODUCER_ID


def _move(txn: TransactionMetadata, state: TxnState, **changes: Any) -> TransactionMetadata:
    assert txn.state in FOLLOWS[state], f"{state.label} cannot follow {txn.state.label}"
    return replace(txn, state=state, previous_producer_id=txn.producer_id, **changes)


def _fresh(producer_id: int) -> int:
    if producer_id == NO_PRODUCER_ID:
        raise ProducerIdNeededError
    return producer_id


def _raise_error(answer: Answer) -> None:
    """Raise the KafkaError of an answer that is an error."""
    code = answers.ERRORS.get(answer)
    if code is not None:
        raise KafkaError(code)


# -- InitProducerId ----------------------------------------------------------------------------------------------------


def initialize(
    txn: TransactionMetadata | None,
    args: InitProducerIdArgs,
    fresh_id: int,
    now_ms: int,
    version: int = EPOCH_BUMPS_SINCE,
) -> TransactionMetadata:
    """InitProducerId: the transactional id in state Empty, with a new producer epoch. `version` is the cluster's
    finalized transaction.version.

    If a transaction is open, the result is the abort of that transaction instead (or, with KIP-939, the kept
    transaction). The caller returns CONCURRENT_TRANSACTIONS for an abort, so that the producer retries.
    """
    timeout_ms = NO_TIMEOUT_MS if args.two_phase else args.timeout_ms
    grid = answers.RECOVER if args.recovers else answers.INIT_PRODUCER_ID
    answer = grid[None if txn is None else txn.state][EpochAge.NEW if not args.recovers else _recovering_age(txn, args)]
    _raise_error(answer)
    if txn is None:
        txn = TransactionMetadata(_fresh(fresh_id))
    if answer is Answer.FENCE:
        return _keep(txn, timeout_ms, fresh_id, now_ms) if args.keep_prepared else fence(txn, now_ms, version)
    changes: dict[str, Any] = {
        "timeout_ms": timeout_ms,
        "partitions": frozenset(),
        "started_ms": -1,
        "updated_ms": now_ms,
    }
    if answer is Answer.SAME:
        again = _move(txn, TxnState.EMPTY, **changes)
        return replace(again, previous_producer_id=txn.previous_producer_id)
    assert answer is Answer.EPOCH
    last = txn.epoch if args.recovers else NO_PRODUCER_EPOCH
    if is_exhausted(txn.epoch):
        return _move(txn, TxnState.EMPTY, producer_id=_fresh(fresh_id), epoch=0, last_epoch=last, **changes)
    return _move(txn, TxnState.EMPTY, epoch=txn.epoch + 1, last_epoch=last, **changes)


def _recovering_age(txn: TransactionMetadata | None, args: InitProducerIdArgs) -> EpochAge:
    """The age of the producer id and epoch in an InitProducerId."""
    if txn is None or txn.epoch == NO_PRODUCER_EPOCH:
        return EpochAge.CURRENT
    current_id, current_epoch = txn.identity
    if (args.producer_id, args.epoch) == (current_id, current_epoch):
        return EpochAge.CURRENT
    exchanged = args.producer_id == txn.previous_producer_id and is_exhausted(args.epoch)
    if args.producer_id not in (current_id, txn.producer_id) and not exchanged:
        return EpochAge.OTHER
    if args.epoch == txn.last_epoch:  # a new incarnation would have cleared last_epoch
        return EpochAge.LAST
    return EpochAge.NEWER if args.producer_id == current_id and args.epoch > current_epoch else EpochAge.OLDER


def _keep(txn: TransactionMetadata, timeout_ms: int, fresh_id: int, now_ms: int) -> TransactionMetadata:
    """KIP-939: a new incarnation keeps the prepared transaction, and will end it."""
    producer_id, epoch = txn.identity
    producer_id, epoch = (_fresh(fresh_id), 0) if is_exhausted(epoch) else (producer_id, epoch + 1)
    return _move(
        txn,
        TxnState.ONGOING,
        next_producer_id=producer_id,
        next_epoch=epoch,
        last_epoch=NO_PRODUCER_EPOCH,
        timeout_ms=timeout_ms,
        updated_ms=now_ms,
    )


def fence(txn: TransactionMetadata, now_ms: int, version: int = EPOCH_BUMPS_SINCE) -> TransactionMetadata:
    """Abort the open transaction and fence its producer (Kafka's PrepareEpochFence and PrepareAbort in one step).

    If the fenced producer itself aborts with an EndTxn of version 2, the request is handled as a retry, and the
    response has the new epoch; likewise for an InitProducerId that recovers, in a cluster of version 2. So a producer
    that was only slow can continue. With version 1 it gets PRODUCER_FENCED. A new incarnation increments the epoch
    again, which fences the old producer for good. The highest epoch is given to no producer.
    """
    aborted = _prepare(txn, TxnState.PREPARE_ABORT, version, NO_PRODUCER_ID, now_ms, fencing=True)
    if version >= EPOCH_BUMPS_SINCE and aborted.epoch < EPOCH_MAX:
        return aborted
    return replace(aborted, last_epoch=NO_PRODUCER_EPOCH)


# -- partitions --------------------------------------------------------------------------------------------------------


def check_producer(
    txn: TransactionMetadata | None, producer_id: int, epoch: int, grid: answers.Grid = answers.VERIFY_PARTITIONS
) -> TransactionMetadata:
    """Check that the request is from the current incarnation of the producer, and that no transaction is ending. Raises
    KafkaError."""
    _raise_error(grid[None if txn is None else txn.state][_age(txn, producer_id, epoch)])
    assert txn is not None
    return txn


def add_partitions(
    txn: TransactionMetadata | None,
    producer_id: int,
    epoch: int,
    partitions: Iterable[TopicPartition],
    version: int,
    now_ms: int,
) -> TransactionMetadata:
    """AddPartitionsToTxn: the transaction with these partitions, which is begun if none is open. Returns the same
    object if nothing changes."""
    txn = check_producer(txn, producer_id, epoch, answers.ADD_PARTITIONS)
    if txn.kept:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE, "A prepared transaction must be ended before the next one begins."
        )
    added = txn.partitions.union(partitions)
    if txn.state is TxnState.ONGOING and added == txn.partitions:
        return txn
    return _move(
        txn,
        TxnState.ONGOING,
        partitions=added,
        started_ms=txn.started_ms if txn.state is TxnState.ONGOING else now_ms,
        updated_ms=now_ms,
        client_version=version,
    )


# -- EndTxn ------------------------------------------------------------------------------------------------------------


def end(
    txn: TransactionMetadata | None,
    producer_id: int,
    epoch: int,
    *,
    commit: bool,
    version: int,
    fresh_id: int,
    now_ms: int,
) -> TransactionMetadata:
    """EndTxn: the prepared transaction, or the same object if the request repeats a completed one. Raises
    KafkaError."""
    grid = answers.end_grid(version, commit=commit)
    answer = grid[None if txn is None else txn.state][_age(txn, producer_id, epoch)]
    if answer is Answer.INVALID and txn is not None:
        message = f"A transaction in state {txn.state.label} cannot be {_verb(commit)}."
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, message)
    _raise_error(answer)
    assert txn is not None
    if answer is Answer.DONE:
        return txn
    assert answer is Answer.PREPARE
    decision = TxnState.PREPARE_COMMIT if commit else TxnState.PREPARE_ABORT
    return _prepare(txn, decision, version, fresh_id, now_ms)


def _verb(commit: bool) -> str:
    return "committed" if commit else "aborted"


def _age(txn: TransactionMetadata | None, producer_id: int, epoch: int) -> EpochAge:
    """The age of the producer id and epoch in any request but InitProducerId."""
    if txn is None:
        return EpochAge.OTHER
    current_id, current_epoch = txn.identity
    if (producer_id, epoch) == (current_id, current_epoch):
        return EpochAge.CURRENT
    if _is_last(txn, producer_id, epoch):
        return EpochAge.LAST
    if producer_id not in (current_id, txn.producer_id):
        return EpochAge.OTHER
    return EpochAge.NEWER if producer_id == current_id and epoch > current_epoch else EpochAge.OLDER


def _is_last(txn: TransactionMetadata, producer_id: int, epoch: int) -> bool:
    """Whether the request has the epoch that the producer had before this coordinator incremented it."""
    if producer_id == txn.producer_id:
        # the highest epoch belongs to no producer: the epoch was incremented for fencing
        return txn.epoch == epoch + 1 and (txn.state in PREPARED or txn.epoch < EPOCH_MAX)
    return producer_id == txn.previous_producer_id and epoch == EPOCH_MAX - 1 and txn.epoch == 0


def _prepare(
    txn: TransactionMetadata, decision: TxnState, version: int, fresh_id: int, now_ms: int, *, fencing: bool = False
) -> TransactionMetadata:
    """The transaction in state PrepareCommit or PrepareAbort. `epoch` becomes the epoch of the markers;
    `next_producer_id` is set only if the producer continues with another id."""
    steps = 1 if fencing or version >= EPOCH_BUMPS_SINCE else 0
    producer_id, epoch = txn.identity
    marker_epoch = min((epoch if producer_id == txn.producer_id else txn.epoch) + steps, EPOCH_MAX)
    next_id, next_epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
    if producer_id != txn.producer_id:  # KIP-939: the incarnation that kept the transaction has a new id
        next_id, next_epoch = producer_id, epoch + steps
    elif steps and not fencing and is_exhausted(epoch):
        next_id = _fresh(fresh_id)
    return _move(
        txn,
        decision,
        epoch=marker_epoch,
        next_producer_id=next_id,
        next_epoch=next_epoch,
        last_epoch=epoch if steps else txn.last_epoch,
        started_ms=txn.started_ms if txn.state is TxnState.ONGOING else now_ms,
        partitions=txn.partitions if txn.state is TxnState.ONGOING else frozenset(),
        updated_ms=now_ms,
        client_version=version,
    )


def complete(txn: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """The completed transaction: all markers are written."""
    producer_id, epoch = txn.identity_after
    done = TxnState.COMPLETE_COMMIT if txn.state is TxnState.PREPARE_COMMIT else TxnState.COMPLETE_ABORT
    return _move(
        txn,
        done,
        producer_id=producer_id,
        epoch=epoch,
        next_producer_id=NO_PRODUCER_ID,
        next_epoch=NO_PRODUCER_EPOCH,
        partitions=frozenset(),
        updated_ms=now_ms,
    )


def has_timed_out(txn: TransactionMetadata, now_ms: int) -> bool:
    return txn.state is TxnState.ONGOING and not txn.is_two_phase and txn.started_ms + txn.timeout_ms <= now_ms


def has_expired(txn: TransactionMetadata, expiration_ms: int, now_ms: int) -> bool:
    return txn.state in IDLE and txn.updated_ms + expiration_ms <= now_ms
