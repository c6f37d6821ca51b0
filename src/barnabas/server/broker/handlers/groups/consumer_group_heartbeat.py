"""Shell: ConsumerGroupHeartbeat (key 68), versions 0 to 1.

- 0: the consumer group protocol (KIP-848)
- 1: a regular expression over topic names, which the broker matches (SubscribedTopicRegex); the client generates its
  member id (KIP-1082)

A member joins its group, renews its session, changes its subscription, reports its partitions, receives its
assignment and leaves the group with this one request. The response is sent when the records of the change are
committed. While the feature `group.version` is 0 the response is UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from barnabas.protocol.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.server.broker.features import require_consumer_groups
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(
    services: Services, ctx: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    require_consumer_groups(services)
    return await services.groups.consumer_group_heartbeat(ctx, request)
