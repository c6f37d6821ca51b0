"""A controller service over a log in memory, and brokers that are whatever a test says. Sleeps take virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

import pytest
from msgspec import Struct

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from barnabas.protocol.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.server.metadata.controller.controller import Controller
from barnabas.server.metadata.controller.suspicions import ProbeOutcome
from barnabas.server.metadata.controller_service import ControllerService
from barnabas.server.metadata.features import SUPPORTED_FEATURES, bootstrap_records
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.loader import Loader
from barnabas.server.metadata.ports import KRaftVersionUpdater
from barnabas.server.metadata.publish import Publisher
from barnabas.testing.sim.loop import SimLoop
from tests.configs import controller_config
from tests.unit.server.metadata.controlled_log import LeaderLog
from tests.unit.server.metadata.test_metadata_driver import StoppedClock

TIMEOUT_S = 9.0


class Prober:
    """Connections to brokers in the imagination: `outcomes` by host, `seen` when which addresses were probed."""

    def __init__(self) -> None:
        self.outcomes: dict[str, ProbeOutcome] = {}
        self.seen: list[tuple[float, Sequence[tuple[str, int]]]] = []
        self.takes_s = 0.001

    async def probe(self, addresses: Sequence[tuple[str, int]]) -> ProbeOutcome:
        self.seen.append((asyncio.get_running_loop().time(), addresses))
        await asyncio.sleep(self.takes_s)
        return self.outcomes.get(addresses[0][0], ProbeOutcome.ACCEPTED)

    def refuse(self, *broker_ids: int) -> None:
        self.outcomes |= {f"host{broker_id}": ProbeOutcome.REFUSED for broker_id in broker_ids}


class Connection(Struct):
    """The context of a request: only the number of its connection."""

    connection_id: int


class House:
    """Node 1's controller; brokers are whatever a test says."""

    def __init__(self, quorum: KRaftVersionUpdater | None = None, **settings: Any) -> None:
        self.log = LeaderLog()
        self.publisher = Publisher(ClusterImage(cluster_id="c"))
        self.log.register(Loader(self.publisher))
        config = controller_config(node_id=1, **settings)
        self.prober = Prober()
        self.service = ControllerService(
            Controller(config),
            self.log,
            lambda: self.publisher.image,
            node_id=1,
            clock=StoppedClock(),
            rng=random.Random(1),
            settings=config,
            bootstrap=bootstrap_records,
            quorum=quorum,
            prober=self.prober,
        )
        self.log.register(self.service)
        self.epochs: dict[int, int] = {}

    @property
    def image(self) -> ClusterImage:
        return self.publisher.image

    async def register(self, broker_id: int, incarnation: int = 0) -> int:
        request = BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id="c",
            incarnation_id=UUID(int=incarnation * 100 + broker_id + 1),
            listeners=[Listener(name="PLAINTEXT", host=f"host{broker_id}", port=9092 + incarnation)],
            features=[
                Feature(name=name, min_supported_version=levels.min_level, max_supported_version=levels.max_level)
                for name, levels in SUPPORTED_FEATURES.items()
            ],
            log_dirs=[UUID(int=1000 + broker_id)],
        )
        response = await self.service.call(request, 4)
        assert isinstance(response, BrokerRegistrationResponse)
        if response.error_code == ErrorCode.NONE:
            self.epochs[broker_id] = response.broker_epoch
        return response.error_code

    async def beat(
        self,
        broker_id: int,
        *,
        offset: int | None = None,
        stop: bool = False,
        disk: bool = True,
        connection_id: int | None = None,
    ) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.epochs[broker_id],
            current_metadata_offset=self.image.offset if offset is None else offset,
            want_shut_down=stop,
            offline_log_dirs=[] if disk else [UUID(int=1000 + broker_id)],
        )
        ctx = None if connection_id is None else Connection(connection_id)
        response = await self.service.call(request, 2, ctx)
        assert isinstance(response, BrokerHeartbeatResponse)
        return response

    async def brokers(self, *ids: int) -> None:
        """Register brokers. The heartbeats of each come over the connection with the number of the broker."""
        for broker_id in ids:
            assert await self.register(broker_id) == ErrorCode.NONE
            assert not (await self.beat(broker_id, connection_id=broker_id)).is_fenced

    async def create(self, name: str, replicas: list[list[int]]) -> None:
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in enumerate(replicas)
        ]
        topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)
        response = await self.service.call(CreateTopicsRequest(topics=[topic]), 7)
        assert isinstance(response, CreateTopicsResponse)
        assert response.topics[0].error_code == ErrorCode.NONE, response.topics[0].error_message

    def fenced(self) -> list[int]:
        return [broker.broker_id for broker in self.image.brokers if broker.fenced]

    def leaders(self, topic: str) -> list[int]:
        found = self.image.topics.get(topic)
        assert found is not None
        return [partition.leader for partition in found.partitions]


def play(scenario: Callable[[House], Awaitable[None]], house: House | None = None) -> House:
    """With the service running."""
    loop = SimLoop(random.Random(1))
    house = house or House()

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(house.service.run())
            try:
                await scenario(house)
            finally:
                running.cancel()

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
    return house


async def refused(answer: Awaitable[object]) -> ErrorCode:
    with pytest.raises(KafkaError) as refusal:
        await answer
    return refusal.value.code
