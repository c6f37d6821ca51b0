"""Shell: InitProducerId (key 22), versions 0 to 6.

- 0: returns a producer id and epoch (KIP-98)
- 1: as 0
- 2: flexible
- 3: the producer's id and epoch, with which it recovers from an error (KIP-360)
- 4: PRODUCER_FENCED (KIP-588)
- 5: TRANSACTION_ABORTABLE (KIP-890)
- 6: two-phase commit: KeepPreparedTxn leaves an open transaction to the new incarnation of the producer, which gets
  the id and epoch of the transaction (KIP-939); Kafka 4.3 marks this version as unstable

A producer without a transactional id gets a new producer id with epoch 0, whatever id the request carries. For a
producer with a transactional id the transaction coordinator returns the producer id with the next epoch. This fences
all previous incarnations of the producer and aborts their open transaction.
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.server.broker.handlers.data.port import DataPort
from barnabas.server.broker.request_context import RequestContext


async def handle(port: DataPort, ctx: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    if request.transactional_id is not None:
        return await port.transactions.init_producer_id(ctx, request)
    try:
        producer_id = await port.producer_ids.next()
    except KafkaError as error:
        # Clients retry this error and keep the producer (`KafkaApis.handleInitProducerIdRequest`).
        code = error.code if error.retriable else ErrorCode.COORDINATOR_NOT_AVAILABLE
        return InitProducerIdResponse(error_code=code, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
