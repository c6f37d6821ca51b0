"""Port: what the share coordinator needs of the node, and what its clients need to reach it."""

from __future__ import annotations

from typing import Any, Protocol

from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.schema import Request


class LogPruner(Protocol):
    """Deletes the beginning of a partition's log."""

    async def delete_before(self, tp: TopicPartition, offset: int) -> None:
        """Raises KafkaError."""
        ...


class ShareChannel(Protocol):
    """The way to share coordinators, wherever they are."""

    async def send(self, coordinator_key: str, request: Request) -> Any:
        """The response of the coordinator of this share partition. Makes the topic if there is none yet.

        Raises KafkaError when no coordinator can be reached.
        """
        ...
