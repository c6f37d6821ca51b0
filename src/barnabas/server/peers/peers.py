"""Shell: sends requests to other brokers by broker id; the newest metadata image has the addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.transport.node_client import NodeClient
from barnabas.protocol.wire.schema import Request, Response
from barnabas.server.metadata.image.cluster import ClusterImage


class PeerSender(Protocol):
    """Sends requests to other brokers. `Peers` implements it; tests use doubles."""

    async def send(self, broker_id: int, request: Request, *, timeout_ms: int, purpose: str = "") -> Response:
        """Requests with different `purpose`s use different connections.

        Raises KafkaError BROKER_NOT_AVAILABLE, REQUEST_TIMED_OUT or UNSUPPORTED_VERSION.
        """
        ...


class Peers:
    """The other brokers of the cluster. `image` returns the newest committed image; `listener` is the value of
    `inter.broker.listener.name`."""

    def __init__(self, outgoing: NodeClient, image: Callable[[], ClusterImage], listener: str) -> None:
        self._outgoing = outgoing
        self._image = image
        self._listener = listener

    async def send(self, broker_id: int, request: Request, *, timeout_ms: int, purpose: str = "") -> Response:
        """Send `request` to broker `broker_id` and return the response.

        Raises KafkaError BROKER_NOT_AVAILABLE (also if the image has no address of the broker), REQUEST_TIMED_OUT or
        UNSUPPORTED_VERSION.
        """
        broker = self._image().brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoint(self._listener)
        if endpoint is None:
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"Broker {broker_id} has no registered listener {self._listener}."
            )
        return await self._outgoing.send(endpoint.host, endpoint.port, request, timeout_ms=timeout_ms, purpose=purpose)
