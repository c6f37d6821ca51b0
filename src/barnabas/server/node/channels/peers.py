"""Shell: requests to other brokers by their id; the newest image says where each one listens for its peers."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.transport.node_client import NodeClient
from barnabas.protocol.wire.schema import Request, Response
from barnabas.server.metadata.image.cluster import ClusterImage


class Peers:
    """`image` gives the newest committed image; `listener` is `inter.broker.listener.name`."""

    def __init__(self, outgoing: NodeClient, image: Callable[[], ClusterImage], listener: str) -> None:
        self._outgoing = outgoing
        self._image = image
        self._listener = listener

    async def send(self, broker_id: int, request: Request, *, timeout_ms: int, purpose: str = "") -> Response:
        """What broker `broker_id` answers. Raises KafkaError: BROKER_NOT_AVAILABLE, REQUEST_TIMED_OUT,
        UNSUPPORTED_VERSION (see `NodeClient.send`)."""
        broker = self._image().brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoint(self._listener)
        if endpoint is None:
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"Broker {broker_id} is not known to have a listener {self._listener}."
            )
        return await self._outgoing.send(endpoint.host, endpoint.port, request, timeout_ms=timeout_ms, purpose=purpose)
