"""Shell: EndTxn (key 26), versions 0 to 5.

- 0: commits or aborts a producer's transaction (KIP-98)
- 1: as 0
- 2: PRODUCER_FENCED, for which older versions get INVALID_PRODUCER_EPOCH (KIP-588)
- 3: flexible
- 4: TRANSACTION_ABORTABLE (KIP-890)
- 5: transaction protocol 2: every transaction raises the producer epoch, and the response carries the new producer id
  and epoch, so that a delayed request cannot end a later transaction (KIP-890)

The response is sent when the decision is committed to `__transaction_state`. The coordinator then writes the markers
to the partitions. Until all markers are written, requests of the next transaction get CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    return await services.transactions.end_txn(ctx, request)
