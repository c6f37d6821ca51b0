"""Coordinators that have moved, as the client knows them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from barnabas.client.cluster.coordinators import Coordinators, CoordinatorType
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse

GROUP = CoordinatorType.GROUP


class FakeCluster:
    """A cluster whose brokers all name the same coordinator."""

    def __init__(self) -> None:
        self.coordinator = 1
        self.metadata = SimpleNamespace(brokers={1: None, 2: None})

    def now(self) -> float:
        return 7.0

    def deadline(self, timeout_ms: float | None = None) -> float:
        return 100.0

    async def ask_any(self, request: Any, *, deadline: float) -> FindCoordinatorResponse:
        assert request.api_key is ApiKey.FIND_COORDINATOR
        return FindCoordinatorResponse(coordinators=[Coordinator(key="g", node_id=self.coordinator, host="h", port=1)])

    async def retrying(self, doing: str, attempt: Any, *, deadline: float) -> int:
        return int(await attempt())


def test_a_coordinator_that_was_forgotten_before_its_successor_was_found_has_moved() -> None:
    """Requests that still wait for the answer of the former one go to the successor, too."""

    async def main() -> None:
        cluster = FakeCluster()
        coordinators = Coordinators(cast("Any", cluster))
        assert await coordinators.find(GROUP, "g") == 1
        coordinators.forget(GROUP, "g")  # another request to it has failed
        assert coordinators.may_have_moved_from(1)
        assert coordinators.moved_at == {}
        cluster.coordinator = 2
        assert await coordinators.find(GROUP, "g") == 2
        assert coordinators.moved_at == {1: 7.0}
        assert not coordinators.may_have_moved_from(1)

    asyncio.run(main())
