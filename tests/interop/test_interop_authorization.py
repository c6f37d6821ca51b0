"""The authorization matrix, asked of Apache Kafka: a missing right is refused with the same error codes there."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.client import AsyncAdmin
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import NO_TOPIC_ID
from barnabas.protocol.security.acls import AclBinding, AclBindingFilter
from barnabas.protocol.transport.node_client import NodeClient
from barnabas.protocol.wire.apis import PRIVATE_FROM, ApiKey
from barnabas.protocol.wire.schema import Request, Response
from barnabas.testing.ports import free_ports
from tests.interop.apache_kafka import ApacheKafka
from tests.unit.server.broker.authorization.cluster import REFUSED, acl, error_codes, wait_for_coordinators
from tests.unit.server.broker.authorization.requests import BROKER_CASES, OTHER, TOPIC, Case, build
from tests.unit.server.broker.authorization.test_authorization_matrix import CODE_OF

_JAAS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="secret" '
    'user_admin="secret";'
)
SETTINGS = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:admin",
    "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,ADMIN:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "inter.broker.listener.name=ADMIN",
    "sasl.enabled.mechanisms=PLAIN",
    "sasl.mechanism.inter.broker.protocol=PLAIN",
    "sasl.mechanism.controller.protocol=PLAIN",
    f"listener.name.admin.plain.sasl.jaas.config={_JAAS}",
    f"listener.name.controller.plain.sasl.jaas.config={_JAAS}",
    "auto.create.topics.enable=true",
)
_SKIPPED = {
    "OFFSET_DELETE-v0": "Kafka looks for the group, which does not exist, before the topics",
    "DELETE_SHARE_GROUP_OFFSETS-v0": "as OffsetDelete",
    "DESCRIBE_USER_SCRAM_CREDENTIALS-v0": "Kafka 4.3 does not answer an unauthorized request for all users",
    "INIT_PRODUCER_ID-v6-two-phase": "version 6 is unstable in Kafka 4.3",
    "PRODUCE-v11-second-batch-txn": "Kafka reads the flag of the first batch, and rejects a second batch later",
}
CASES = [case for case in BROKER_CASES if ApiKey[case.api] < PRIVATE_FROM and case.id not in _SKIPPED]


class AuthorizingKafka:
    """Apache Kafka, an admin whose rights are those of a super user, and a client, User:ANONYMOUS, whose rights are
    those of a case."""

    def __init__(self, root: Path) -> None:
        self._runner = asyncio.Runner()
        [admin_port] = free_ports(1)
        self._kafka = ApacheKafka(root, SETTINGS, more_listeners=[f"ADMIN://127.0.0.1:{admin_port}"])
        self._admin_config = {
            "bootstrap.servers": f"127.0.0.1:{admin_port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": "secret",
        }
        self._client = NodeClient("test", random.Random(1))
        self.topic_id = NO_TOPIC_ID

    def __enter__(self) -> AuthorizingKafka:
        self._kafka.start()
        self._runner.run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._stop())
        self._runner.close()
        self._kafka.stop()

    async def _start(self) -> None:
        self._admin = AsyncAdmin(self._admin_config)
        self._task = asyncio.create_task(self._client.run())
        for name in (TOPIC, OTHER):
            await self._admin.create_topic(name, 1, 1)
        described = (await self._admin.describe_topics([TOPIC]))[TOPIC]
        assert not isinstance(described, KafkaError)
        self.topic_id = described.topic_id
        await self._set_acls([acl("G:ALL"), acl("X:ALL")])
        await wait_for_coordinators(self._send)

    async def _stop(self) -> None:
        self._task.cancel()
        await self._admin.close()

    def refusals(self, case: Case, rights: list[str]) -> set[ErrorCode]:
        """The error codes with which a client with these rights is refused."""
        return self._runner.run(self._refusals(case, [acl(right) for right in rights]))

    async def _refusals(self, case: Case, acls: list[AclBinding]) -> set[ErrorCode]:
        await self._set_acls(acls)
        response = await self._send(build(case, self.topic_id), case.version)
        return error_codes(response) & REFUSED

    async def _set_acls(self, acls: list[AclBinding]) -> None:
        await self._admin.delete_acls([AclBindingFilter()])
        await self._admin.create_acls(acls)
        while await self._admin.describe_acls() != sorted(set(acls)):
            await asyncio.sleep(0.01)  # the authorizer of the broker follows the metadata log

    async def _send(self, request: Request, version: int) -> Response:
        host, _, port = self._kafka.bootstrap.partition(":")
        return await self._client.send(host, int(port), request, timeout_ms=10_000, version_max=version)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthorizingKafka]:
    with AuthorizingKafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running


MISSING = [
    pytest.param(case, right, id=f"{case.id}-without-{right}") for case in CASES for right in case.rights.split()
]


@pytest.mark.interop
@pytest.mark.parametrize(("case", "right"), MISSING)
def test_a_missing_right_is_refused_by_kafka_with_the_same_code(
    kafka: AuthorizingKafka, case: Case, right: str
) -> None:
    others = [other for other in case.rights.replace("|", " ").split() if other not in right.split("|")]
    named = right.partition("=")[2]
    expected = ErrorCode[f"{named}_AUTHORIZATION_FAILED"] if named else CODE_OF[right[0]]
    assert kafka.refusals(case, others) == {expected}


@pytest.mark.interop
@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in CASES if case.api != "DELETE_TOPICS"])
def test_the_rights_of_our_table_are_enough_for_kafka(kafka: AuthorizingKafka, case: Case) -> None:
    assert kafka.refusals(case, [right.partition("|")[0] for right in case.rights.split()]) == set()
