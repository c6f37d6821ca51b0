"""Shell: finds the cluster id of a new node by a request to each controller in the configuration.

    a controller has an id               the new node takes this id
    all answered, none has an id         the first controller in the configuration generates one; the others retry
    some did not answer, none has an id  retry: a controller that did not answer may have an id

So the first start of a cluster needs all its controllers once, and a node with an emptied disk never starts a second
cluster. Kafka's controllers send their cluster id only while a majority of them runs; if the new node is needed for
that majority, pass the id with `--cluster-id`. While a controller waits here, `NewcomerHandler` answers the requests of
the other controllers on its listener.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from barnabas.core.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.core.telemetry import get_logger
from barnabas.protocol.transport.node_client import NodeClient
from barnabas.protocol.transport.ports import Answer, CloseConnectionError, Finished, Peer, RequestScheduling
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
"""While the node waits for other controllers, a warning is logged at this interval."""

_KAFKA_CONTROLLERS: Final = (
    "these controllers run Apache Kafka and send their cluster id only while a majority of the quorum runs; "
    "if the majority needs this node, start it with --cluster-id"
)

Ask = Callable[[Address], Awaitable[str]]
"""Returns the cluster id of the controller at an address, "" if that controller is new. Raises KafkaError."""


class ClusterIdError(BarnabasError):
    """The controllers of the configuration belong to different clusters."""


async def agree_on_cluster_id(others: Sequence[Address], *, founder: bool, new_id: Callable[[], str], ask: Ask) -> str:
    """Return the cluster id that a controller in `others` has. Waits for `others` without a limit.

    If none of them has an id, the `founder` creates one after all have answered, and the other nodes wait for it.

    Raises ClusterIdError if `others` belong to different clusters.
    """
    loop = asyncio.get_running_loop()
    pause, logged_at = _PAUSE_S, loop.time() - _REPEAT_S + 1.0
    while True:
        known, missing = await _ask_all(others, ask)
        if len(set(known.values())) > 1:
            ids = ", ".join(f"{_name(address)} belongs to {cluster_id}" for address, cluster_id in known.items())
            raise ClusterIdError(
                f"The controllers in the configuration belong to different clusters: {ids}. Correct the configuration."
            )
        if known:
            return next(iter(known.values()))
        if founder and not missing:
            return new_id()
        if loop.time() - logged_at >= _REPEAT_S:
            logged_at = loop.time()
            log.warning(
                "waiting for controllers: the first start of a cluster needs every controller once",
                not_reached=", ".join(_name(address) for address in missing)
                or "none; one of them will generate the cluster id",
            )
            kafka_controllers = [
                _name(address) for address, error in missing.items() if error.code is ErrorCode.UNSUPPORTED_VERSION
            ]
            if kafka_controllers:
                log.warning(_KAFKA_CONTROLLERS, controllers=", ".join(kafka_controllers))
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _PAUSE_MAX_S)


async def confirm_cluster_id(own: str, others: Sequence[Address], *, ask: Ask) -> None:
    """Wait until one of `others` confirms the cluster id `own`. Raises ClusterIdError if one has another id."""
    pause = _PAUSE_S
    while True:
        known, _ = await _ask_all(others, ask)
        for address, cluster_id in known.items():
            if cluster_id != own:
                raise ClusterIdError(
                    f"The data directories belong to cluster {own}, but the controller at {_name(address)} belongs to "
                    f"{cluster_id}. Use a data directory of that cluster, or an empty one, or set the addresses of "
                    f"the controllers of {own} in the configuration."
                )
        if known:
            return
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _CONFIRM_PAUSE_MAX_S)


async def _ask_all(others: Sequence[Address], ask: Ask) -> tuple[Mapping[Address, str], Mapping[Address, KafkaError]]:
    """Returns (address -> cluster id of controllers that have one, address -> error of controllers that failed)."""

    async def one(address: Address) -> str | KafkaError:
        try:
            return await ask(address)
        except KafkaError as error:
            log.debug("a controller did not return its cluster id", address=_name(address), reason=str(error))
            return error

    answers = await asyncio.gather(*(one(address) for address in others))
    results = list(zip(others, answers, strict=True))
    known = {address: answer for address, answer in results if isinstance(answer, str) and answer}
    return known, {address: answer for address, answer in results if isinstance(answer, KafkaError)}


def ask_over(outgoing: NodeClient) -> Ask:
    """An `Ask` that sends DescribeCluster.

    A Kafka controller answers DescribeCluster only after it has read a metadata.version, for which its quorum needs a
    majority.
    """

    async def ask(address: Address) -> str:
        request = DescribeClusterRequest(endpoint_type=CONTROLLER_ENDPOINTS)
        answer = await outgoing.send(*address, request, timeout_ms=_ASK_TIMEOUT_MS)
        assert isinstance(answer, DescribeClusterResponse)
        if answer.error_code:
            raise KafkaError(answer.error_code, answer.error_message)
        return answer.cluster_id

    return ask


_SASL: Final[Mapping[int, tuple[int, int]]] = {ApiKey.SASL_HANDSHAKE: (0, 1), ApiKey.SASL_AUTHENTICATE: (0, 2)}
"""The APIs that a listener with SASL serves itself, before a request reaches its handler."""


class NewcomerHandler:
    """`RequestHandler` of a controller without a cluster id: DescribeCluster returns an empty cluster id."""

    _SERVED: Final[Mapping[int, tuple[int, int]]] = {ApiKey.API_VERSIONS: (0, 3), ApiKey.DESCRIBE_CLUSTER: (1, 2)}

    def scheduling(self, request: ReceivedRequest) -> RequestScheduling:
        return RequestScheduling.SEQUENTIAL

    def begin(self, request: ReceivedRequest, peer: Peer) -> Finished[Answer]:
        return Finished(self._answer(request))

    def on_closed(self, peer: Peer) -> None:
        """Does nothing: the handler keeps no state of a connection."""

    def _answer(self, request: ReceivedRequest) -> Answer:
        key, version = request.header.api_key, request.header.api_version
        low, high = self._SERVED.get(key, (0, -1))
        if not low <= version <= high:
            raise CloseConnectionError("this controller has no cluster id yet")
        if key == ApiKey.DESCRIBE_CLUSTER:
            return request.answer(DescribeClusterResponse(endpoint_type=CONTROLLER_ENDPOINTS, cluster_id=""))
        listed = {**self._SERVED, **_SASL}
        served = [ApiVersion(api_key=k, min_version=low, max_version=high) for k, (low, high) in listed.items()]
        return request.answer(ApiVersionsResponse(api_keys=served))


def _name(address: Address) -> str:
    return f"{address[0]}:{address[1]}"
