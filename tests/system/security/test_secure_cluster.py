"""Three nodes that authenticate to each other by certificates; users of SCRAM that the cluster has from its start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnabas import AsyncAdmin, AsyncConsumer, AsyncProducer, TopicPartition
from barnabas.client.admin.users import UserScramCredentialDeletion, UserScramCredentialUpsertion
from barnabas.core.errors import KafkaError
from tests.system.security.test_secure_listeners import AUTHORITY, client, tls_settings
from tests.system.security.three_nodes import three_nodes

ADMIN = ("admin", "admin-secret")
FIRST_USERS = ("SCRAM-SHA-512=[name=admin,password=admin-secret]",)


def settings_of(node_id: int) -> dict[str, str]:
    return {
        "listener.security.protocol.map": "CLIENTS:SASL_SSL,NODES:SSL,CONTROLLER:SSL",
        "listener.name.nodes.ssl.client.auth": "required",
        "listener.name.controller.ssl.client.auth": "required",
        "listener.name.clients.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "offsets.topic.replication.factor": "3",
        **tls_settings(AUTHORITY.sign("localhost", f"node-{node_id}")),
    }


def as_user(servers: str, name: str, password: str) -> dict[str, Any]:
    settings = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": name, "sasl.password": password}
    return client(servers, "SASL_SSL", **settings)


async def test_nodes_use_certificates_and_clients_use_passwords(tmp_path: Path) -> None:
    async with three_nodes(tmp_path, settings_of, first_users=FIRST_USERS) as servers:
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
