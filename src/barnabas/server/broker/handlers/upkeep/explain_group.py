"""Shell: ExplainGroup (key 10001, ours), version 0.

Why a group rebalances: since when, what began it, which members have not done their part yet and how long they have;
and what will become of its offsets. Only the group's coordinator answers; another broker says who that is. Looks, and
changes nothing.
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode
from barnabas.core.hashing import coordinator_partition
from barnabas.core.ids import CONSUMER_OFFSETS_TOPIC, NO_LEADER
from barnabas.protocol.wire.messages.explain_group import ExplainGroupRequest, ExplainGroupResponse
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.services import Services


async def handle(services: Services, ctx: RequestContext, request: ExplainGroupRequest) -> ExplainGroupResponse:
    response = await services.groups.explain_group(ctx, request)
    for group in response.groups:
        if group.error_code == ErrorCode.NOT_COORDINATOR:
            group.error_message = _where(services, group.group_id)
    return response


def _where(services: Services, group_id: str) -> str:
    topic = services.metadata.image.topics.get(CONSUMER_OFFSETS_TOPIC)
    home = None if topic is None else topic.partitions[coordinator_partition(group_id, len(topic.partitions))]
    if home is None or home.leader in (NO_LEADER, services.node_id):
        return f"Nobody coordinates {group_id} at the moment; ask again soon."
    return f"Broker {home.leader} coordinates {group_id}: ask it."
