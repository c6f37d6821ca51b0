"""Shell: OffsetCommit (key 8), versions 2 to 10.

- 2: retention time
- 3: throttle time in the response
- 4: as 3
- 5: without the retention time, which only the broker configures (KIP-211)
- 6: leader epoch of each committed offset (KIP-320)
- 7: group instance id of a static member (KIP-345)
- 8: flexible
- 9: member epochs of the consumer group protocol; STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND (KIP-848)
- 10: topic ids in place of names (KIP-848)

Commits offsets for a member of a group, or for a consumer that assigns its partitions itself. The response is sent
when the offsets are committed to `__consumer_offsets`.
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    return await services.groups.offset_commit(ctx, request)
