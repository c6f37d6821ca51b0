"""A process with a metadata log in ZooKeeper and a controller over it; told what to do by lines on stdin.

    {"id": 7, "do": "register", "broker": 3}                -> {"id": 7, "epoch": 4}, or {..., "error": ...}
    {"id": 8, "do": "allocate", "broker": 3, "epoch": 4}    -> {"id": 8, "start": 5000}: a block of ids, given once
    {"id": 9, "do": "state"}                                -> {"id": 9, "blocks": [1000, 2000], "offset": 17, ...}
    {"id": 10, "do": "snapshot"}                            -> {"id": 10}

and of itself: {"leader": 2, "epoch": 4}. `python -m tests.interop.zookeeper.member CONNECT NODE_ID SESSION_MS`
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any
from uuid import UUID

from barnabas.core.clock import SystemClock
from barnabas.core.errors import KafkaError, error_code
from barnabas.core.rng import random_uuid, system_rng
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.protocol.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from barnabas.protocol.wire.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from barnabas.server.metadata import features
from barnabas.server.metadata.controller.controller import Controller
from barnabas.server.metadata.controller_service import ControllerService
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.loader import Loader
from barnabas.server.metadata.ports import CommittedBatch, LoadedSnapshot
from barnabas.server.metadata.publish import Publisher
from barnabas.server.metadata.records.other import ProducerIdsRecord
from barnabas.server.metadata.snapshot import image_records
from barnabas.server.quorum.zookeeper.config import ZooKeeperConfig
from barnabas.server.quorum.zookeeper.metadata_log import NodeInfo, ZooKeeperMetadataLog
from tests.configs import controller_config


class Member:
    """Also a MetadataListener: it remembers every block of producer ids in the log, in order."""

    def __init__(self, connect: str, node_id: int, session_ms: int) -> None:
        clock, rng = SystemClock(), system_rng()
        me = NodeInfo(
            node_id, [ListenerEndpoint("PLAINTEXT", "localhost", 9000 + node_id)], ("localhost", 9100 + node_id)
        )
        self.log = ZooKeeperMetadataLog(ZooKeeperConfig(connect, session_ms, 30_000), me, clock)
        self.publisher = Publisher(ClusterImage())
        self.blocks: list[int] = []
        self.next_offset = 0
        """The offset behind the last record that `blocks` is made of. The log's high watermark can be larger."""
        settings = controller_config(node_id=node_id, broker_session_timeout_ms=600_000)
        self.service = ControllerService(
            Controller(settings), self.log, lambda: self.publisher.image, node_id=node_id, clock=clock, rng=rng,
            settings=settings, bootstrap=features.bootstrap_records,
        )  # fmt: skip
        self._rng = rng

    # ---- MetadataListener

    def on_commit(self, batch: CommittedBatch) -> None:
        self.blocks += [r.next_producer_id for r in batch.records if isinstance(r, ProducerIdsRecord)]
        self.next_offset = batch.last_offset + 1

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        self.blocks = [-record.next_producer_id for record in snapshot.records if isinstance(record, ProducerIdsRecord)]
        self.next_offset = snapshot.end_offset

    def on_leader(self, leader_id: int, epoch: int) -> None:
        say({"leader": leader_id, "epoch": epoch})

    # ---- life

    async def run(self) -> None:
        cluster_id = await self.log.connect("AAAAAAAAAAAAAAAAAAAAAA")
        self.publisher = Publisher(ClusterImage(cluster_id=cluster_id))
        for listener in (Loader(self.publisher), self.service, self):
            self.log.register(listener)
        await self.log.find_quorum()
        self.log.open()
        reader = asyncio.StreamReader(limit=1 << 20)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        async with asyncio.TaskGroup() as tasks:
            mains = [tasks.create_task(self.log.run()), tasks.create_task(self.service.run())]
            while line := await reader.readline():
                tasks.create_task(self._obey(json.loads(line)))
            await self.log.resign()
            for main in mains:
                main.cancel()

    async def _obey(self, order: dict[str, Any]) -> None:
        answer: dict[str, Any]
        try:
            answer = await getattr(self, f"_{order['do']}")(order)
        except KafkaError as error:
            answer = {"error": error.code.name}
        say({"id": order["id"], **answer})

    async def _register(self, order: dict[str, Any]) -> dict[str, Any]:
        request = BrokerRegistrationRequest(
            broker_id=order["broker"],
            cluster_id=self.publisher.image.cluster_id,
            incarnation_id=random_uuid(self._rng),
            listeners=[Listener(name="PLAINTEXT", host="localhost", port=9000 + order["broker"], security_protocol=0)],
            features=[
                Feature(name=name, min_supported_version=levels.min_level, max_supported_version=levels.max_level)
                for name, levels in features.SUPPORTED_FEATURES.items()
            ],
            rack=None,
            log_dirs=[UUID(int=1000 + order["broker"])],
            previous_broker_epoch=-1,
        )
        answer: Any = await self.service.call(request, 4)
        if answer.error_code:
            raise KafkaError(error_code(answer.error_code))
        return {"epoch": answer.broker_epoch}

    async def _allocate(self, order: dict[str, Any]) -> dict[str, Any]:
        request = AllocateProducerIdsRequest(broker_id=order["broker"], broker_epoch=order["epoch"])
        answer: Any = await self.service.call(request, 0)
        if answer.error_code:
            raise KafkaError(error_code(answer.error_code))
        return {"start": answer.producer_id_start}

    async def _state(self, order: dict[str, Any]) -> dict[str, Any]:
        return {"blocks": self.blocks, "offset": self.next_offset, "active": self.service.active}

    async def _snapshot(self, order: dict[str, Any]) -> dict[str, Any]:
        image = self.publisher.image
        await self.log.write_snapshot(image.offset + 1, image.leader_epoch, 0, list(image_records(image)))
        return {}


def say(words: dict[str, Any]) -> None:
    print(json.dumps(words), flush=True)


if __name__ == "__main__":
    asyncio.run(Member(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])).run())
