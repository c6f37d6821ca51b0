"""Shell: ReadMirrorState (key 10008), version 0. An API of Barnabas, not of Kafka.

- 0: the leader of a mirror partition reads the stored state, and fences earlier leaders

Only the link's coordinator answers; another broker returns NOT_COORDINATOR.
"""

from __future__ import annotations

from barnabas.core.errors import KafkaError
from barnabas.protocol.wire.messages.read_mirror_state import ReadMirrorStateRequest, ReadMirrorStateResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: ReadMirrorStateRequest) -> ReadMirrorStateResponse:
    try:
        return await services.links.read_state(request)
    except KafkaError as error:
        return ReadMirrorStateResponse(error_code=error.code, error_message=str(error))
