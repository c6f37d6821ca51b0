"""Port: what the share coordinator needs from the node, and what its clients need to send requests."""

from __future__ import annotations

from typing import Any, Protocol

from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.schema import Request


class LogPruner(Protocol):
    """Deletes records from the start of a partition's log."""

    async def delete_before(self, tp: TopicPartition, offset: int) -> None:
        """Delete the records before `offset`. Raises KafkaError."""
        ...


class ShareChannel(Protocol):
    """Sends requests to share coordinators, on this node or on others."""

    async def send(self, coordinator_key: str, request: Request) -> Any:
        """Send the request to the coordinator of this share partition, and return the response. Creates
        `__share_group_state` if it does not exist. Raises KafkaError if the coordinator cannot be reached."""
        ...
