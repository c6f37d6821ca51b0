"""Shell: DescribeTransactions (key 65), version 0.

- 0: state, producer, timeout, start time and partitions of transactional ids (KIP-664)

Answers for the transactional ids that this broker coordinates.
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(
    services: Services, ctx: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    return await services.transactions.describe_transactions(ctx, request)
