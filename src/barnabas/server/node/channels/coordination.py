"""Shell: what coordinators and partition leaders ask of each other, wherever they live.

    transaction coordinator ── WriteTxnMarkers ─────► leaders of the transaction's partitions    MarkerChannel
    partition leader ───────── AddPartitionsToTxn ──► coordinator of the transactional id        TransactionChannel
    partition leader,
    group coordinator ──────── ...ShareGroupState ──► coordinator of the share partition         ShareChannel
    group coordinator ──────── ListOffsets ─────────► leaders of partitions, for lag             PartitionEnds

The newest image says who that is. Where it is this node, its own coordinator or partition is asked without a message.
Otherwise one request of a kind is under way to a broker at a time, on a connection of its own (the answer comes
when what was asked for is committed, which may take long), and the next one carries what has gathered. Nothing is asked
twice here: an answer that did not come is NETWORK_EXCEPTION, and whoever asked looks again where to ask.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

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
from barnabas.server.node.channels.batched_requests import BatchedRequests
from barnabas.server.node.channels.peer_router import PeerRouter
from barnabas.server.node.channels.peers import PeerSender
from barnabas.server.node.channels.shares import LogEnds, ShareCoordinators

if TYPE_CHECKING:
    from barnabas.server.broker.services import Services

TRANSACTIONS_MAX: Final = 1_000
"""AddPartitionsToTxnManager in one AddPartitionsToTxn."""


class CoordinationChannels:
    """All of them. `connect` when the services are assembled, `run` before anything is asked."""

    def __init__(self, peers: PeerSender) -> None:
        self._router = PeerRouter(peers)
        self.markers = Markers(self._router)
        self.transactions = AddPartitionsToTxnManager(self._router)
        self.share_coordinators = ShareCoordinators(self._router)
        self.log_ends = LogEnds(self._router)

    def connect(self, services: Services) -> None:
        """The coordinators, which are some of the services, are built with the channels: so these come later."""
        self._router.services = services

    async def run(self) -> None:
        """Own what is under way until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.transactions.run())
            tasks.create_task(self.share_coordinators.run())


class Markers:
    """coordination.transaction.MarkerChannel: the queue before it (`MarkerSender`) makes the batches."""

    def __init__(self, router: PeerRouter) -> None:
        self._router = router

    def leader(self, tp: TopicPartition) -> int | None:
        return self._router.leader(tp)

    async def write(self, broker_id: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        if self._router.is_local(broker_id):
            services = self._router.require()
            deadline = asyncio.get_running_loop().time() + services.config.request_timeout_ms / 1000
            return await write_markers(services, request, services.clock.now_ms(), deadline)
        response = await self._router.send(broker_id, request, "markers")
        assert isinstance(response, WriteTxnMarkersResponse)
        return response


class AddPartitionsToTxnManager:
    """broker.TransactionChannel (Kafka's AddPartitionsToTxnManager)."""

    def __init__(self, router: PeerRouter) -> None:
        self._router = router
        self._batched: BatchedRequests[int, AddPartitionsToTxnTransaction, AddPartitionsToTxnResult]
        self._batched = BatchedRequests(_of_different_ids, self._carry)

    async def run(self) -> None:
        await self._batched.run()

    async def ask(self, transaction: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
        broker_id = self._router.coordinator(TRANSACTION_STATE_TOPIC, transaction.transactional_id)
        if self._router.is_local(broker_id):
            services = self._router.require()
            max_wait_ms = services.config.add_partitions_to_txn_retry_backoff_ms
            return await services.transactions.add_or_verify_partitions(transaction, version=2, max_wait_ms=max_wait_ms)
        return await self._batched.ask(broker_id, transaction)

    async def _carry(
        self, broker_id: int, transactions: list[AddPartitionsToTxnTransaction]
    ) -> Sequence[AddPartitionsToTxnResult | KafkaError]:
        request = AddPartitionsToTxnRequest(transactions=transactions)
        try:
            response = await self._router.send(broker_id, request, "transactions")
        except KafkaError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:  # nothing that a producer could do about it
                raise KafkaError(ErrorCode.INVALID_TXN_STATE, error.detail) from error
            raise
        assert isinstance(response, AddPartitionsToTxnResponse)
        if response.error_code:
            raise KafkaError(_for_producers(error_code(response.error_code)), f"Broker {broker_id} refused to say.")
        results = {result.transactional_id: result for result in response.results_by_transaction}
        missing = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Broker {broker_id} left the transaction out.")
        return [results.get(transaction.transactional_id, missing) for transaction in transactions]


def _of_different_ids(waiting: Sequence[AddPartitionsToTxnTransaction]) -> list[int]:
    """Answers are told apart by the transactional id, so a message has each once."""
    chosen: dict[str, int] = {}
    for place, transaction in enumerate(waiting):
        chosen.setdefault(transaction.transactional_id, place)
        if len(chosen) == TRANSACTIONS_MAX:
            break
    return list(chosen.values())


def _for_producers(code: ErrorCode) -> ErrorCode:
    """That brokers are not trusted by each other is nothing that a producer did."""
    return ErrorCode.INVALID_TXN_STATE if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED else code
