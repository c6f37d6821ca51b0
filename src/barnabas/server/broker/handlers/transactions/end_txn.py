"""Shell: EndTxn (key 26), versions 0 to 5.

Commits or aborts a transaction. Answered when the decision is in the log; the markers follow by themselves, and until
they are written the producer's next transaction begins with CONCURRENT_TRANSACTIONS.

Versions: 3 is flexible; 4 knows TRANSACTION_ABORTABLE; 5 is protocol 2 (KIP-890): the epoch is raised with every
transaction and the answer carries the new one, so that a request that was held up can never end a later transaction.
0 and 1 say INVALID_PRODUCER_EPOCH for PRODUCER_FENCED.
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    return await services.transactions.end_txn(ctx, request)
