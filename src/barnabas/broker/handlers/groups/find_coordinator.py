"""Shell: FindCoordinator (key 10), versions 0 to 6.

Which broker coordinates a group (key type 0): the leader of the partition of `__consumer_offsets` that the group's id
hashes to. The topic is created when the first client asks. Version 4 asks for many keys at once (KIP-699); 6 adds share
groups.
Gaps: transactional ids (type 1) and share partitions (type 2) are refused until their coordinators exist.
"""

from __future__ import annotations

from barnabas.broker.auto_create import create_missing
from barnabas.broker.request_context import RequestContext
from barnabas.broker.services import Services
from barnabas.core.errors import ErrorCode
from barnabas.core.hashing import coordinator_partition
from barnabas.core.ids import CONSUMER_OFFSETS_TOPIC
from barnabas.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP = 0
TRANSACTION = 1
SHARE = 2
BATCHED_SINCE = 4


async def handle(services: Services, ctx: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if ctx.api_version >= BATCHED_SINCE:
        return FindCoordinatorResponse(
            coordinators=[await _find(services, ctx, request.key_type, key) for key in request.coordinator_keys]
        )
    found = await _find(services, ctx, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def _find(services: Services, ctx: RequestContext, key_type: int, key: str) -> Coordinator:
    if key_type in (TRANSACTION, SHARE):
        what = "transactions" if key_type == TRANSACTION else "share groups"
        return _nowhere(key, ErrorCode.INVALID_REQUEST, f"This broker does not serve {what} yet.")
    if key_type != GROUP:
        return _nowhere(key, ErrorCode.INVALID_REQUEST, f"There is no coordinator of type {key_type}.")
    topic = services.metadata.image.topics.get(CONSUMER_OFFSETS_TOPIC)
    if topic is None:
        refused = await create_missing(services, ctx, [CONSUMER_OFFSETS_TOPIC])
        topic = services.metadata.image.topics.get(CONSUMER_OFFSETS_TOPIC)
        if topic is None:
            code = refused.get(CONSUMER_OFFSETS_TOPIC, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return _nowhere(
                key,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"{CONSUMER_OFFSETS_TOPIC} could not be created ({code.name}); "
                "are offsets.topic.replication.factor brokers alive?",
            )
    state = topic.partitions[coordinator_partition(key, len(topic.partitions))]
    address = services.metadata.address(state.leader, ctx.client.listener)
    if address is None:
        return _nowhere(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator's partition has no leader.")
    return Coordinator(key=key, node_id=address.node_id, host=address.host, port=address.port, error_message="")


def _nowhere(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)
