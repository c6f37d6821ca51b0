"""Shell: AlterMirrorTopics (key 10010), version 0. An API of Barnabas, not of Kafka.

- 0: a broker creates mirror topics with the ids of their sources, sets their configs `mirror.*`, raises leader epochs
  of mirror partitions, and keeps fresh producer ids above mirrored ones
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.alter_mirror_topics import AlterMirrorTopicsRequest
from barnabas.protocol.wire.schema import Message
from barnabas.server.broker.controller_services import ControllerServices
from barnabas.server.broker.request_context import RequestContext


async def handle(services: ControllerServices, ctx: RequestContext, request: AlterMirrorTopicsRequest) -> Message:
    return await services.controller.call(request, ctx.api_version)
