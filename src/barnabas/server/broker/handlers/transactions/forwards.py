"""Shell: the handlers of transactions that pass the request on to the coordinator."""

from __future__ import annotations

from barnabas.protocol.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from barnabas.protocol.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from barnabas.server.broker.handlers.transactions.port import TransactionsPort
from barnabas.server.broker.request_context import RequestContext


async def end_txn(port: TransactionsPort, ctx: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    """EndTxn (key 26), versions 0 to 5.

    - 0: commits or aborts a producer's transaction (KIP-98)
    - 1: as 0
    - 2: PRODUCER_FENCED, for which older versions get INVALID_PRODUCER_EPOCH (KIP-588)
    - 3: flexible
    - 4: TRANSACTION_ABORTABLE (KIP-890)
    - 5: transaction protocol 2: every transaction raises the producer epoch, and the response carries the new producer
      id and epoch, so that a delayed request cannot end a later transaction (KIP-890)

    The response is sent when the decision is committed to `__transaction_state`. The coordinator then writes the
    markers to the partitions. Until all markers are written, requests of the next transaction get
    CONCURRENT_TRANSACTIONS.
    """
    return await port.transactions.end_txn(ctx, request)


async def describe_transactions(
    port: TransactionsPort, ctx: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """DescribeTransactions (key 65), version 0.

    - 0: state, producer, timeout, start time and partitions of transactional ids (KIP-664)

    Answers for the transactional ids that this broker coordinates.
    """
    return await port.transactions.describe_transactions(ctx, request)


async def list_transactions(
    port: TransactionsPort, ctx: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """ListTransactions (key 66), versions 0 to 2.

    - 0: the transactional ids that this broker coordinates, filtered by state and producer id (KIP-664)
    - 1: a filter by the duration of the transaction (KIP-994)
    - 2: a filter by a regular expression over the transactional id (KIP-1152)
    """
    return await port.transactions.list_transactions(ctx, request)
