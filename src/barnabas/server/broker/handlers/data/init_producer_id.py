"""Shell: InitProducerId (key 22), versions 0 to 6.

Gives an idempotent producer a fresh producer id with epoch 0; whatever id it had before does not matter. A producer
with a transactional id gets what the transaction coordinator says: the id's producer id with the next epoch, which
fences every earlier incarnation and aborts what it left open.

Versions: 3 carries the id and epoch of a producer that recovers (KIP-360), 4 knows PRODUCER_FENCED, 6 two-phase commit
(KIP-939): `keep_prepared_txn` leaves an open transaction to the new incarnation, which finds its id and epoch in the
answer. Kafka 4.3 still marks 6 as unstable.
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    if request.transactional_id is not None:
        return await services.transactions.init_producer_id(ctx, request)
    try:
        producer_id = await services.producer_ids.next()
    except KafkaError as error:
        # What clients retry without giving up the producer (`KafkaApis.handleInitProducerIdRequest`).
        code = error.code if error.retriable else ErrorCode.COORDINATOR_NOT_AVAILABLE
        return InitProducerIdResponse(error_code=code, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
