"""Shell: ListTransactions (key 66), versions 0 to 2 (KIP-664).

The transactional ids that this broker coordinates, filtered by state and producer id, by how long the transaction has
been going on (1, KIP-994), and by a regular expression over the id (2, KIP-1152).
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    return await services.transactions.list_transactions(ctx, request)
