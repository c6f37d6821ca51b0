"""Shell: which cluster a new node belongs to: it asks the controllers that its configuration names.

    somebody has an id            that is ours
    nobody has one, all answered  the first controller of the configuration makes one; the others ask on
    nobody has one, some missing  wait: one that is missing may know

So the first start of a cluster needs all its controllers once, and an emptied disk can never begin a second cluster
beside the first. Kafka's controllers say theirs only when a majority runs: if that takes a new node of ours, it has to
be told (`--cluster-id`). While a controller waits, `NewcomerHandler` answers the others on its listener.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from barnabas.core.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.core.telemetry import get_logger
from barnabas.protocol.transport.node_client import NodeClient
from barnabas.protocol.transport.ports import Answer, CloseConnectionError, Peer, RequestScheduling
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.protocol.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.protocol.wire.server_conn import ReceivedRequest
from barnabas.server.node.setup.topology import Address

log = get_logger("barnabas.server.node")

CONTROLLER_ENDPOINTS: Final = 2
"""DescribeCluster's endpoint_type of controllers (KIP-919)."""
_ASK_TIMEOUT_MS: Final = 2_000
_PAUSE_S: Final = 0.2
_PAUSE_MAX_S: Final = 2.0
_CONFIRM_PAUSE_MAX_S: Final = 30.0
_REPEAT_S: Final = 10.0
"""A wait is told again after so long."""

_MUTE: Final = (
    "these controllers are Apache Kafka's, which say their cluster only when a majority of the quorum runs; "
    "if that takes this node, start it with --cluster-id"
)

Ask = Callable[[Address], Awaitable[str]]
"""The cluster id that the controller at an address knows, "" if it is new. Raises KafkaError."""


class ClusterIdError(BarnabasError):
    """The controllers of the configuration belong to different clusters."""


async def agree_on_cluster_id(others: Sequence[Address], *, founder: bool, new_id: Callable[[], str], ask: Ask) -> str:
    """The id of the cluster that `others` belong to, or a new one. Waits for them as long as it takes.

    Raises ClusterIdError when they contradict each other.
    """
    loop = asyncio.get_running_loop()
    pause, told_at = _PAUSE_S, loop.time() - _REPEAT_S + 1.0
    while True:
        known, missing = await _ask_all(others, ask)
        if len(set(known.values())) > 1:
            said = ", ".join(f"{_name(address)} belongs to {cluster_id}" for address, cluster_id in known.items())
            raise ClusterIdError(f"The controllers in the configuration are not of one cluster: {said}.")
        if known:
            return next(iter(known.values()))
        if founder and not missing:
            return new_id()
        if loop.time() - told_at >= _REPEAT_S:
            told_at = loop.time()
            log.warning(
                "waiting for the cluster: its first start needs every controller once",
                not_reached=", ".join(_name(address) for address in missing) or "nobody; one of them founds it",
            )
            mute = [_name(address) for address, error in missing.items() if error.code is ErrorCode.UNSUPPORTED_VERSION]
            if mute:
                log.warning(_MUTE, controllers=", ".join(mute))
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _PAUSE_MAX_S)


async def confirm_cluster_id(own: str, others: Sequence[Address], *, ask: Ask) -> None:
    """Until one of `others` says that it is of this cluster. Raises ClusterIdError when one is of another."""
    pause = _PAUSE_S
    while True:
        known, _ = await _ask_all(others, ask)
        for address, cluster_id in known.items():
            if cluster_id != own:
                raise ClusterIdError(
                    f"The data directories belong to cluster {own}, but the controller at {_name(address)} to "
                    f"{cluster_id}: use the data directory of that cluster, or an empty one, or name this cluster's "
                    "controllers in the configuration."
                )
        if known:
            return
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _CONFIRM_PAUSE_MAX_S)


async def _ask_all(others: Sequence[Address], ask: Ask) -> tuple[Mapping[Address, str], Mapping[Address, KafkaError]]:
    """(address -> id of those that have one, address -> reason of those that did not answer)"""

    async def one(address: Address) -> str | KafkaError:
        try:
            return await ask(address)
        except KafkaError as error:
            log.debug("a controller did not say its cluster", address=_name(address), reason=str(error))
            return error

    answers = await asyncio.gather(*(one(address) for address in others))
    told = list(zip(others, answers, strict=True))
    known = {address: answer for address, answer in told if isinstance(answer, str) and answer}
    return known, {address: answer for address, answer in told if isinstance(answer, KafkaError)}


def ask_over(outgoing: NodeClient) -> Ask:
    """By DescribeCluster, which every controller answers; Kafka's only once it has read a metadata.version, so not
    before its quorum has a majority."""

    async def ask(address: Address) -> str:
        request = DescribeClusterRequest(endpoint_type=CONTROLLER_ENDPOINTS)
        answer = await outgoing.send(*address, request, timeout_ms=_ASK_TIMEOUT_MS)
        assert isinstance(answer, DescribeClusterResponse)
        if answer.error_code:
            raise KafkaError(answer.error_code, answer.error_message)
        return answer.cluster_id

    return ask


class NewcomerHandler:
    """net.RequestHandler of a controller that does not know its cluster yet: it says so, and nothing else."""

    _SERVED: Final[Mapping[int, tuple[int, int]]] = {ApiKey.API_VERSIONS: (0, 3), ApiKey.DESCRIBE_CLUSTER: (1, 2)}

    def scheduling(self, request: ReceivedRequest) -> RequestScheduling:
        return RequestScheduling.SEQUENTIAL

    def handle(self, request: ReceivedRequest, peer: Peer) -> Coroutine[Any, Any, Answer]:
        return self._handle(request)

    def on_closed(self, peer: Peer) -> None:
        """Nothing is remembered of a connection."""

    async def _handle(self, request: ReceivedRequest) -> Answer:
        key, version = request.header.api_key, request.header.api_version
        low, high = self._SERVED.get(key, (0, -1))
        if not low <= version <= high:
            raise CloseConnectionError("this controller does not know its cluster yet")
        if key == ApiKey.DESCRIBE_CLUSTER:
            return request.answer(DescribeClusterResponse(endpoint_type=CONTROLLER_ENDPOINTS, cluster_id=""))
        served = [ApiVersion(api_key=k, min_version=low, max_version=high) for k, (low, high) in self._SERVED.items()]
        return request.answer(ApiVersionsResponse(api_keys=served))


def _name(address: Address) -> str:
    return f"{address[0]}:{address[1]}"
