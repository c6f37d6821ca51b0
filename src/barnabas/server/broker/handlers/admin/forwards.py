"""Shell: the handlers of administration that pass the request on to the controller."""

from __future__ import annotations

from barnabas.protocol.wire.messages.add_raft_voter import AddRaftVoterRequest
from barnabas.protocol.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from barnabas.protocol.wire.messages.elect_leaders import ElectLeadersRequest
from barnabas.protocol.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from barnabas.protocol.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from barnabas.protocol.wire.messages.unregister_broker import UnregisterBrokerRequest
from barnabas.protocol.wire.messages.update_features import UpdateFeaturesRequest
from barnabas.protocol.wire.schema import Message
from barnabas.server.broker.handlers.admin.port import AdminPort
from barnabas.server.broker.request_context import RequestContext


async def elect_leaders(port: AdminPort, ctx: RequestContext, request: ElectLeadersRequest) -> Message:
    """ElectLeaders (key 43), versions 0 to 2.

    - 0: elects the preferred leader of partitions (KIP-183)
    - 1: election type 1: any live replica, which may lose records (KIP-460); a top-level error code
    - 2: flexible

    The controller decides. If the partitions are null the request is for all partitions.
    """
    return await port.controller.call(request, ctx.api_version, ctx)


async def update_features(port: AdminPort, ctx: RequestContext, request: UpdateFeaturesRequest) -> Message:
    """UpdateFeatures (key 57), versions 0 to 2.

    - 0: raises or lowers the finalized levels of features such as metadata.version (KIP-584)
    - 1: ValidateOnly changes nothing; the upgrade type, in place of AllowDowngrade (KIP-778)
    - 2: without results for each feature in the response (KIP-1022)

    The controller decides. All updates of a request are made or none.
    """
    return await port.controller.call(request, ctx.api_version, ctx)


async def unregister_broker(port: AdminPort, ctx: RequestContext, request: UnregisterBrokerRequest) -> Message:
    """UnregisterBroker (key 64), version 0.

    - 0: removes the registration of a broker that has left the cluster for good (KIP-631)

    The controller decides.
    """
    return await port.controller.call(request, ctx.api_version, ctx)


async def alter_partition_reassignments(
    port: AdminPort, ctx: RequestContext, request: AlterPartitionReassignmentsRequest
) -> Message:
    """AlterPartitionReassignments (key 45), versions 0 to 1.

    - 0: moves partitions to other brokers, or cancels a move if the replicas are null (KIP-455)
    - 1: AllowReplicationFactorChange false rejects a move to another number of replicas (KIP-860)

    The controller decides about each partition separately. The response is sent when the moves have begun.
    """
    return await port.controller.call(request, ctx.api_version, ctx)


async def list_partition_reassignments(
    port: AdminPort, ctx: RequestContext, request: ListPartitionReassignmentsRequest
) -> Message:
    """ListPartitionReassignments (key 46), version 0.

    - 0: the moves of partitions that are in progress (KIP-455)

    The active controller answers, for the listed partitions or for all.
    """
    return await port.controller.call(request, ctx.api_version, ctx)


async def add_raft_voter(port: AdminPort, ctx: RequestContext, request: AddRaftVoterRequest) -> Message:
    """AddRaftVoter (key 80) on the brokers' listeners, versions 0 to 1.

    - 0: adds an observer of the metadata quorum to its voters (KIP-853)
    - 1: AckWhenCommitted false requests the response before the change is committed (KIP-1186)

    The broker forwards the request to the leader of the quorum, see `handlers/quorum/forwards.py`.
    """
    return await port.controller.call(request, ctx.api_version, ctx)


async def remove_raft_voter(port: AdminPort, ctx: RequestContext, request: RemoveRaftVoterRequest) -> Message:
    """RemoveRaftVoter (key 81) on the brokers' listeners, version 0.

    - 0: removes a voter from the metadata quorum (KIP-853)

    The broker forwards the request to the leader of the quorum, see `handlers/quorum/forwards.py`.
    """
    return await port.controller.call(request, ctx.api_version, ctx)
