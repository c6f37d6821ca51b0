"""Shell: requests between coordinators and partition leaders, on this node or on other brokers.

    transaction coordinator ── WriteTxnMarkers ─────► leaders of the transaction's partitions    MarkerChannel
    partition leader ───────── AddPartitionsToTxn ──► coordinator of the transactional id        TransactionChannel
    partition leader,
    group coordinator ──────── ...ShareGroupState ──► coordinator of the share partition         ShareChannel
    group coordinator ──────── ListOffsets ─────────► leaders of partitions, for lag             PartitionEnds

The newest metadata image has the leader or coordinator. If the leader or coordinator is this node, a method call
replaces the request. For each other broker and API, one request is in flight at a time, on its own connection, because
the response may wait for a commit. Items that arrive meanwhile are sent together in the next request. The channels do
not retry: a missing response is the error NETWORK_EXCEPTION, and the caller finds the coordinator again and retries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from barnabas.core.errors import ErrorCode, KafkaError, error_code
from barnabas.core.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from barnabas.protocol.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from barnabas.server.broker.handlers.transactions.write_txn_markers import write_markers
from barnabas.server.peers.batched_requests import BatchedRequests
from barnabas.server.peers.peer_router import LocalBroker, PeerRouter
from barnabas.server.peers.peers import PeerSender
from barnabas.server.peers.shares import LogEnds, ShareCoordinators

TRANSACTIONS_MAX: Final = 1_000
"""The limit for the transactions in one AddPartitionsToTxn request."""


class CoordinationChannels:
    """All channels between the coordinators and the partition leaders of this broker and of others. `run` must be
    running during requests."""

    def __init__(self, peers: PeerSender, local: LocalBroker) -> None:
        self.router = PeerRouter(peers, local)
        self.markers = Markers(self.router)
        self.transactions = AddPartitionsToTxnManager(self.router)
        self.share_coordinators = ShareCoordinators(self.router)
        self.log_ends = LogEnds(self.router)

    async def run(self) -> None:
        """Run the tasks that send batched requests, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.transactions.run())
            tasks.create_task(self.share_coordinators.run())


class Markers:
    """Writes batches of transaction markers through the partitions' leaders. Implements `MarkerChannel` of the
    coordination package, whose `MarkerSender` builds the batches."""

    def __init__(self, router: PeerRouter) -> None:
        self._router = router

    def leader(self, tp: TopicPartition) -> int | None:
        return self._router.leader(tp)

    async def write(self, broker_id: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        if self._router.is_local(broker_id):
            local = self._router.local
            deadline = asyncio.get_running_loop().time() + local.broker_config.current.request_timeout_ms / 1000
            return await write_markers(local.transaction_port, request, local.clock.now_ms(), deadline)
        response = await self._router.send(broker_id, request, "markers")
        assert isinstance(response, WriteTxnMarkersResponse)
        return response


class AddPartitionsToTxnManager:
    """Asks the coordinators of transactions to add or verify partitions, like Kafka's class of this name. Implements
    `TransactionChannel` of the broker package."""

    def __init__(self, router: PeerRouter) -> None:
        self._router = router
        self._batched: BatchedRequests[int, AddPartitionsToTxnTransaction, AddPartitionsToTxnResult]
        self._batched = BatchedRequests(_with_distinct_ids, self._send_batch)

    async def run(self) -> None:
        await self._batched.run()

    async def send(self, transaction: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
        broker_id = self._router.coordinator(TRANSACTION_STATE_TOPIC, transaction.transactional_id)
        if self._router.is_local(broker_id):
            local = self._router.local
            max_wait_ms = local.broker_config.current.add_partitions_to_txn_retry_backoff_ms
            coordinator = local.transaction_port.transactions
            return await coordinator.add_or_verify_partitions(transaction, version=2, max_wait_ms=max_wait_ms)
        return await self._batched.ask(broker_id, transaction)

    async def _send_batch(
        self, broker_id: int, transactions: list[AddPartitionsToTxnTransaction]
    ) -> Sequence[AddPartitionsToTxnResult | KafkaError]:
        request = AddPartitionsToTxnRequest(transactions=transactions)
        try:
            response = await self._router.send(broker_id, request, "transactions")
        except KafkaError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:  # a producer cannot handle UNSUPPORTED_VERSION
                raise KafkaError(ErrorCode.INVALID_TXN_STATE, error.detail) from error
            raise
        assert isinstance(response, AddPartitionsToTxnResponse)
        if response.error_code:
            raise KafkaError(_for_producers(error_code(response.error_code)), f"Broker {broker_id} returned an error.")
        results = {result.transactional_id: result for result in response.results_by_transaction}
        missing = KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"The response of broker {broker_id} has no result for the transaction."
        )
        return [results.get(transaction.transactional_id, missing) for transaction in transactions]


def _with_distinct_ids(waiting: Sequence[AddPartitionsToTxnTransaction]) -> list[int]:
    """Choose transactions with different transactional ids, because the id identifies each result in the response."""
    chosen: dict[str, int] = {}
    for place, transaction in enumerate(waiting):
        chosen.setdefault(transaction.transactional_id, place)
        if len(chosen) == TRANSACTIONS_MAX:
            break
    return list(chosen.values())


def _for_producers(code: ErrorCode) -> ErrorCode:
    """Replace CLUSTER_AUTHORIZATION_FAILED, which is an error between brokers, by an error for the producer."""
    return ErrorCode.INVALID_TXN_STATE if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED else code
