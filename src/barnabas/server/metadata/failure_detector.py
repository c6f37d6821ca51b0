"""Shell: runs the probes that `BrokerSuspicions` asks for, and ends the sessions of brokers whose processes have ended.

    start ──► a probe for each broker that sends no heartbeat, or whose connection was lost ──► on_dead
    on_nodes_registered ──► a node has lost its ZooKeeper session ──► on_dead
    stop: this node is no longer the active controller; outcomes of running probes are ignored

See docs/adr/0015-a-killed-broker.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from barnabas.core.telemetry import get_logger
from barnabas.server.metadata.controller.suspicions import BrokerSuspicions, Probe, ProbeOutcome
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.ports import BrokerProber

log = get_logger("barnabas.controller")


class FailureDetector:
    """Detects ended broker processes while this node is the active controller. Without a prober it detects nothing."""

    def __init__(
        self,
        prober: BrokerProber | None,
        image: Callable[[], ClusterImage],
        on_dead: Callable[[int, int], None],
        *,
        node_id: int,
    ) -> None:
        """`on_dead` is called with the id and the epoch of a broker whose process has ended."""
        self._prober = prober
        self._image = image
        self._on_dead = on_dead
        self._node_id = node_id
        self._suspicions: BrokerSuspicions | None = None
        """The brokers that may be dead; None while this node is not the active controller, or without a prober."""
        self._active = False
        self._node_ids: frozenset[int] | None = None
        """The nodes with a ZooKeeper session; None if unknown, and in a cluster without ZooKeeper."""
        self._wake = asyncio.Event()

    def start(self) -> None:
        """This node has become the active controller."""
        self._active = True
        self._end_sessions_without(None)
        if self._prober is None:
            return
        self._suspicions = BrokerSuspicions(self._node_id)
        unfenced = [(broker.broker_id, broker.epoch) for broker in self._image().brokers if not broker.fenced]
        self._suspicions.on_active(unfenced, _now_ms())
        self._wake.set()

    def stop(self) -> None:
        self._suspicions = None
        self._active = False
        self._node_ids = None

    def on_nodes_registered(self, node_ids: frozenset[int]) -> None:
        """The nodes that have a ZooKeeper session. A node whose session has ended is dead, paused, or cut off from
        ZooKeeper, so that it cannot read the metadata log. Its next heartbeat begins a new broker session."""
        before, self._node_ids = self._node_ids, node_ids
        if self._active:
            self._end_sessions_without(before)

    def _end_sessions_without(self, before: frozenset[int] | None) -> None:
        """End the sessions of the brokers that are not registered, and were so in `before`."""
        if self._node_ids is None:
            return
        for broker in self._image().brokers:
            gone = broker.broker_id not in self._node_ids and (before is None or broker.broker_id in before)
            if gone and not broker.fenced and broker.broker_id != self._node_id:
                self._on_dead(broker.broker_id, broker.epoch)

    def on_heartbeat(self, broker_id: int, broker_epoch: int, connection_id: int | None) -> None:
        if self._suspicions is None or self._suspicions.on_heartbeat(broker_id, broker_epoch, connection_id):
            return
        log.warning(
            "a broker runs although its host refuses connections to its advertised address: "
            "is there a firewall or a load balancer in between? From now on only the end of its session fences it",
            broker=broker_id,
            epoch=broker_epoch,
            addresses=[f"{host}:{port}" for host, port in self._addresses(broker_id, broker_epoch)],
        )

    def on_connection_lost(self, connection_id: int) -> None:
        broker_id = None if self._suspicions is None else self._suspicions.on_connection_lost(connection_id)
        broker = None if broker_id is None else self._image().brokers.get(broker_id)
        if self._suspicions is not None and broker is not None:
            log.debug("the connection of a broker's heartbeats was lost", broker=broker_id)
            self._suspicions.suspect(broker.broker_id, broker.epoch, _now_ms())
            self._wake.set()

    def forget(self, broker_id: int) -> None:
        if self._suspicions is not None:
            self._suspicions.forget(broker_id)

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._wake.clear()
                wake_at = None
                suspicions = self._suspicions
                if suspicions is not None:
                    for probe in suspicions.take_due(_now_ms()):
                        tasks.create_task(self._probe(suspicions, probe), name=f"probe broker {probe.broker_id}")
                    next_ms = suspicions.next_ms()
                    # half a millisecond more, so that the clock in whole milliseconds has reached the time
                    wake_at = None if next_ms is None else next_ms / 1000 + 0.0005
                try:
                    async with asyncio.timeout_at(wake_at):
                        await self._wake.wait()
                except TimeoutError:
                    pass

    async def _probe(self, suspicions: BrokerSuspicions, probe: Probe) -> None:
        assert self._prober is not None
        addresses = self._addresses(probe.broker_id, probe.broker_epoch)
        outcome = await self._prober.probe(addresses) if addresses else ProbeOutcome.SILENT
        dead = suspicions.on_probed(probe, outcome, _now_ms())
        if dead and suspicions is self._suspicions:
            self._on_dead(probe.broker_id, probe.broker_epoch)
        self._wake.set()

    def _addresses(self, broker_id: int, broker_epoch: int) -> list[tuple[str, int]]:
        """The registered addresses of this process; empty if a newer process has registered."""
        broker = self._image().brokers.get(broker_id)
        if broker is None or broker.epoch != broker_epoch:
            return []
        return [(endpoint.host, endpoint.port) for endpoint in broker.endpoints]


def _now_ms() -> int:
    """The monotonic clock of the running event loop, in milliseconds."""
    return int(asyncio.get_running_loop().time() * 1000)
