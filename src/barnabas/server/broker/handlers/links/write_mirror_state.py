"""Shell: WriteMirrorState (key 10009), version 0. An API of Barnabas, not of Kafka.

- 0: the leader of a mirror partition stores the partition's state

Only the link's coordinator answers; another broker returns NOT_COORDINATOR.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.protocol.wire.messages.write_mirror_state import WriteMirrorStateRequest, WriteMirrorStateResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: WriteMirrorStateRequest) -> WriteMirrorStateResponse:
    try:
        return await services.links.write_state(request)
    except KafkaError as error:
        return WriteMirrorStateResponse(error_code=error.code, error_message=str(error))
