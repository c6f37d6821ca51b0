"""Shell: ListTransactions (key 66), versions 0 to 2.

- 0: the transactional ids that this broker coordinates, filtered by state and producer id (KIP-664)
- 1: a filter by the duration of the transaction (KIP-994)
- 2: a filter by a regular expression over the transactional id (KIP-1152)
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    return await services.transactions.list_transactions(ctx, request)
