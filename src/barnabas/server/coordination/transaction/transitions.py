"""Machine: the decisions about one transactional id: a state and a request in, the next state out.

Nothing here knows of logs or time beyond its arguments; every function returns the new `Transaction`, or raises the
`KafkaError` that the producer is told. The rules are those of Kafka's TransactionCoordinator and TransactionMetadata;
KIP-360 (a producer recovers with the id it has), KIP-890 (version 2: each transaction has an epoch of its own) and
KIP-939 (an outside coordinator decides) are marked where they come in.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from barnabas.core.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.core.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from barnabas.server.coordination.transaction.state import (
    EPOCH_MAX,
    FOLLOWS,
    IDLE,
    NO_TIMEOUT_MS,
    PREPARED,
    Transaction,
    TxnState,
    is_exhausted,
)

EPOCH_BUMPS_SINCE = 2
"""The transaction version from which EndTxn raises the epoch."""


class ProducerIdNeededError(BarnabasError):
    """The decision takes a fresh producer id, and none was given: get one and ask again."""


class Initialize(Struct, frozen=True):
    """What InitProducerId asks for."""

    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH
    two_phase: bool = False
    keep_prepared: bool = False

    @property
    def recovers(self) -> bool:
        """A producer that is alive and wants to go on (KIP-360), not a new incarnation."""
        return self.producer_id != NO_PRODUCER_ID


def _move(txn: Transaction, state: TxnState, **changes: Any) -> Transaction:
    assert txn.state in FOLLOWS[state], f"{state.label} cannot follow {txn.state.label}"
    return replace(txn, state=state, previous_producer_id=txn.producer_id, **changes)


def _fresh(producer_id: int) -> int:
    if producer_id == NO_PRODUCER_ID:
        raise ProducerIdNeededError
    return producer_id


# -- InitProducerId ----------------------------------------------------------------------------------------------------


def initialize(
    txn: Transaction | None, ask: Initialize, fresh_id: int, now_ms: int, version: int = EPOCH_BUMPS_SINCE
) -> Transaction:
    """The id with a new epoch. When a transaction is open, this is the abort that must come first: the caller sees it
    by the state, answers CONCURRENT_TRANSACTIONS, and the producer asks again. `version` is the cluster's.
    """
    timeout_ms = NO_TIMEOUT_MS if ask.two_phase else ask.timeout_ms
    if txn is None:
        txn = Transaction(_fresh(fresh_id))
    if ask.recovers and not _may_recover(txn, ask):
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if txn.state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if txn.state is TxnState.ONGOING:
        if ask.recovers and ask.epoch != txn.identity[1]:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        if ask.keep_prepared:
            return _keep(txn, timeout_ms, fresh_id, now_ms)
        return fence(txn, now_ms, version)
    changes: dict[str, Any] = {
        "timeout_ms": timeout_ms,
        "partitions": frozenset(),
        "started_ms": -1,
        "updated_ms": now_ms,
    }
    if is_exhausted(txn.epoch) and (not ask.recovers or ask.epoch == txn.epoch):
        last = txn.epoch if ask.recovers else NO_PRODUCER_EPOCH
        return _move(txn, TxnState.EMPTY, producer_id=_fresh(fresh_id), epoch=0, last_epoch=last, **changes)
    if not ask.recovers:
        return _move(txn, TxnState.EMPTY, epoch=txn.epoch + 1, last_epoch=NO_PRODUCER_EPOCH, **changes)
    if txn.epoch in (ask.epoch, NO_PRODUCER_EPOCH):
        return _move(txn, TxnState.EMPTY, epoch=txn.epoch + 1, last_epoch=txn.epoch, **changes)
    if ask.epoch == txn.last_epoch:  # its answer was lost; a new incarnation would have cleared last_epoch
        again = _move(txn, TxnState.EMPTY, **changes)
        return replace(again, previous_producer_id=txn.previous_producer_id)
    raise KafkaError(ErrorCode.PRODUCER_FENCED)


def _may_recover(txn: Transaction, ask: Initialize) -> bool:
    """The epoch is looked at when it is to be raised; here only whether this id can be meant."""
    if txn.epoch == NO_PRODUCER_EPOCH or ask.producer_id in (txn.producer_id, txn.identity[0]):
        return True
    return ask.producer_id == txn.previous_producer_id and is_exhausted(ask.epoch)


def _keep(txn: Transaction, timeout_ms: int, fresh_id: int, now_ms: int) -> Transaction:
    """KIP-939: a new incarnation takes over, and the prepared transaction stays for it to end."""
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


def fence(txn: Transaction, now_ms: int, version: int = EPOCH_BUMPS_SINCE) -> Transaction:
    """Abort the open transaction whatever its producer wants (PrepareEpochFence and PrepareAbort in one).

    The producer's own abort, should it come, is then answered like a repetition, and in version 2 with the new epoch: a
    producer that was only too slow can go on. A new incarnation raises the epoch once more, and ends that.
    """
    aborted = _prepare(txn, TxnState.PREPARE_ABORT, version, NO_PRODUCER_ID, now_ms, fencing=True)
    return replace(aborted, last_epoch=NO_PRODUCER_EPOCH)


# -- partitions --------------------------------------------------------------------------------------------------------


def check_producer(txn: Transaction | None, producer_id: int, epoch: int) -> Transaction:
    """It is the rightful producer that asks, and no transaction is ending. Raises KafkaError."""
    if txn is None:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    rightful_id, rightful_epoch = txn.identity
    if producer_id not in (rightful_id, txn.producer_id):
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if (producer_id, epoch) != (rightful_id, rightful_epoch):
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if txn.state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    return txn


def add_partitions(
    txn: Transaction | None,
    producer_id: int,
    epoch: int,
    partitions: Iterable[TopicPartition],
    version: int,
    now_ms: int,
) -> Transaction:
    """The transaction with these partitions in it, begun if need be; the same object when nothing changes."""
    txn = check_producer(txn, producer_id, epoch)
    if txn.kept:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, "A prepared transaction must be ended before the next begins.")
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
    txn: Transaction | None, producer_id: int, epoch: int, *, commit: bool, version: int, fresh_id: int, now_ms: int
) -> Transaction:
    """The transaction, decided; the same object when this is a repetition of what is done. Raises KafkaError.

    Version 2, where r is a request with the epoch before (a retry) and c one with the present epoch:

                        abort r     abort c     commit r    commit c
        Empty           fenced      abort       fenced      invalid
        CompleteAbort   done        abort       invalid     invalid
        CompleteCommit  invalid     abort       done        invalid
        Ongoing         fenced      abort       fenced      commit
        Prepare...      CONCURRENT_TRANSACTIONS for a retry of the same decision, invalid for the other one

    Version 1 knows no retries by epoch: in Complete... the same decision again is done, the other one invalid.
    """
    if txn is None:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    bumps = version >= EPOCH_BUMPS_SINCE
    retry = bumps and _is_retry(txn, producer_id, epoch)
    rightful_id, rightful_epoch = txn.identity
    if not retry and producer_id not in (rightful_id, txn.producer_id):
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    current = (producer_id, epoch) == (rightful_id, rightful_epoch)
    decision = TxnState.PREPARE_COMMIT if commit else TxnState.PREPARE_ABORT
    done = TxnState.COMPLETE_COMMIT if commit else TxnState.COMPLETE_ABORT
    match txn.state:
        case TxnState.PREPARE_COMMIT | TxnState.PREPARE_ABORT:
            if not (retry if bumps else current):
                raise KafkaError(ErrorCode.PRODUCER_FENCED)
            if txn.state is decision:
                raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        case TxnState.COMPLETE_COMMIT | TxnState.COMPLETE_ABORT:
            if not (retry or current):
                raise KafkaError(ErrorCode.PRODUCER_FENCED)
            if txn.state is done and (retry or not bumps):
                return txn
            if bumps and current and not commit:
                return _prepare(txn, decision, version, fresh_id, now_ms)
        case TxnState.EMPTY:
            if not current:
                raise KafkaError(ErrorCode.PRODUCER_FENCED)
            if bumps and not commit:  # a transaction that never reached a partition
                return _prepare(txn, decision, version, fresh_id, now_ms)
        case _:
            if not current:
                raise KafkaError(ErrorCode.PRODUCER_FENCED)
            return _prepare(txn, decision, version, fresh_id, now_ms)
    raise KafkaError(
        ErrorCode.INVALID_TXN_STATE, f"A transaction in state {txn.state.label} cannot be {_verb(commit)}."
    )


def _verb(commit: bool) -> str:
    return "committed" if commit else "aborted"


def _is_retry(txn: Transaction, producer_id: int, epoch: int) -> bool:
    """The request names the epoch that the producer had before this coordinator raised it."""
    if txn.state in PREPARED and txn.next_producer_id == producer_id:
        return txn.next_epoch == epoch + 1
    if producer_id == txn.producer_id:
        # no producer may have the last epoch: it was raised to that by a fence
        return txn.epoch == epoch + 1 and (txn.state in PREPARED or txn.epoch < EPOCH_MAX)
    return producer_id == txn.previous_producer_id and epoch == EPOCH_MAX - 1 and txn.epoch == 0


def _prepare(
    txn: Transaction, decision: TxnState, version: int, fresh_id: int, now_ms: int, *, fencing: bool = False
) -> Transaction:
    """`epoch` becomes the markers', and `next_…` is left only where the producer goes on with another id."""
    steps = 1 if fencing or version >= EPOCH_BUMPS_SINCE else 0
    producer_id, epoch = txn.identity
    marker_epoch = min((epoch if producer_id == txn.producer_id else txn.epoch) + steps, EPOCH_MAX)
    next_id, next_epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
    if producer_id != txn.producer_id:  # KIP-939: the incarnation that kept the transaction got a fresh id
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


def complete(txn: Transaction, now_ms: int) -> Transaction:
    """All markers are written."""
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


def has_timed_out(txn: Transaction, now_ms: int) -> bool:
    return txn.state is TxnState.ONGOING and not txn.is_two_phase and txn.started_ms + txn.timeout_ms <= now_ms


def has_expired(txn: Transaction, expiration_ms: int, now_ms: int) -> bool:
    return txn.state in IDLE and txn.updated_ms + expiration_ms <= now_ms
