"""Machine: the decisions of the exactly-once sink. Nothing here does I/O; `driver.py` carries the decisions out.

    task       one transaction for each attempt; its message names the transaction, which stays open
    driver     commit: write the decision {batch, transactions, done: false} into the ledger    (point of no return)
               commit each transaction, which may be repeated; write {batch, done: true}
               recover, before the tasks of each micro-batch: commit what was decided and is not done, then begin a
               new generation, then abort all other transactions of the query
               abort: abort the transactions, unless they were decided; if tasks have not finished, recover

A micro-batch is decided at most once, because a decision is made in a transaction of the ledger's writer, which is
fenced by the next writer (InitProducerId), after the writer has read the newest record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import assert_never

from barnabas.client.values import HandedOverTransaction
from barnabas.spark.delivery.identity import Standing
from barnabas.spark.delivery.records import DeliveryState, Progress


class Ended(Enum):
    """What the coordinator answered to the commit of a decided transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    """It was aborted, or its producer was fenced: none of its records is visible."""
    UNKNOWN = "unknown"
    """The coordinator has forgotten the transactional id."""


class Verdict(Enum):
    """What is to be done with a micro-batch whose tasks have finished."""

    DECIDE = "decide"
    REPLAYED = "replayed"
    """The micro-batch was decided before: its new transactions are aborted."""
    SUPERSEDED = "superseded"
    """Another driver has begun a new generation since the micro-batch was planned."""
    CONFLICT = "conflict"
    """The ledger and the checkpoint do not belong together: see `identity.py`."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """The end of a decided micro-batch: the next record of the ledger, and the transactions whose rows are lost.

    `state` is None if rows are lost: then the decision stays in the ledger until the user accepts the loss
    (failOnDataLoss=false).
    """

    state: DeliveryState | None
    lost: tuple[HandedOverTransaction, ...] = ()
    withdrawn: bool = False
    repeated: tuple[HandedOverTransaction, ...] = ()
    """Transactions that the brokers have aborted, whose records are read again: their progress does not count."""
    progress: tuple[str, ...] = ()
    """The progress that counts now, because its transactions are committed."""


def needs_recovery(state: DeliveryState, open_ids: Collection[str]) -> bool:
    """Whether something of an earlier driver, or of a lost task attempt, is left."""
    return not state.done or bool(open_ids)


def next_generation(state: DeliveryState) -> DeliveryState:
    """The record after which no transaction of an earlier driver can be decided, so that they may be aborted."""
    assert state.done, "the decided transactions must be committed first"
    return replace(state, generation=state.generation + 1, transactions=(), progress=())


def judge(state: DeliveryState, standing: Standing, generation: int) -> Verdict:
    """Whether a micro-batch, planned in `generation`, is to be decided now. `state` is done and is the newest one;
    `standing` is how the micro-batch compares with it."""
    assert state.done, "an earlier decision must be carried out first"
    match standing:
        case Standing.PUBLISHED:
            return Verdict.REPLAYED
        case Standing.CONFLICT:
            return Verdict.CONFLICT
        case Standing.PUBLISH:
            return Verdict.DECIDE if generation == state.generation else Verdict.SUPERSEDED
        case _:
            assert_never(standing)


def missing(
    transactions: Iterable[HandedOverTransaction], standing: Mapping[str, HandedOverTransaction]
) -> tuple[HandedOverTransaction, ...]:
    """The transactions that cannot be committed any more. `standing` has the open transaction of each transactional id.

    A task attempt may have been fenced after it had finished: by an attempt of a repeated stage, or by a time-out.
    """
    return tuple(t for t in transactions if standing.get(t.transactional_id) != t)


def decided(
    state: DeliveryState,
    batch_id: int,
    transactions: Iterable[HandedOverTransaction],
    progress: Iterable[Progress] = (),
    identity: str | None = None,
) -> DeliveryState:
    """The decision: after this record is in the ledger, these transactions will be committed, and no others."""
    return replace(
        state,
        batch_id=batch_id,
        previous_batch_id=state.batch_id,
        identity=identity,
        previous_identity=state.identity,
        done=False,
        transactions=tuple(transactions),
        progress=tuple(progress),
    )


def settle(state: DeliveryState, ended: Mapping[HandedOverTransaction, Ended], *, accept_loss: bool) -> Settlement:
    """What follows from the answers to the commits of a decision.

    If the brokers have aborted all of the transactions, nothing of the micro-batch is visible. Then the decision is
    withdrawn, and Spark writes the micro-batch again. If they have aborted some of them, their rows are lost, unless
    the transactions have progress: then it does not count, and their rows are read again.
    """
    assert not state.done
    assert set(ended) == set(state.transactions)
    gone = tuple(t for t in state.transactions if ended[t] is not Ended.COMMITTED)
    done = replace(state, done=True, transactions=(), progress=(), previous_identity=None)
    missed = {t.transactional_id for t in gone}
    progress = tuple(p.text for p in state.progress if p.transactional_id not in missed)
    if not gone:
        return Settlement(done, progress=progress)
    if all(answer is Ended.ABORTED for answer in ended.values()) and not progress:
        before = replace(done, batch_id=state.previous_batch_id, identity=state.previous_identity)
        return Settlement(before, withdrawn=True)
    known = {p.transactional_id for p in state.progress}
    repeated = tuple(t for t in gone if t.transactional_id in known and ended[t] is Ended.ABORTED)
    lost = tuple(t for t in gone if t not in repeated)
    return Settlement(done if accept_loss or not lost else None, lost=lost, repeated=repeated, progress=progress)


def to_abort(state: DeliveryState, transactions: Iterable[HandedOverTransaction]) -> tuple[HandedOverTransaction, ...]:
    """The transactions that `abort` may abort: Spark calls it also after a commit that raised, and what was decided
    must not be aborted."""
    kept = set() if state.done else set(state.transactions)
    return tuple(t for t in transactions if t not in kept)
