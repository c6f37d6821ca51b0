"""Shell: the way to the coordinator of a link, on this broker or on another one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from barnabas.core.errors import ErrorCode, KafkaError, error_code
from barnabas.core.ids import MIRROR_STATE_TOPIC
from barnabas.protocol.wire.schema import Request
from barnabas.server.peers.peer_router import PeerRouter

R = TypeVar("R")


class LinkRouter:
    """Sends requests to the coordinators of links."""

    def __init__(self, router: PeerRouter) -> None:
        self.router = router
        self._creating: asyncio.Lock | None = None

    async def send(self, link: str, request: Request, local: Callable[[], Awaitable[R]]) -> R:
        """The response of the link's coordinator; `local` calls the coordinator of this broker. Raises KafkaError, also
        for an error in the response."""
        broker_id = self.router.coordinator(MIRROR_STATE_TOPIC, link)
        if self.router.is_local(broker_id):
            return await local()
        response: Any = await self.router.send(broker_id, request, "links")
        raise_error(response)
        answer: R = response
        return answer

    async def require_topic(self) -> None:
        """Create `__mirror_state` unless it exists. Raises KafkaError COORDINATOR_NOT_AVAILABLE."""
        self._creating = self._creating or asyncio.Lock()
        async with self._creating:
            local = self.router.local
            if MIRROR_STATE_TOPIC in local.metadata.image.topics:
                return
            refused = await local.topic_creation.create_missing(None, [MIRROR_STATE_TOPIC])
            if refused:
                raise KafkaError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    f"{MIRROR_STATE_TOPIC} could not be created ({refused[MIRROR_STATE_TOPIC].name}). Check that the "
                    "cluster has at least mirror.state.topic.replication.factor active brokers.",
                )

    @property
    def has_topic(self) -> bool:
        return MIRROR_STATE_TOPIC in self.router.local.metadata.image.topics


def raise_error(response: Any) -> None:
    """Raise the error of a whole response, if it has one."""
    if response.error_code:
        raise KafkaError(error_code(response.error_code), response.error_message)
