"""Three nodes that authenticate to each other by certificates; users of SCRAM that the cluster has from its start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from barnabas import AsyncAdmin, AsyncConsumer, AsyncProducer, TopicPartition
from barnabas.client.admin.users import UserScramCredentialDeletion, UserScramCredentialUpsertion
from barnabas.core.errors import KafkaError
from barnabas.server.node.config import build_config
from barnabas.server.node.server import Node
from barnabas.testing.ports import free_ports
from tests.system.security.test_secure_listeners import AUTHORITY, client, tls_settings

ADMIN = ("admin", "admin-secret")
FIRST_USERS = ("SCRAM-SHA-512=[name=admin,password=admin-secret]",)
NODES = (1, 2, 3)


@asynccontextmanager
async def secure_cluster(folder: Path) -> AsyncIterator[str]:
    """The bootstrap servers of a cluster of three nodes, each a broker and a controller."""
    ports = free_ports(3 * len(NODES))
    controllers = dict(zip(NODES, ports, strict=False))
    voters = ",".join(f"{node}@localhost:{port}" for node, port in controllers.items())
    nodes: list[Node] = []
    ready: list[asyncio.Event] = []
    async with asyncio.TaskGroup() as tasks:
        for index, node_id in enumerate(NODES):
            clients, between = ports[3 + index], ports[6 + index]
            settings = {
                "node.id": str(node_id),
                "controller.quorum.voters": voters,
                "controller.listener.names": "CONTROLLER",
                "inter.broker.listener.name": "NODES",
                "listeners": f"CLIENTS://localhost:{clients},NODES://localhost:{between},"
                f"CONTROLLER://localhost:{controllers[node_id]}",
                "listener.security.protocol.map": "CLIENTS:SASL_SSL,NODES:SSL,CONTROLLER:SSL",
                "listener.name.nodes.ssl.client.auth": "required",
                "listener.name.controller.ssl.client.auth": "required",
                "listener.name.clients.sasl.enabled.mechanisms": "SCRAM-SHA-512",
                "offsets.topic.replication.factor": "3",
                **tls_settings(AUTHORITY.sign("localhost", f"node-{node_id}")),
            }
            data_dir = str(folder / str(node_id))
            node = Node(build_config(settings, data_dir=data_dir, metadata_fsync=False, first_users=FIRST_USERS))
            started = asyncio.Event()
            nodes.append(node)
            ready.append(started)
            tasks.create_task(node.run(lambda _, started=started: started.set()))
        try:
            for started in ready:
                await started.wait()
            yield ",".join(f"localhost:{port}" for port in ports[3:6])
        finally:
            for node in nodes:
                node.stop()


def as_user(servers: str, name: str, password: str) -> dict[str, Any]:
    settings = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": name, "sasl.password": password}
    return client(servers, "SASL_SSL", **settings)


async def test_nodes_use_certificates_and_clients_use_passwords(tmp_path: Path) -> None:
    async with secure_cluster(tmp_path) as servers:
        admin_config = as_user(servers, *ADMIN)
        values = [b"v%d" % number for number in range(200)]
        async with AsyncAdmin(admin_config) as admin:
            await admin.create_topic("t", 3, 3, {"min.insync.replicas": "3"})
            assert await admin.describe_user_scram_credentials() == {"admin": {"SCRAM-SHA-512": 4096}}
            alice = UserScramCredentialUpsertion("alice", "SCRAM-SHA-512", "alice-secret", 8192)
            assert await admin.alter_user_scram_credentials([alice]) == {"alice": None}

            alice_config = as_user(servers, "alice", "alice-secret")
            async with AsyncProducer({**alice_config, "acks": "all"}) as producer:
                for number, value in enumerate(values):
                    await producer.send("t", value, partition=number % 3)
                await producer.flush()
                assert await admin.alter_user_scram_credentials(
                    [UserScramCredentialDeletion("alice", "SCRAM-SHA-512")]
                ) == {"alice": None}
                # An open connection of the removed user stays open, as in Kafka; a new one is refused.
                await producer.send("t", b"last", partition=0)
                await producer.flush()
            with pytest.raises(KafkaError, match="invalid credentials"):
                async with AsyncAdmin(alice_config) as refused:
                    await refused.list_topics()
        async with AsyncConsumer({**admin_config, "auto.offset.reset": "earliest"}) as consumer:
            consumer.assign([TopicPartition("t", number) for number in range(3)])
            found: list[bytes | None] = []
            while len(found) < len(values) + 1:
                found += [record.value for record in await consumer.poll(10_000)]
        assert sorted(value or b"" for value in found) == sorted([*values, b"last"])
