"""Shell: InitProducerId (key 22), versions 0 to 5.

Gives an idempotent producer a fresh producer id with epoch 0; whatever id it had before does not matter (KIP-360 needs
the old one for transactional producers only).
Gaps: a request with a transactional id is answered UNSUPPORTED_VERSION until the transaction coordinator exists.
"""

from __future__ import annotations

from barnabas.broker.request_context import RequestContext
from barnabas.broker.services import Services
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


async def handle(services: Services, ctx: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        code = ErrorCode.UNSUPPORTED_VERSION if request.transactional_id else ErrorCode.INVALID_REQUEST
        return InitProducerIdResponse(error_code=code, producer_epoch=-1)
    try:
        producer_id = await services.producer_ids.next()
    except KafkaError as error:
        # What clients retry without giving up the producer (`KafkaApis.handleInitProducerIdRequest`).
        code = error.code if error.retriable else ErrorCode.COORDINATOR_NOT_AVAILABLE
        return InitProducerIdResponse(error_code=code, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
