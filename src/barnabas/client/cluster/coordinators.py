"""Shell: a cache of coordinators: the brokers that coordinate groups, transactional ids and share groups."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from barnabas.client.cluster.metadata import BrokerAddress
from barnabas.client.cluster.versions import Versioned
from barnabas.core.errors import ErrorCode, KafkaError, error_code
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from barnabas.client.cluster.cluster import Cluster


class CoordinatorType(IntEnum):
    """The kind of coordinator; the integer is the key type of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


KEYS_MAX: Final = 10_000
"""The number of keys whose coordinators are kept. A client may use transactional ids that never come again."""
COORDINATOR_MOVED: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION}
)
"""Errors that mean that the coordinator must be looked up again."""


class Coordinators:
    """Looks up coordinators, and keeps each until an error shows that it has moved."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[tuple[CoordinatorType, str], int] = {}

    async def find(self, kind: CoordinatorType, key: str, *, deadline: float | None = None) -> int:
        """The broker id of the coordinator. Retries until the deadline, then raises KafkaError."""
        known = self._known.get((kind, key))
        if known is not None and known in self._cluster.metadata.brokers:
            return known
        if deadline is None:
            deadline = self._cluster.deadline()

        async def attempt() -> int:
            return await self._find(kind, key, deadline)

        found: int = await self._cluster.retrying(f"Finding the coordinator of {key!r}", attempt, deadline=deadline)
        return found

    def forget(self, kind: CoordinatorType, key: str) -> None:
        self._known.pop((kind, key), None)

    def note_error(self, kind: CoordinatorType, key: str, code: ErrorCode) -> None:
        """Drop the cached coordinator if `code`, the error of a response, means that the coordinator has moved."""
        if code in COORDINATOR_MOVED:
            self.forget(kind, key)

    async def _find(self, kind: CoordinatorType, key: str, deadline: float) -> int:
        def build(version: int) -> FindCoordinatorRequest:
            if version >= 4:
                return FindCoordinatorRequest(key_type=int(kind), coordinator_keys=[key])
            return FindCoordinatorRequest(key=key, key_type=int(kind))

        request = Versioned(ApiKey.FIND_COORDINATOR, build)
        response: FindCoordinatorResponse = await self._cluster.send_any(request, deadline=deadline)
        if response.coordinators:
            found = response.coordinators[0]
            code, message = error_code(found.error_code), found.error_message
            address = BrokerAddress(found.node_id, found.host, found.port)
        else:
            code, message = error_code(response.error_code), response.error_message
            address = BrokerAddress(response.node_id, response.host, response.port)
        if code is not ErrorCode.NONE:
            raise KafkaError(code, message or f"Coordinator of {key!r}: {code.message}")
        if address.broker_id not in self._cluster.metadata.brokers:
            self._cluster.metadata.add_broker(address)
        if len(self._known) >= KEYS_MAX:
            self._known.clear()
        self._known[(kind, key)] = address.broker_id
        return address.broker_id
