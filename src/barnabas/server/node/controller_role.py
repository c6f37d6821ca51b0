"""Shell: the controller of a node: the controller service, and the listeners for other nodes.

A node that is a whole cluster needs no such listener; if one is configured, brokers can join the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from barnabas.core.telemetry import Metrics
from barnabas.protocol.security.principal_builder import PrincipalBuilder
from barnabas.protocol.transport.limits import RequestBudget
from barnabas.protocol.transport.listener import Listener
from barnabas.protocol.transport.turn_taking import TurnTaking
from barnabas.server.broker.apis import CONTROLLER_APIS
from barnabas.server.broker.client_usage.tables import ClientUsage
from barnabas.server.broker.dispatch import Dispatcher
from barnabas.server.broker.forward import ControllerChannel
from barnabas.server.broker.forwarded import ForwardingHandlers
from barnabas.server.broker.handlers.admin.port import AdminPort
from barnabas.server.broker.handlers.controller.port import ControllerPort
from barnabas.server.broker.handlers.quorum.port import QuorumPort
from barnabas.server.broker.handlers.security.port import SecurityPort
from barnabas.server.broker.served import ServedApis
from barnabas.server.metadata import features
from barnabas.server.metadata.controller.controller import Controller
from barnabas.server.metadata.controller_service import ControllerService
from barnabas.server.metadata.quota_callback import build_limits
from barnabas.server.metadata.records.codec import MetadataRecord
from barnabas.server.node.config import NodeConfig
from barnabas.server.node.parts import Parts
from barnabas.server.node.setup.ports_taken import TakenPort
from barnabas.server.node.setup.security import NodeSecurity
from barnabas.server.node.typed_configs import build_controller_config, build_transport_config
from barnabas.server.peers.broker_probe import BrokerConnector
from barnabas.server.quorum.metadata_log import RaftMetadataLog
from barnabas.server.quorum.raft_log import METADATA_PARTITION
from barnabas.server.quorum.snapshot_files import bootstrap_records


class ControllerRole:
    """The controller service, which is active while this node leads the metadata log. Built before the log is
    opened."""

    def __init__(self, parts: Parts, log_dir: str) -> None:
        """`log_dir` is the directory of the metadata log. Kafka's `format` may have written the first records there."""
        self._parts = parts
        self.service = _build_service(parts, log_dir)
        if not isinstance(parts.metadata, RaftMetadataLog):
            parts.metadata.subscribe_nodes(self.service.on_nodes_registered)
        apis, images = CONTROLLER_APIS, parts.publisher
        ports: dict[str, Any] = {
            "admin": AdminPort(
                parts.node_id, apis, images, self.service, parts.metadata, parts.config.given, parts.authorizer
            ),
            "quorum": QuorumPort(parts.node_id, parts.identity.cluster_id, parts.metadata),
            "security": SecurityPort(images, self.service, parts.config.given),
        }
        self.forwarded = ForwardingHandlers(ports, parts.authorizer)
        """Serves the requests of clients that brokers forward."""
        ports["controller"] = ControllerPort(
            parts.identity.cluster_id, images, self.service, parts.metadata, self.forwarded
        )
        # If a broker sent its heartbeats over a connection that has ended, the broker may have died.
        self.served = ServedApis(apis, ports, parts.clock, parts.authorizer, self.service.on_connection_lost)

    def registration(self, channel: ControllerChannel, listeners: Sequence[TakenPort]) -> Sequence[Callable[[], Any]]:
        """Return (the `run` method of this controller's registration,), or () if the controller has no listeners."""
        if not listeners:
            return ()
        from barnabas.server.node.controller_registration import ControllerRegistration

        parts = self._parts
        advertised = [port.advertised for port in listeners]
        registration = ControllerRegistration(channel, parts.node_id, advertised, parts.rng)
        parts.publisher.subscribe(registration)
        return (registration.run,)


class ControllerListeners:
    """The listeners of a controller, open from the start of the node.

    Until `start_serving`, `NewcomerHandler` answers the requests of new nodes.
    """

    def __init__(
        self,
        config: NodeConfig,
        ports: Sequence[TakenPort],
        metrics: Metrics,
        security: NodeSecurity,
        principals: PrincipalBuilder | None,
    ) -> None:
        self._listeners: list[Listener] = []
        if not ports:
            return
        from barnabas.server.node.connection_limits import build_connection_quotas
        from barnabas.server.node.setup.cluster_id import (
            NewcomerHandler,  # imported only by a controller with listeners
        )

        limits = build_transport_config(config)
        self._quotas = build_connection_quotas(config, [port.endpoint.name for port in ports])
        budget, turns, clients = RequestBudget(limits), TurnTaking(), ClientUsage()
        self._listeners = [
            Listener(
                port.endpoint, NewcomerHandler(), limits, metrics, quotas=self._quotas, budget=budget,
                turns=turns, clients=clients, sock=port.sock,
                security=security.listeners.get(port.endpoint.name),
                principals=principals,
            )
            for port in ports
        ]  # fmt: skip

    async def run(self) -> None:
        """Accept connections until cancelled."""
        for listener in self._listeners:
            await listener.bind()
        async with asyncio.TaskGroup() as tasks:
            for listener in self._listeners:
                tasks.create_task(listener.serve(), name=f"listener {listener.endpoint}")

    def start_serving(self, parts: Parts, served: ServedApis) -> None:
        """Serve all APIs of controllers from now on."""
        dispatcher = Dispatcher(served, parts.metrics, asyncio.get_running_loop().time, parts.watch, parts.codecs)
        for listener in self._listeners:
            listener.replace_handler(dispatcher)
        if self._listeners:
            from barnabas.server.node.connection_limits import ConnectionLimitsUpdater

            names = [listener.name for listener in self._listeners]
            parts.publisher.subscribe(
                ConnectionLimitsUpdater(self._quotas, names, parts.node_id, parts.config.given, parts.disk)
            )


def _first_users(parts: Parts) -> Sequence[MetadataRecord]:
    if not parts.config.first_users:
        return ()
    from barnabas.server.node.setup.first_users import first_user_records

    return first_user_records(parts.config.first_users, parts.nonces)


def _build_service(parts: Parts, log_dir: str) -> ControllerService:
    def first_records() -> Sequence[MetadataRecord]:
        prepared = bootstrap_records(parts.fs, log_dir, f"{log_dir}/{METADATA_PARTITION}")
        return [*(prepared or features.bootstrap_records()), *_first_users(parts)]

    config = build_controller_config(parts.config, parts.node_id)
    return ControllerService(
        Controller(config),
        parts.metadata,
        lambda: parts.image,
        node_id=parts.node_id,
        clock=parts.clock,
        rng=parts.rng,
        settings=config,
        bootstrap=first_records,
        quorum=parts.metadata if isinstance(parts.metadata, RaftMetadataLog) else None,
        former_leader=parts.metadata.former_leader if isinstance(parts.metadata, RaftMetadataLog) else lambda: None,
        prober=BrokerConnector(),
        limits=build_limits(parts.config.given),
    )
