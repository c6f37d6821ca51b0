"""Shell: the driver's part of the exactly-once sink: carries out the decisions of `decisions.py` over the ports."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from barnabas.client.values import HandedOverTransaction
from barnabas.core.errors import KafkaError
from barnabas.spark.delivery import decisions
from barnabas.spark.delivery.decisions import Settlement, Verdict
from barnabas.spark.delivery.identity import (
    NOTHING_PUBLISHED,
    BatchConflict,
    BatchHistory,
    LedgerEntry,
    Standing,
    compare,
    compare_with_parent,
    conflict_error,
    encode_entry,
    entry_of,
)
from barnabas.spark.delivery.names import SinkName
from barnabas.spark.delivery.ports import CompanionRecord, Ledger, LedgerFencedError, OpenTransactions
from barnabas.spark.delivery.records import DeliveryState, Progress
from barnabas.spark.errors import DeliveryError

log = logging.getLogger("barnabas.spark")

TAKEOVERS_MAX = 3
"""How often an operation begins again after another writer has fenced this one's ledger id."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A micro-batch whose tasks have finished. `generation` is the ledger's generation in which it was planned."""

    batch_id: int
    generation: int
    transactions: tuple[HandedOverTransaction, ...]
    progress: tuple[Progress, ...] = ()
    history: BatchHistory | None = None
    """The checkpoint of the query; None for writers without one, and if it cannot be read."""


class DeliveryDriver:
    """Recovers, commits and aborts the micro-batches of queries.

    `target` names the ledger in messages, and in what a repair decides. `record_progress` makes the records by which
    committed progress is kept in the target cluster. They are written in the transaction of the ledger that confirms
    the commits.
    """

    def __init__(
        self,
        ledger: Ledger,
        transactions: OpenTransactions,
        *,
        accept_loss: bool = False,
        target: str = "the cluster",
        record_progress: Callable[[Sequence[str]], Sequence[CompanionRecord]] = lambda _: (),
    ) -> None:
        self._ledger = ledger
        self._transactions = transactions
        self._accept_loss = accept_loss
        self._target = target
        self._record_progress = record_progress

    async def recover(self, name: SinkName) -> int:
        """Commit what earlier drivers have decided, and abort the other open transactions of the query. Returns the
        generation for the micro-batch that is planned now. Raises DeliveryError and KafkaError.

        Called before the tasks of every micro-batch, and after one that ended with unfinished tasks. Usually nothing is
        left, which two requests show.
        """
        state, open_ids = await asyncio.gather(self._ledger.read(name), self._transactions.open_ids(name))
        if not decisions.needs_recovery(state, open_ids):
            return state.generation
        return (await self._begin_generation(name, open_ids, always=False)).generation

    async def take_over(self, name: SinkName) -> DeliveryState:
        """As `recover`, but a new generation always begins, so that no earlier driver of the name can commit any more.
        For writers that Spark's checkpoint does not number: the state has the newest micro-batch and the generation."""
        return await self._begin_generation(name, await self._transactions.open_ids(name), always=True)

    async def _begin_generation(self, name: SinkName, open_ids: Collection[str], *, always: bool) -> DeliveryState:
        for _ in range(TAKEOVERS_MAX):
            try:
                settled = (await self._carry_out(name, await self._ledger.acquire(name))).state
                # These belong to earlier generations, because the next one is not in the ledger yet. As soon as it is,
                # no driver can decide them, and they may be aborted. Transactions that begin later are not touched.
                orphans = await self._transactions.standing(open_ids)
                assert settled is not None, "lost rows are an error"
                state = decisions.next_generation(settled)
                await self._ledger.write(name, state)
            except LedgerFencedError:
                state, open_ids = await self._ledger.read(name), await self._transactions.open_ids(name)
                if always or decisions.needs_recovery(state, open_ids):
                    continue
                return state
            if orphans:
                log.warning("aborting %d transactions that task attempts of %s left open", len(orphans), name.query_id)
            await self._abort_all(list(orphans.values()))
            return state
        raise self._contended(name)

    async def commit(self, name: SinkName, batch: MicroBatch) -> Verdict:
        """Commit a micro-batch, unless it was committed before: DECIDE or REPLAYED. Raises DeliveryError and
        KafkaError; then it is undecided whether the micro-batch is committed, which the next `recover` decides.

        A micro-batch without transactions has no rows, and is not entered in the ledger unless it has progress.
        """
        if not batch.transactions and not batch.progress:
            return Verdict.DECIDE
        held = self._ledger.held(name)
        if held is not None and (not held.done or await self._judge(name, held, batch) is not Verdict.DECIDE):
            held = None
        for _ in range(TAKEOVERS_MAX):
            try:
                return await self._commit(name, batch, held)
            except LedgerFencedError:
                held = None  # the ledger says whether the decision was written, or what another writer has decided
        raise self._contended(name)

    async def _commit(self, name: SinkName, batch: MicroBatch, held: DeliveryState | None) -> Verdict:
        """One attempt of `commit`, from the state that this writer holds. Raises LedgerFencedError."""
        state = held or (await self._carry_out(name, await self._ledger.acquire(name))).state
        assert state is not None
        verdict = await self._judge(name, state, batch)
        if verdict is not Verdict.DECIDE:
            await self._abort_all(batch.transactions)
            self._explain(name, batch, state, verdict)
            return verdict
        await self._check_standing(name, batch)
        identity = None if batch.history is None else encode_entry(entry_of(batch.batch_id, batch.history))
        state = decisions.decided(state, batch.batch_id, batch.transactions, batch.progress, identity)
        await self._ledger.write(name, state)  # the point of no return
        await self._carry_out(name, state, withdraw=False)
        return verdict

    async def abort(self, name: SinkName, transactions: Sequence[HandedOverTransaction]) -> None:
        """Abort the transactions of a failed micro-batch. Decided transactions stay as they are: Spark calls `abort`
        also after a `commit` that raised."""
        if not transactions:
            return
        state = await self._ledger.acquire(name)
        await self._abort_all(decisions.to_abort(state, transactions))

    async def forget(self, name: SinkName) -> None:
        """Remove the record of a batch write that is committed. An error is only logged: the record then stays in the
        ledger, which does no harm, and the write has not failed."""
        try:
            await self._ledger.write(name, None)
        except (KafkaError, LedgerFencedError) as error:
            log.warning("the record of the finished write %s stays in the ledger: %s", name.query_id, error)

    async def _carry_out(self, name: SinkName, state: DeliveryState, *, withdraw: bool = True) -> Settlement:
        """Commit the transactions of the decision in `state`, if they are not all known to be committed; returns the
        state without an open decision. Raises DeliveryError if rows are lost, or, unless `withdraw`, if some of them
        could not be committed and are written again."""
        if state.done:
            return Settlement(state)
        answers = await asyncio.gather(*(self._transactions.commit(t) for t in state.transactions))
        ended = dict(zip(state.transactions, answers, strict=True))
        settlement = decisions.settle(state, ended, accept_loss=self._accept_loss)
        if settlement.state is None:
            raise _lost(name, state, settlement.lost)
        await self._ledger.write(name, settlement.state, self._record_progress(settlement.progress))
        if settlement.lost:
            log.error("%s", _lost(name, state, settlement.lost))
        if settlement.withdrawn or settlement.repeated:
            problem = _withdrawn(name, state) if settlement.withdrawn else _repeated(name, state, settlement.repeated)
            log.warning("%s", problem)
            if not withdraw:
                raise problem
        return settlement

    async def _check_standing(self, name: SinkName, batch: MicroBatch) -> None:
        standing = await self._transactions.standing([t.transactional_id for t in batch.transactions])
        gone = decisions.missing(batch.transactions, standing)
        if gone:
            raise DeliveryError(
                f"micro-batch {batch.batch_id} of {name.query_id} is not committed: {len(gone)} of its"
                f" {len(batch.transactions)} transactions ended before the micro-batch did, the first is"
                f" {gone[0].transactional_id}. Either a later attempt of the same task fenced it, or the transaction"
                " timed out; against the latter, set transaction.two.phase.commit.enable=true on the brokers, or raise"
                " their transaction.max.timeout.ms. Nothing of the micro-batch is visible; a restart writes it again"
            )

    async def _abort_all(self, transactions: Sequence[HandedOverTransaction]) -> None:
        await asyncio.gather(*(self._transactions.abort(t) for t in transactions))

    async def _judge(self, name: SinkName, state: DeliveryState, batch: MicroBatch) -> Verdict:
        standing = compare(state.entry, batch.batch_id, batch.history, self._target)
        if standing is Standing.PUBLISH and state.entry is None and batch.history is not None:
            for parent in batch.history.parents:
                known = (await self._ledger.read(SinkName(name.prefix, parent))).entry
                if known is not None:
                    standing = compare_with_parent(known, batch.batch_id, batch.history)
                    break
        return decisions.judge(state, standing, batch.generation)

    def _explain(self, name: SinkName, batch: MicroBatch, state: DeliveryState, verdict: Verdict) -> None:
        """Log a replayed micro-batch; raise DeliveryError for one that must not be decided."""
        if verdict is Verdict.REPLAYED:
            log.info("micro-batch %d of %s was committed before; its replay is aborted", batch.batch_id, name.query_id)
            return
        if verdict is Verdict.SUPERSEDED:
            raise DeliveryError(
                f"micro-batch {batch.batch_id} of {name.query_id} is not committed: another driver of the same query"
                f" has taken over (generation {state.generation}, this one has {batch.generation}). Stop one of the two"
            )
        stored = state.entry or LedgerEntry(NOTHING_PUBLISHED)
        conflict = BatchConflict(self._target, name.query_id, batch.batch_id, stored)
        raise conflict_error(conflict, batch.history)

    @staticmethod
    def _contended(name: SinkName) -> DeliveryError:
        return DeliveryError(
            f"another driver keeps fencing the ledger id {name.ledger_id}: the same query runs twice. Stop one of them"
        )


