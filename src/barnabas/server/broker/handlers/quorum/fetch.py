"""Shell: Fetch (key 1) on the controllers' listener, versions 12 to 18.

- 12: fetches from the metadata log, which is named as a topic (KIP-595)
- 13: the topic id in place of the name (KIP-516)
- 14: as 13
- 15: the replica id is in ReplicaState (KIP-903)
- 16: the leader's endpoint in the response (KIP-951)
- 17: the replica's directory id (KIP-853)
- 18: the high watermark that the replica knows (KIP-1166)

Followers and observers copy the metadata log with this request; their fetch offsets show their progress. The response
is delayed until there are records or a high watermark that the replica does not know. The response may instead
contain the offset at which the logs diverge (DivergingEpoch) or the snapshot that the replica has to load first
(SnapshotId). There are no fetch sessions, and no other partition can be fetched.
"""

from __future__ import annotations

from typing import Final, cast

from barnabas.protocol.wire.messages.fetch import FetchRequest, FetchResponse
from barnabas.server.broker.quorum.fetches import fetch_response, parse_fetch_request
from barnabas.server.broker.quorum.parts import at_listener, check_request
from barnabas.server.broker.quorum.ports import QuorumServices
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.raft.machine import messages as raft

FETCH_BYTES_MAX: Final = 8 * 1024 * 1024
"""The largest size of a response, whatever MaxBytes is; the first batch is sent whole even if it is larger."""


async def handle(services: QuorumServices, ctx: RequestContext, request: FetchRequest) -> FetchResponse:
    error = check_request(request.cluster_id, request.topics, services.cluster_id)
    if error:
        return FetchResponse(error_code=error)
    answer = await services.quorum.handle(parse_fetch_request(request, ctx.api_version, FETCH_BYTES_MAX))
    return fetch_response(at_listener(cast("raft.FetchResponse", answer), ctx.client.listener), ctx.api_version)
