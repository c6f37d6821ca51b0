"""Shell: a worker's membership in the group of its Connect cluster.

The coordinator (a broker) notices a worker that dies after `session.timeout.ms`, and lets the others divide its
connectors. A worker that cannot reach the coordinator for that time counts itself as dead, and stops its connectors
before another worker may start them. What it writes later is fenced: each query has a transactional id or a ledger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from barnabas.client.cluster.cluster import Cluster
from barnabas.client.consumer.classic_coordinator import ClassicCoordinator
from barnabas.client.consumer.coordinator import GroupTiming, RebalanceListener
from barnabas.client.consumer.subscription import SubscriptionState
from barnabas.client.membership.classic import ClassicMember, MembershipConfig, MemberState
from barnabas.core.ids import TopicPartition
from barnabas.spark.connectors.connect.cluster.assignment import PROTOCOL_TYPE, ConnectorAssignor, connectors_of
from barnabas.spark.connectors.connect.worker_config import ConnectWorkerConfig

Gained = Callable[[frozenset[str], int], None]
"""Called with the worker's connectors and the generation of the group."""
Losing = Callable[[frozenset[str]], Awaitable[None]]
"""Called with connectors that another worker will get; returns when they are stopped."""

_POLL_LIMIT_MS = 24 * 3_600_000
"""The worker polls while connectors stop, which may take long; a dead event loop sends no heartbeats either."""


class _WorkerMember(ClassicMember):
    """A member whose assigned names are connectors. They are no topics, so no subscription ends for them."""

    def revoke_before_join(self) -> frozenset[TopicPartition]:
        return frozenset()


class _WorkerCoordinator(ClassicCoordinator):
    """A member that notes when the coordinator answered last."""

    answered_at: float = 0.0
    is_reachable = True

    async def _ask(self, request: Any, timeout_ms: float | None = None) -> Any:
        if timeout_ms is None:  # a heartbeat, whose answer is of use only within the session time-out
            timeout_ms = self.options.session_timeout_ms / 3
        response = await super()._ask(request, timeout_ms)
        self.is_reachable = response is not None
        if self.is_reachable:
            self.answered_at = self._cluster.now()
        return response

    async def give_up_all(self) -> None:
        """Stop everything, because other members may own it already."""
        if self.member.owned:
            await self._give_up(self.member.owned, lost=True)
            self.member.request_rejoin()


class WorkerMembership:
    """Keeps this worker in the group. `poll` calls `gained` and `losing`."""

    def __init__(
        self,
        cluster: Cluster,
        config: ConnectWorkerConfig,
        connectors: Callable[[], Collection[str]],
        *,
        gained: Gained,
        losing: Losing,
        wake: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._connectors = connectors
        self._assignor = ConnectorAssignor(connectors)
        self._session_s = config.session_timeout_ms / 1000.0
        options = MembershipConfig(
            config.group_id,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.rebalance_timeout_ms,
            protocol_type=PROTOCOL_TYPE,
        )
        self._member = _WorkerMember(options, [self._assignor])
        subscription = SubscriptionState()
        subscription.subscribe([config.config_storage_topic])
        self._coordinator = _WorkerCoordinator(
            cluster,
            subscription,
            self._member,
            GroupTiming(config.heartbeat_interval_ms, _POLL_LIMIT_MS),
            wake=wake,
            before_revoke=_nothing,
        )
        self._joined = asyncio.Event()
        self._led: frozenset[str] | None = None
        self._coordinator.listener = _Listener(self._on_assigned, losing)
        self._gained = gained

    @property
    def connectors(self) -> frozenset[str]:
        """The connectors that this worker has been assigned."""
        return connectors_of(self._coordinator.owned)

    @property
    def generation(self) -> int:
        return self._member.generation_id

    async def wait_joined(self) -> None:
        """Wait until the group has assigned connectors to this worker, or none, for the first time."""
        await self._joined.wait()

    def _on_assigned(self) -> None:
        self._led = self._assignor.take_led()
        self._gained(self.connectors, self.generation)
        self._joined.set()

    async def poll(self) -> None:
        """Handle what has happened in the group. Waits while connectors that are taken away stop. Raises KafkaError if
        the group rejects this worker.
        """
        coordinator = self._coordinator
        if not coordinator.is_reachable and self._cluster.now() - coordinator.answered_at > self._session_s:
            await coordinator.give_up_all()
        is_stable = self._member.state is MemberState.STABLE  # a join under way would end the request to join again
        if is_stable and self._led is not None and self._led != frozenset(self._connectors()):
            self._led = None
            self._member.request_rejoin()  # a connector is new, or was deleted
        await coordinator.poll()

    async def close(self) -> None:
        """Stop the connectors, and leave the group."""
        await self._coordinator.close("the worker is being stopped")


class _Listener(RebalanceListener):
    def __init__(self, assigned: Callable[[], None], losing: Losing) -> None:
        self._assigned = assigned
        self._losing = losing

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self._assigned()

    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        await self._losing(connectors_of(partitions))


async def _nothing() -> None:
    """A worker has no positions to commit before it gives up a connector."""
