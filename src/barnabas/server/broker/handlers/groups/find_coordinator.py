"""Shell: FindCoordinator (key 10), versions 0 to 6.

- 0: the coordinator of one group
- 1: the type of the key: 0 group, 1 transactional id; throttle time and error message in the response
- 2: as 1
- 3: flexible
- 4: several keys in one request (KIP-699)
- 5: as 4, for clients that know TRANSACTION_ABORTABLE (KIP-890)
- 6: key type 2, share partitions, with keys `group:topic id:partition` (KIP-932)

The coordinator is the leader of the partition of `__consumer_offsets`, `__transaction_state` or `__share_group_state`
that the key hashes to. The first request for a type creates its topic. While that partition has no leader, the request
waits for a second at most, because some clients give up after the first error: the topic was just created, the brokers
of a new cluster are still registering, or the leader has just died. Then the response is COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

import asyncio
import contextlib

from barnabas.core.errors import ErrorCode
from barnabas.core.hashing import coordinator_partition
from barnabas.core.ids import CONSUMER_OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC, uuid_from_text
from barnabas.core.tasks import enter_task
from barnabas.protocol.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from barnabas.server.broker.handlers.groups.port import GroupsPort
from barnabas.server.broker.metadata_cache import BrokerMetadataCache
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.metadata.image.cluster import PartitionImage

GROUP = 0
TRANSACTION = 1
SHARE = 2
BATCHED_SINCE = 4
_WAIT_S = 1.0
"""The longest time in seconds that a request waits for a leader."""
_KEYS_PER_TURN = 1000
"""Keys that are looked up before other tasks of the event loop may run."""
_TOPICS = {GROUP: CONSUMER_OFFSETS_TOPIC, TRANSACTION: TRANSACTION_STATE_TOPIC, SHARE: SHARE_STATE_TOPIC}


async def handle(port: GroupsPort, ctx: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    deadline = asyncio.get_running_loop().time() + _WAIT_S
    if ctx.api_version >= BATCHED_SINCE:
        coordinators = []
        for key in request.coordinator_keys:
            coordinators.append(await _find(port, ctx, request.key_type, key, deadline))
            if len(coordinators) % _KEYS_PER_TURN == 0:
                await asyncio.sleep(0)
        return FindCoordinatorResponse(coordinators=coordinators)
    found = await _find(port, ctx, request.key_type, request.key, deadline)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message or "NONE",  # `Errors.NONE.message`, in the versions for one key
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def _find(port: GroupsPort, ctx: RequestContext, key_type: int, key: str, deadline: float) -> Coordinator:
    if key_type == SHARE and not _is_share_key(key):
        return _not_found(key, ErrorCode.INVALID_REQUEST, f"{key} is not a key of the form group:topic id:partition.")
    topic_name = _TOPICS.get(key_type)
    if topic_name is None:
        return _not_found(
            key,
            ErrorCode.INVALID_REQUEST,
            f"Unknown key type {key_type}: 0 is a group, 1 a transactional id, 2 a share partition.",
        )
    metadata = port.metadata
    problem = await _create(port, topic_name, deadline)
    if problem is not None:
        return _not_found(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, problem)

    def is_led() -> bool:
        state = _state(metadata, topic_name, key)
        if state is None:  # the topic was deleted meanwhile
            return True
        return metadata.leader_problem(state, ctx.client.listener) is not ErrorCode.LEADER_NOT_AVAILABLE

    await metadata.wait(is_led, deadline)
    state = _state(metadata, topic_name, key)
    address = None if state is None else metadata.address(state.leader, ctx.client.listener)
    if address is None:
        return _not_found(
            key,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"The partition of {topic_name} for {key} has no leader on this listener. Retry later.",
        )
    return Coordinator(key=key, node_id=address.node_id, host=address.host, port=address.port, error_message="")


async def _create(port: GroupsPort, topic_name: str, deadline: float) -> str | None:
    """Create the topic, unless it exists. Returns why it does not exist. While too few brokers are registered, the
    creation is repeated after each registration until `deadline`."""
    metadata = port.metadata
    while topic_name not in metadata.image.topics:
        await enter_task()
        alive = len(metadata.image.brokers.alive())
        error: ErrorCode | None = None
        with contextlib.suppress(TimeoutError):  # without a controller, or with one that is slow
            async with asyncio.timeout_at(deadline):
                error = (await port.topic_creation.create_missing(None, [topic_name])).get(topic_name)

        def may_succeed(alive: int = alive) -> bool:
            return topic_name in metadata.image.topics or len(metadata.image.brokers.alive()) != alive

        if not await metadata.wait(may_succeed, deadline):
            return _creation_problem(topic_name, error)
    return None


def _state(metadata: BrokerMetadataCache, topic_name: str, key: str) -> PartitionImage | None:
    """The partition of the coordinator's topic that the key hashes to."""
    topic = metadata.image.topics.get(topic_name)
    return None if topic is None else topic.partitions[coordinator_partition(key, len(topic.partitions))]


def _creation_problem(topic_name: str, error: ErrorCode | None) -> str:
    if error is None:
        return f"The topic {topic_name} is being created. Retry later."
    return f"{topic_name} could not be created ({error.name}). Are fewer brokers live than its replication factor?"


def _is_share_key(key: str) -> bool:
    """Whether the key is `group:topic id:partition` (`SharePartitionKey.validate`); a group id may contain colons."""
    rest, _, partition = key.rpartition(":")
    group_id, _, topic_id = rest.rpartition(":")
    if not group_id or not partition.isdecimal():
        return False
    try:
        uuid_from_text(topic_id)
    except ValueError:
        return False
    return True


def _not_found(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)
