"""Shell: the handlers of the states of share partitions (KIP-932), which pass the request on to the coordinator."""

from __future__ import annotations

from barnabas.protocol.wire.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
)
from barnabas.protocol.wire.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)
from barnabas.protocol.wire.messages.read_share_group_state import (
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
)
from barnabas.protocol.wire.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)
from barnabas.protocol.wire.messages.write_share_group_state import (
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)
from barnabas.server.broker.handlers.shares.port import SharesPort
from barnabas.server.broker.request_context import RequestContext


async def initialize_share_group_state(
    port: SharesPort, ctx: RequestContext, request: InitializeShareGroupStateRequest
) -> InitializeShareGroupStateResponse:
    """InitializeShareGroupState (key 83), version 0.

    - 0: the share coordinator initializes the state of share partitions, or resets it to another start offset (KIP-932)

    Group coordinators send this request.
    """
    return await port.shares.coordinator.initialize_share_group_state(request)


async def read_share_group_state(
    port: SharesPort, ctx: RequestContext, request: ReadShareGroupStateRequest
) -> ReadShareGroupStateResponse:
    """ReadShareGroupState (key 84), version 0.

    - 0: the share coordinator returns the state of share partitions (KIP-932)

    The leader of a partition sends this request when it begins to serve a share group. The request fences previous
    leaders.
    """
    return await port.shares.coordinator.read_share_group_state(request)


async def write_share_group_state(
    port: SharesPort, ctx: RequestContext, request: WriteShareGroupStateRequest
) -> WriteShareGroupStateResponse:
    """WriteShareGroupState (key 85), versions 0 to 1.

    - 0: the share coordinator writes changes of the state of share partitions (KIP-932)
    - 1: the number of records after the start offset whose delivery is complete (KIP-1226)

    The leaders of the partitions send this request.
    """
    return await port.shares.coordinator.write_share_group_state(request)


async def delete_share_group_state(
    port: SharesPort, ctx: RequestContext, request: DeleteShareGroupStateRequest
) -> DeleteShareGroupStateResponse:
    """DeleteShareGroupState (key 86), version 0.

    - 0: the share coordinator deletes the state of share partitions (KIP-932)

    Group coordinators send this request.
    """
    return await port.shares.coordinator.delete_share_group_state(request)


async def read_share_group_state_summary(
    port: SharesPort, ctx: RequestContext, request: ReadShareGroupStateSummaryRequest
) -> ReadShareGroupStateSummaryResponse:
    """ReadShareGroupStateSummary (key 87), versions 0 to 1.

    - 0: the share coordinator returns the start offsets of share partitions without the state of their records
      (KIP-932)
    - 1: the number of records after the start offset whose delivery is complete (KIP-1226)

    Group coordinators send this request.
    """
    return await port.shares.coordinator.read_share_group_state_summary(request)
