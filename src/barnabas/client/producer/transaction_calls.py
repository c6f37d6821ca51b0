"""Shell: the transactional calls of the producer, in the order of their use."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Self

from barnabas.client.arguments import checks_arguments
from barnabas.client.cluster.cluster import Cluster
from barnabas.client.errors import TransactionAbortedError, TransactionStateError
from barnabas.client.offsets import exact_offsets
from barnabas.client.producer.sender import Sender
from barnabas.client.producer.transactions import State, Transactions
from barnabas.client.values import GroupMetadata, HandedOverTransaction, OffsetAndMetadata, PreparedTransaction
from barnabas.core.config import ConfigError
from barnabas.core.ids import TopicPartition


@checks_arguments(without=("flush",))
class TransactionCalls(ABC):
    """The transactional methods of `AsyncProducer`."""

    cluster: Cluster
    _sender: Sender
    _max_block_ms: int
    _transactions: Transactions | None = None

    @abstractmethod
    async def flush(self, timeout_ms: float | None = None) -> None: ...

    @abstractmethod
    async def _flush(self, timeout_ms: float | None) -> None: ...

    @abstractmethod
    def _check_open(self) -> None: ...

    @abstractmethod
    def _ensure_running(self) -> asyncio.AbstractEventLoop: ...

    async def init_transactions(self, *, keep_prepared: bool = False) -> None:
        """Call this once, before the first transaction. Fences older producers with this
        transactional.id, and ends their open transactions.

        With `keep_prepared` (two-phase commit) an open transaction stays open; `prepared_transaction` returns it.
        """
        await self._transactional().init(self.cluster.deadline(self._max_block_ms), keep_prepared=keep_prepared)

    def begin_transaction(self) -> None:
        """Begin a transaction. Its records become visible together, or not at all."""
        self._transactional().begin()

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], group: GroupMetadata | str
    ) -> None:
        """Commit a consumer's positions as part of the transaction; pass `consumer.group_metadata()` (KIP-447)."""
        who = GroupMetadata(group) if isinstance(group, str) else group
        exact = exact_offsets(offsets, who.topic_ids)
        await self._transactional().send_offsets(exact, who, self.cluster.deadline(self._max_block_ms))

    async def commit_transaction(self) -> None:
        """Flush and commit. Raises TransactionAbortedError if a part of the transaction (a batch or an offset
        commit) has failed; call `abort_transaction` then.

        A call that is cancelled goes on in the background: call it again to get its outcome. Until the commit is sent,
        `abort_transaction` can be called instead.
        """
        await self._transactional().end(
            commit=True, settle=self.flush, deadline=self.cluster.deadline(self._max_block_ms)
        )

    async def abort_transaction(self) -> None:
        """Drop the queued records and abort. No read_committed consumer will see a record of the transaction. A call
        that is cancelled goes on in the background: call it again to get its outcome."""
        self._check_open()
        await self._abort()

    async def _abort(self) -> None:
        """`abort_transaction`, also while the producer is closing."""

        async def settle() -> None:
            self._sender.drop_queued(TransactionAbortedError("The record's transaction was aborted."))
            await self._flush(None)

        await self._transactional().end(commit=False, settle=settle, deadline=self.cluster.deadline(self._max_block_ms))

    async def prepare_transaction(self) -> PreparedTransaction:
        """Flush and prepare. A prepared transaction survives this producer and can only be committed or aborted
        (KIP-939).

        Store the returned value with the other parts of the two-phase commit. After a crash, a producer of the same
        transactional.id calls `init_transactions(keep_prepared=True)` and `complete_transaction(stored_value)`.
        """
        transactions = self._transactional()
        transactions.check_can_prepare()
        await self.flush()
        return transactions.prepare()

    async def complete_transaction(self, decided: PreparedTransaction | str) -> bool:
        """Commit the prepared transaction if it is `decided`, else abort it. Returns whether it was committed."""
        kept = PreparedTransaction.parse(decided) if isinstance(decided, str) else decided
        if (ended := self._transactional().ended_meanwhile) is not None:
            return ended
        if self.prepared_transaction is None:
            raise TransactionStateError("No transaction is prepared: it was completed already, or never prepared.")
        if self.prepared_transaction == kept:
            await self.commit_transaction()
            return True
        await self.abort_transaction()
        return False

    async def hand_over_transaction(self) -> HandedOverTransaction | None:
        """Flush, and leave the transaction open for another process, which ends it with `AsyncAdmin.end_transaction`.
        Returns None if no record was written, because then there is no transaction. Afterwards, this producer can only
        be closed.

        The transaction times out after transaction.timeout.ms, unless transaction.two.phase.commit.enable is set.
        Raises TransactionAbortedError if a part of the transaction has failed; call `abort_transaction` then.
        """
        transactions = self._transactional()
        transactions.check_can_hand_over()
        await self.flush()
        return transactions.hand_over()

    @property
    def prepared_transaction(self) -> PreparedTransaction | None:
        """The prepared transaction of this producer or of a previous one with its id; None without one."""
        return self._transactional().prepared

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """`async with producer.transaction(): ...` commits at the end, and aborts when the block raises."""
        self.begin_transaction()
        try:
            yield self
            await self.commit_transaction()
        except BaseException:  # cancellation, too: no transaction may stay open
            await self.leave_transaction()
            raise

    async def leave_transaction(self) -> None:
        """End the transaction after an exception: abort it, unless the request to commit it was sent already. Then
        wait for the outcome. Does nothing without a transaction."""
        transactions = self._transactional()
        try:
            if transactions.commit_is_due:
                await self.commit_transaction()
        except TransactionAbortedError:
            pass  # it can be aborted
        if transactions.ended_meanwhile is None and transactions.can_be_aborted:
            await self.abort_transaction()

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, or has failed and must be aborted. (A prepared one must be completed
        instead.)"""
        return self._transactional().state in (State.IN_TRANSACTION, State.ABORTABLE)

    @property
    def can_go_on(self) -> bool:
        """False after a fatal error (fenced, or not authorized): only a new producer can continue."""
        doomed = self._transactions is not None and self._transactions.state is State.FATAL
        return self._sender.fatal is None and not doomed

    def _transactional(self) -> Transactions:
        if self._transactions is None:
            raise ConfigError("Transactions need transactional.id: a name that stays the same across restarts.")
        self._ensure_running()
        return self._transactions