def _withdrawn(name: SinkName, state: DeliveryState) -> DeliveryError:
    return DeliveryError(
        f"micro-batch {state.batch_id} of {name.query_id} is not committed, although that was decided: the brokers had"
        f" aborted all of its {len(state.transactions)} transactions, probably by a time-out. Nothing of the"
        " micro-batch is visible; the decision is withdrawn, and a restart writes the micro-batch again"
    )


def _repeated(name: SinkName, state: DeliveryState, repeated: Sequence[HandedOverTransaction]) -> DeliveryError:
    return DeliveryError(
        f"micro-batch {state.batch_id} of {name.query_id} is committed in part: the brokers had aborted"
        f" {len(repeated)} of its {len(state.transactions)} transactions, the first is {repeated[0].transactional_id},"
        " probably by a time-out. Nothing is lost: their records are read and written again after a restart"
    )


def _lost(name: SinkName, state: DeliveryState, lost: Sequence[HandedOverTransaction]) -> DeliveryError:
    return DeliveryError(
        f"rows of micro-batch {state.batch_id} of {name.query_id} are lost: it was decided to commit"
        f" {len(state.transactions)} transactions, and the brokers had ended {len(lost)} of them in another way, the"
        f" first is {lost[0].transactional_id} (transaction.timeout.ms passed while no driver was running, or a user"
        " aborted it). Write the rows of this micro-batch to the topic yourself, then start the query once with"
        " failOnDataLoss=false, which accepts the loss. Brokers with transaction.two.phase.commit.enable=true do not"
        " abort such transactions"
    )
