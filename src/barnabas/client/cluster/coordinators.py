"""Shell: a cache of coordinators: the brokers that coordinate groups, transactional ids and share groups."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from barnabas.client.cluster.metadata import BrokerAddress
from barnabas.client.cluster.versions import Versioned
from barnabas.core.errors import ErrorCode, KafkaError, error_code
from barnabas.protocol.transport.outgoing_connection import STALLED_S
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from barnabas.client.cluster.cluster import Cluster


class CoordinatorType(IntEnum):
    """The kind of coordinator; the integer is the key type of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


KEYS_MAX: Final = 10_000
"""The number of keys whose coordinators are kept. A client may use transactional ids that never come again."""
KEYS_PER_REQUEST_MAX: Final = 1_000
"""The number of keys in one request that looks for the successors of a broker."""
COORDINATOR_MOVED: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION}
)
"""Errors that mean that the coordinator must be looked up again."""


class Coordinators:
    """Looks up coordinators, and keeps each until an error shows that it has moved."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[tuple[CoordinatorType, str], int] = {}
        self._former: dict[tuple[CoordinatorType, str], int] = {}
        """The coordinators that were forgotten, until the next ones are known: other requests may still wait there."""
        self.moved_at: dict[int, float] = {}
        """The time at which each broker was last found to coordinate something no longer."""

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
        former = self._known.pop((kind, key), None)
        if former is not None:
            self._former[kind, key] = former

    def note_error(self, kind: CoordinatorType, key: str, code: ErrorCode) -> None:
        """Drop the cached coordinator if `code`, the error of a response, means that the coordinator has moved."""
        if code in COORDINATOR_MOVED:
            self.forget(kind, key)

    def may_have_moved_from(self, broker_id: int) -> bool:
        """Whether this broker is the coordinator of anything, and there is another broker that may be its successor."""
        places = (*self._known.values(), *self._former.values())
        return len(self._cluster.metadata.brokers) > 1 and broker_id in places

    async def look_again(self, broker_id: int) -> None:
        """Look up again what this broker coordinates, because a request to the broker has no answer. Errors are
        ignored: they mean that there is no successor yet.

        The broker itself is asked first. If it answers, it is not paused, and knows best: a join may wait for long, and
        a broker that is cut off from the cluster may still name itself.
        """
        now = self._cluster.now
        for kind in CoordinatorType:
            places = self._former | self._known
            keys = [key for (known, key), at in places.items() if known is kind and at == broker_id]
            if not keys:
                continue
            del keys[KEYS_PER_REQUEST_MAX:]
            try:
                answers = await self._ask(kind, keys, now() + STALLED_S, broker_id)
            except KafkaError:
                answers = await self._ask(kind, keys, self._cluster.deadline())
            for found in answers:
                if found.error_code == 0:
                    self._keep(kind, found)

    async def _find(self, kind: CoordinatorType, key: str, deadline: float) -> int:
        found = (await self._ask(kind, [key], deadline))[0]
        code = error_code(found.error_code)
        if code is not ErrorCode.NONE:
            raise KafkaError(code, found.error_message or f"Coordinator of {key!r}: {code.message}")
        self._keep(kind, found)
        return found.node_id

    async def _ask(
        self, kind: CoordinatorType, keys: Sequence[str], deadline: float, broker_id: int | None = None
    ) -> Sequence[Coordinator]:
        """The answers of any broker, or of this one, for these keys; before version 4 only the first."""

        def build(version: int) -> FindCoordinatorRequest:
            if version >= 4:
                return FindCoordinatorRequest(key_type=int(kind), coordinator_keys=list(keys))
            return FindCoordinatorRequest(key=keys[0], key_type=int(kind))

        request = Versioned(ApiKey.FIND_COORDINATOR, build)
        one: FindCoordinatorResponse
        if broker_id is None:
            one = await self._cluster.ask_any(request, deadline=deadline)
        else:
            one = await self._cluster.send(broker_id, request, deadline=deadline)
        return one.coordinators or [
            Coordinator(
                key=keys[0],
                node_id=one.node_id,
                host=one.host,
                port=one.port,
                error_code=one.error_code,
                error_message=one.error_message,
            )
        ]

    def _keep(self, kind: CoordinatorType, found: Coordinator) -> None:
        if found.node_id not in self._cluster.metadata.brokers:
            self._cluster.metadata.add_broker(BrokerAddress(found.node_id, found.host, found.port))
        forgotten = self._former.pop((kind, found.key), None)
        former = self._known.get((kind, found.key), forgotten)
        if former not in (None, found.node_id):
            self.moved_at[former] = self._cluster.now()
        if len(self._known) >= KEYS_MAX:
            self._known.clear()
            self._former.clear()
        self._known[(kind, found.key)] = found.node_id
