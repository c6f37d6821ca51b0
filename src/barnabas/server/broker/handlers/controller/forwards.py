"""Shell: the handlers of controllers that pass the request of a broker or controller on to the controller."""

from __future__ import annotations

from barnabas.protocol.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from barnabas.protocol.wire.messages.alter_mirror_topics import AlterMirrorTopicsRequest
from barnabas.protocol.wire.messages.alter_partition import AlterPartitionRequest
from barnabas.protocol.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from barnabas.protocol.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.wire.messages.broker_registration import BrokerRegistrationRequest
from barnabas.protocol.wire.messages.controller_registration import ControllerRegistrationRequest
from barnabas.protocol.wire.schema import Message
from barnabas.server.broker.handlers.controller.port import ControllerPort
from barnabas.server.broker.request_context import RequestContext


async def broker_registration(port: ControllerPort, ctx: RequestContext, request: BrokerRegistrationRequest) -> Message:
    """BrokerRegistration (key 62), versions 0 to 4.

    - 0: registers a broker with its listeners and features, and returns its broker epoch (KIP-631)
    - 1: IsMigratingZkBroker (KIP-866)
    - 2: log directories (KIP-858)
    - 3: the epoch of the previous process, if that was shut down in order (KIP-966)
    - 4: features whose minimum level is 0 (KAFKA-17011)

    The broker is fenced until its heartbeats unfence it. DUPLICATE_BROKER_REGISTRATION means that another process with
    the same broker id has a live session.
    """
    return await port.controller.call(request, ctx.api_version)


async def broker_heartbeat(port: ControllerPort, ctx: RequestContext, request: BrokerHeartbeatRequest) -> Message:
    """BrokerHeartbeat (key 63), versions 0 to 2.

    - 0: renews the session of a broker (KIP-631)
    - 1: the offline log directories (KIP-858)
    - 2: the cordoned log directories, which get no new replicas (KIP-1066)

    A broker reports the metadata offset up to which it has read, and whether it wants to be fenced, unfenced or shut
    down. The response reports whether the broker is fenced, and whether it may shut down because it leads no partition
    any more. STALE_BROKER_EPOCH means that another process has registered with the broker's id.

    The controller remembers the connection of the last heartbeat. When that connection is lost, the controller finds
    out whether the broker's process has ended (`metadata/failure_detector.py`).
    """
    return await port.controller.call(request, ctx.api_version, ctx)


async def controller_registration(
    port: ControllerPort, ctx: RequestContext, request: ControllerRegistrationRequest
) -> Message:
    """ControllerRegistration (key 70), version 0.

    - 0: a controller registers its listeners and supported features (KIP-919)
    """
    return await port.controller.call(request, ctx.api_version)


async def alter_partition(port: ControllerPort, ctx: RequestContext, request: AlterPartitionRequest) -> Message:
    """AlterPartition (key 56), versions 2 to 3.

    - 2: the leader of partitions changes their in-sync replicas (KIP-497, KIP-704); topic ids (KIP-841)
    - 3: the broker epoch of each in-sync replica, so that a broker that has restarted is not taken for its previous
      incarnation, which had caught up (KIP-903)

    Each partition has its own result.
    """
    return await port.controller.call(request, ctx.api_version)


async def allocate_producer_ids(
    port: ControllerPort, ctx: RequestContext, request: AllocateProducerIdsRequest
) -> Message:
    """AllocateProducerIds (key 67), version 0.

    - 0: allocates a block of 1,000 producer ids to one broker (KIP-730)

    The controller writes the end of the block to the metadata log before the broker uses an id. Ids that the broker has
    not used when it stops are lost.
    """
    return await port.controller.call(request, ctx.api_version)


async def assign_replicas_to_dirs(
    port: ControllerPort, ctx: RequestContext, request: AssignReplicasToDirsRequest
) -> Message:
    """AssignReplicasToDirs (key 73), version 0.

    - 0: a broker with several log directories reports the directories of its replicas (KIP-858)

    With these the controller knows which replicas are offline when a directory fails.
    """
    return await port.controller.call(request, ctx.api_version)


async def alter_mirror_topics(port: ControllerPort, ctx: RequestContext, request: AlterMirrorTopicsRequest) -> Message:
    """AlterMirrorTopics (key 10010), version 0. An API of Barnabas, not of Kafka.

    - 0: a broker creates mirror topics with the ids of their sources, sets their configs `mirror.*`, raises leader
      epochs of mirror partitions, and keeps fresh producer ids above mirrored ones
    """
    return await port.controller.call(request, ctx.api_version)
