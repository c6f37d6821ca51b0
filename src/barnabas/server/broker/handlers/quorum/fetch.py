"""Shell: Fetch (key 1) on the controllers' listener, versions 12 to 18: the metadata log, and nothing else (KIP-595).

Followers and observers pull the log with it, and thereby say how far they are. There are no sessions here. The answer
parks until there is something to tell: records, or a high watermark that the follower does not know (version 18,
KIP-1166). It may also say where the logs part (`diverging_epoch`), or which snapshot to load first (`snapshot_id`).

Versions: 12 names the topic, later ones its id; 15 moves the replica's id into `replica_state`; 17 adds its disk.
"""

from __future__ import annotations

from typing import Final, cast

from barnabas.protocol.wire.messages.fetch import FetchRequest, FetchResponse
from barnabas.server.broker.quorum.fetches import fetch_response, parse_fetch_request
from barnabas.server.broker.quorum.parts import check_request
from barnabas.server.broker.quorum.ports import QuorumServices
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.raft.machine import messages as raft

FETCH_BYTES_MAX: Final = 8 * 1024 * 1024
"""Most that one answer carries, whatever is asked for; a first batch that is larger goes out whole."""


async def handle(services: QuorumServices, ctx: RequestContext, request: FetchRequest) -> FetchResponse:
    error = check_request(request.cluster_id, request.topics, services.cluster_id)
    if error:
        return FetchResponse(error_code=error)
    answer = await services.quorum.handle(parse_fetch_request(request, ctx.api_version, FETCH_BYTES_MAX))
    return fetch_response(cast("raft.FetchResponse", answer), ctx.api_version)
