"""Shell: ExplainGroup (key 10001), version 0. An API of Barnabas, not of Kafka.

- 0: why a group rebalances, and when its offsets expire

The response contains the beginning and the cause of the rebalance, the members whose request the coordinator waits
for, and the time that they have left. Only the group's coordinator answers; the error message of another broker names
the coordinator. The request changes nothing.
"""

from __future__ import annotations

from barnabas.core.errors import ErrorCode
from barnabas.core.hashing import coordinator_partition
from barnabas.core.ids import CONSUMER_OFFSETS_TOPIC, NO_LEADER
from barnabas.protocol.wire.messages.explain_group import ExplainGroupRequest, ExplainGroupResponse
from barnabas.server.broker.handlers.maintenance.port import MaintenancePort
from barnabas.server.broker.request_context import RequestContext


async def handle(port: MaintenancePort, ctx: RequestContext, request: ExplainGroupRequest) -> ExplainGroupResponse:
    response = await port.groups.explain_group(ctx, request)
    for group in response.groups:
        if group.error_code == ErrorCode.NOT_COORDINATOR:
            group.error_message = _coordinator_message(port, group.group_id)
    return response


def _coordinator_message(port: MaintenancePort, group_id: str) -> str:
    topic = port.metadata.image.topics.get(CONSUMER_OFFSETS_TOPIC)
    offsets_partition = (
        None if topic is None else topic.partitions[coordinator_partition(group_id, len(topic.partitions))]
    )
    if offsets_partition is None or offsets_partition.leader in (NO_LEADER, port.node_id):
        return f"No broker coordinates {group_id} at the moment. Retry later."
    return f"Broker {offsets_partition.leader} coordinates {group_id}. Send the request to that broker."
