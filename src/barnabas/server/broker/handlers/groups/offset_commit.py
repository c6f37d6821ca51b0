"""Shell: OffsetCommit (key 8), versions 2 to 10.

Commits offsets for a group, or for a consumer without one. Answered when they are in the log of `__consumer_offsets`.
7 static members, 9 member epochs (KIP-848), 10 topic ids instead of names.
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    return await services.groups.offset_commit(ctx, request)
