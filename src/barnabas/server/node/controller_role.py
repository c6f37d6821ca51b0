"""Shell: the controller of a node: the service that decides, and the listener on which others reach it.

A node that is a cluster by itself needs no such listener; where the configuration names one, brokers may join.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from barnabas.core.telemetry import Metrics
from barnabas.protocol.transport.limits import ConnectionQuota, RequestBudget
from barnabas.protocol.transport.listener import Listener
from barnabas.server.broker.controller_services import ControllerServices
from barnabas.server.broker.dispatch import Dispatcher
from barnabas.server.broker.forward import ControllerChannel
from barnabas.server.metadata import features
from barnabas.server.metadata.controller.controller import Controller
from barnabas.server.metadata.controller_service import ControllerService
from barnabas.server.metadata.records.codec import MetadataRecord
from barnabas.server.node.config import NodeConfig
from barnabas.server.node.parts import Parts
from barnabas.server.node.quorum.metadata_log import RaftMetadataLog
from barnabas.server.node.quorum.raft_log import METADATA_PARTITION
from barnabas.server.node.quorum.snapshot_files import bootstrap_records
from barnabas.server.node.setup.ports_taken import TakenPort
from barnabas.server.node.typed_configs import build_controller_config, build_transport_config


class ControllerRole:
    """The service that decides while this node leads the metadata log; made before the log is opened."""

    def __init__(self, parts: Parts, log_dir: str) -> None:
        """`log_dir` holds the log: a new one may bring the first records, if Kafka's `format` prepared it."""
        self._parts = parts
        self.service = _build_service(parts, log_dir)
        self.services = ControllerServices(
            node_id=parts.node_id,
            cluster_id=parts.identity.cluster_id,
            clock=parts.clock,
            rng=parts.rng,
            metadata=parts.publisher,
            controller=self.service,
            quorum=parts.metadata,
            static_config=parts.config.given,
        )

    def registration(self, channel: ControllerChannel, listeners: Sequence[TakenPort]) -> Sequence[Callable[[], Any]]:
        """What has to run so that others find this controller; nothing for one that nobody can reach."""
        if not listeners:
            return ()
        from barnabas.server.node.controller_registration import ControllerRegistration

        parts = self._parts
        told = [port.advertised for port in listeners]
        registration = ControllerRegistration(channel, parts.node_id, told, parts.rng)
        parts.publisher.subscribe(registration)
        return (registration.run,)


class ControllerDoor:
    """The listeners of a controller. They are open from the start of the node, and answer newcomers until `admit`."""

    def __init__(self, config: NodeConfig, ports: Sequence[TakenPort], metrics: Metrics) -> None:
        self._listeners: list[Listener] = []
        if not ports:
            return
        from barnabas.server.node.setup.cluster_id import NewcomerHandler  # not for a node that is a cluster by itself

        limits = build_transport_config(config)
        quota, budget = ConnectionQuota(limits), RequestBudget(limits)
        self._listeners = [
            Listener(port.endpoint, NewcomerHandler(), limits, metrics, quota=quota, budget=budget, sock=port.sock)
            for port in ports
        ]

    async def run(self) -> None:
        """Until cancelled."""
        for listener in self._listeners:
            await listener.bind()
        async with asyncio.TaskGroup() as tasks:
            for listener in self._listeners:
                tasks.create_task(listener.serve(), name=f"listener {listener.endpoint}")

    def admit(self, parts: Parts, services: ControllerServices) -> None:
        """From now on serve what controllers serve."""
        dispatcher = Dispatcher(services, parts.metrics, asyncio.get_running_loop().time)
        for listener in self._listeners:
            listener.replace_handler(dispatcher)


def _build_service(parts: Parts, log_dir: str) -> ControllerService:
    def first_records() -> Sequence[MetadataRecord]:
        prepared = bootstrap_records(parts.fs, log_dir, f"{log_dir}/{METADATA_PARTITION}")
        return list(prepared) or list(features.bootstrap_records())

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
    )
