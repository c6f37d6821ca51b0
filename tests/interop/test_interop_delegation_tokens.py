"""Delegation tokens, side by side with Apache Kafka: the same conversation gets the same answers, and Kafka's own tools
and clients manage and use our tokens."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from barnabas.client import AsyncAdmin
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.security.acls import AclBinding, AclPermissionType, AclResourceType, PatternType
from barnabas.protocol.security.config import PLAINTEXT, SaslConfig, SecurityConfig
from barnabas.protocol.security.delegation_tokens import token_password
from barnabas.protocol.security.operations import AclOperation
from barnabas.protocol.transport.node_client import NodeClient
from barnabas.protocol.wire.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from barnabas.protocol.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from barnabas.protocol.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from barnabas.protocol.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from barnabas.protocol.wire.schema import Request
from barnabas.testing import AsyncEmbeddedBroker
from barnabas.testing.ports import free_ports
from tests.interop.apache_kafka import ApacheKafka

USERS = ("admin", "alice", "bob", "carol")
_JAAS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="admin-secret" '
    + " ".join(f'user_{name}="{name}-secret"' for name in USERS)
    + ";"
)
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_COMMON = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.name.secure.plain.sasl.jaas.config": _JAAS,
    "listener.name.secure.scram-sha-256.sasl.jaas.config": _SCRAM,
    "listener.name.secure.scram-sha-512.sasl.jaas.config": _SCRAM,
    "delegation.token.secret.key": "the key of all nodes",
    "delegation.token.expiry.check.interval.ms": "3600000",
}
HOUR, DAY = 3_600_000, 86_400_000
_SLACK_MS = 60_000
"""Times that differ by less than this are the same: the steps of a conversation take a while."""


class Conversation:
    """Sends requests to a broker as different users, and notes the answers without what is random in them."""

    def __init__(self, secure: str, plaintext: str) -> None:
        self._secure, self._plaintext = secure, plaintext
        self._clients: dict[str, NodeClient] = {}
        self._tasks = AsyncExitStack()
        self.tokens: dict[str, Any] = {}
        """The responses to CreateDelegationToken, by the name of the step."""
        self.answers: list[str] = []

    async def close(self) -> None:
        await self._tasks.aclose()

    def _client(self, user: str, security: SecurityConfig) -> NodeClient:
        if user not in self._clients:
            client = self._clients[user] = NodeClient("test", random.Random(1), security)
            task = asyncio.create_task(client.run())
            self._tasks.callback(task.cancel)
        return self._clients[user]

    async def send(self, user: str, request: Request, version: int) -> Any:
        """`user` is a user, the name of a token, or empty for a client of the PLAINTEXT listener."""
        security, address = PLAINTEXT, self._plaintext
        if user:
            address = self._secure
            sasl = SaslConfig("PLAIN", user, f"{user}-secret")
            if user in self.tokens:
                made = self.tokens[user]
                sasl = SaslConfig("SCRAM-SHA-512", made.token_id, token_password(bytes(made.hmac)), tokenauth=True)
            security = SecurityConfig(sasl=sasl)
        host, _, port = address.partition(":")
        client = self._client(user, security)
        await asyncio.sleep(0)  # the client starts
        return await client.send(host, int(port), request, timeout_ms=20_000, version_max=version)

    def _note(self, step: str, *facts: object) -> None:
        self.answers.append(f"{step}: {' '.join(map(str, facts))}")

    async def create(self, step: str, user: str, version: int = 3, *renewers: str, **fields: Any) -> None:
        who = [text.partition(":") for text in renewers]
        request = CreateDelegationTokenRequest(
            renewers=[CreatableRenewers(principal_type=kind, principal_name=name) for kind, _, name in who],
            max_lifetime_ms=fields.pop("life_ms", -1),
            **fields,
        )
        made = await self.send(user, request, version)
        if made.error_code == ErrorCode.NONE:
            self.tokens[step] = made
        self._note(
            step,
            ErrorCode(made.error_code).name,
            f"{made.principal_type}:{made.principal_name}",
            f"{made.token_requester_principal_type}:{made.token_requester_principal_name}",
            _rounded(made.expiry_timestamp_ms - made.issue_timestamp_ms),
            _rounded(made.max_timestamp_ms - made.issue_timestamp_ms),
            made.issue_timestamp_ms if made.error_code else "now",
            len(made.token_id),
            len(bytes(made.hmac)),
        )

    async def describe(self, step: str, user: str, version: int = 3, owners: list[str] | None = None) -> None:
        who = None if owners is None else [text.partition(":") for text in owners]
        request = DescribeDelegationTokenRequest(
            owners=None
            if who is None
            else [DescribeDelegationTokenOwner(principal_type=kind, principal_name=name) for kind, _, name in who]
        )
        found = await self.send(user, request, version)
        names = {made.token_id: name for name, made in self.tokens.items()}
        shown = sorted(
            f"{names[token.token_id]}({token.principal_name},{token.token_requester_principal_name},"
            f"{[r.principal_name for r in token.renewers]},{_rounded(token.expiry_timestamp - token.issue_timestamp)},"
            f"{_rounded(token.max_timestamp - token.issue_timestamp)},"
            f"{bytes(token.hmac) == bytes(self.tokens[names[token.token_id]].hmac)})"
            for token in found.tokens
        )
        self._note(step, ErrorCode(found.error_code).name, shown)

    async def renew(self, step: str, user: str, token: str, period_ms: int = -1, version: int = 2) -> None:
        request = RenewDelegationTokenRequest(hmac=self._hmac(token), renew_period_ms=period_ms)
        self._note_expiry(step, token, await self.send(user, request, version))

    async def expire(self, step: str, user: str, token: str, period_ms: int = -1, version: int = 2) -> None:
        request = ExpireDelegationTokenRequest(hmac=self._hmac(token), expiry_time_period_ms=period_ms)
        self._note_expiry(step, token, await self.send(user, request, version))

    def _hmac(self, token: str) -> bytes:
        return bytes(self.tokens[token].hmac) if token in self.tokens else token.encode()

    def _note_expiry(self, step: str, token: str, response: Any) -> None:
        expiry_ms = response.expiry_timestamp_ms
        if response.error_code == ErrorCode.NONE:
            expiry_ms = _rounded(expiry_ms - self.tokens[token].issue_timestamp_ms)
        self._note(step, ErrorCode(response.error_code).name, expiry_ms)

    async def known(self, *tokens: str) -> None:
        """Return when the broker knows exactly these tokens."""
        wanted = {self.tokens[name].token_id for name in tokens}
        while True:
            found = await self.send("admin", DescribeDelegationTokenRequest(owners=None), 3)
            if {token.token_id for token in found.tokens} == wanted:
                return
            await asyncio.sleep(0.02)  # the broker follows the metadata log

    async def expired(self, token: str) -> None:
        """Return when the broker knows that the token has expired."""
        while True:
            found = await self.send("admin", DescribeDelegationTokenRequest(owners=None), 3)
            expiries = {each.token_id: each.expiry_timestamp for each in found.tokens}
            await asyncio.sleep(0.5)  # the controller of Kafka learns of it at about the same time
            if expiries[self.tokens[token].token_id] < self.tokens[token].expiry_timestamp_ms:
                return


def _rounded(period_ms: int) -> str:
    return f"{round(period_ms / _SLACK_MS)}min" if abs(period_ms) >= _SLACK_MS else "0min"


def acl(kind: AclResourceType, name: str, operation: AclOperation, user: str) -> AclBinding:
    return AclBinding(kind, name, PatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


async def _allow(secure: str, *acls: AclBinding) -> None:
    async with AsyncAdmin(admin_settings(secure)) as admin:
        assert set((await admin.create_acls(acls)).values()) == {None}
        while not set(acls) <= set(await admin.describe_acls()):
            await asyncio.sleep(0.02)  # the authorizer follows the metadata log


def admin_settings(secure: str, user: str = "admin") -> dict[str, Any]:
    return {
        "bootstrap.servers": secure,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="{user}" password="{user}-secret";',
    }


async def converse(secure: str, plaintext: str) -> list[str]:
    """The answers to every kind of request about tokens."""
    talk = Conversation(secure, plaintext)
    try:
        await _talk(talk, secure)
    finally:
        await talk.close()
    return talk.answers


async def _talk(talk: Conversation, secure: str) -> None:
    bob: dict[str, Any] = {"owner_principal_type": "User", "owner_principal_name": "bob"}
    for version in (1, 2, 3):
        await talk.create(f"version-{version}", "alice", version, "User:bob")
    await talk.create("short", "alice", life_ms=HOUR)
    await talk.create("long", "alice", life_ms=30 * DAY)
    await talk.create("zero", "alice", life_ms=0)
    await talk.create("two-renewers", "alice", 3, "User:bob", "User:carol")
    await talk.create("group-renewer", "alice", 3, "Group:bob")
    await talk.create("for-itself", "alice", owner_principal_type="User", owner_principal_name="alice")
    await talk.create("no-name", "alice", owner_principal_type="User", owner_principal_name="")
    await talk.create("for-bob-without-right", "alice", **bob)
    await talk.create("for-bob-and-group-renewer", "alice", 3, "Group:bob", **bob)
    await talk.create("super-user-for-bob", "admin", **bob)
    await _allow(secure, acl(AclResourceType.USER, "User:bob", AclOperation.CREATE_TOKENS, "alice"))
    await talk.create("for-bob", "alice", **bob)
    names = set(talk.tokens)
    await talk.known(*names)
    for version in (1, 2, 3):
        await talk.describe(f"describe-{version}", "alice", version)
    for user in ("alice", "bob", "carol", "admin"):
        await talk.describe(f"all-of-{user}", user)
        await talk.describe(f"none-of-{user}", user, owners=[])
        await talk.describe(f"of-bob-by-{user}", user, owners=["User:bob"])
        await talk.describe(f"unknown-by-{user}", user, owners=["User:nobody", "Group:bob"])
    await _allow(
        secure,
        acl(AclResourceType.DELEGATION_TOKEN, talk.tokens["short"].token_id, AclOperation.DESCRIBE, "carol"),
        acl(AclResourceType.USER, "User:bob", AclOperation.DESCRIBE_TOKENS, "carol"),
    )
    await talk.describe("carol-with-rights", "carol")
    for user in ("alice", "bob", "carol", "admin"):
        await talk.renew(f"renew-by-{user}", user, "version-1", 2 * HOUR)
        await talk.expire(f"expire-by-{user}", user, "version-1", 3 * HOUR)
        await talk.renew(f"renew-for-bob-by-{user}", user, "for-bob")
    await talk.renew("renew-version-1", "alice", "short", HOUR // 2, version=1)
    await talk.renew("renew-longer-than-life", "alice", "short", 30 * DAY)
    await talk.renew("renew-default", "alice", "long", 0)
    await talk.renew("renew-unknown", "alice", "unknown")
    await talk.expire("expire-unknown", "alice", "unknown")
    await talk.expire("expire-version-1", "alice", "long", HOUR, version=1)
    await talk.expire("expire-later-than-life", "alice", "short", 30 * DAY)
    await talk.expire("expire-at-once", "alice", "zero", 0)
    await talk.expired("zero")
    await talk.renew("renew-expired", "alice", "zero")
    await talk.expire("expire-expired", "alice", "zero", HOUR)
    await talk.expire("remove-expired", "alice", "zero")
    await talk.expire("remove-as-stranger", "carol", "long")
    await talk.expire("remove-as-owner", "alice", "long")
    await talk.expire("remove-as-renewer", "bob", "version-2")
    await talk.known(*names - {"zero", "long", "version-2"})
    await talk.renew("renew-removed", "alice", "long")
    await talk.describe("after-removals", "alice")
    for user in ("version-3", "for-bob", ""):  # logged in with tokens, and over PLAINTEXT
        await talk.create(f"create-by-{user}", user)
        await talk.create(f"create-for-bob-by-{user}", user, 3, "Group:x", **bob)
        await talk.describe(f"describe-by-{user}", user)
        await talk.renew(f"renew-by-{user}", user, "version-3")
        await talk.expire(f"expire-by-{user}", user, "version-3")


@asynccontextmanager
async def ours(settings: dict[str, str]) -> AsyncIterator[tuple[str, str]]:
    """The addresses of the SASL listener and of the PLAINTEXT listener of our broker."""
    listeners = "SECURE://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"
    async with AsyncEmbeddedBroker(settings, listener=listeners) as broker:
        assert broker.node is not None
        ports = {point.name: point.port for point in broker.node.endpoints}
        yield f"127.0.0.1:{ports['SECURE']}", f"127.0.0.1:{ports['PLAINTEXT']}"


@pytest.mark.interop
@pytest.mark.parametrize("enabled", [True, False], ids=["with-secret-key", "without"])
def test_the_same_conversation_gets_the_same_answers(tmp_path: Path, enabled: bool) -> None:
    settings = {k: v for k, v in _COMMON.items() if enabled or k != "delegation.token.secret.key"}
    conversation = converse if enabled else _disabled
    [port] = free_ports(1)
    lines = [f"{name}={value}" for name, value in settings.items()]
    kafka = ApacheKafka(tmp_path, lines, more_listeners=[f"SECURE://127.0.0.1:{port}"])
    with kafka.running():
        theirs = asyncio.run(conversation(f"127.0.0.1:{port}", kafka.bootstrap))

    async def answers() -> list[str]:
        async with ours(settings) as (secure, plaintext):
            return await conversation(secure, plaintext)

    found = asyncio.run(answers())
    assert [(our, their) for our, their in zip(found, theirs, strict=True) if our != their] == []
    assert len(theirs) > (70 if enabled else 8)


async def _disabled(secure: str, plaintext: str) -> list[str]:
    """The answers of brokers without delegation.token.secret.key."""
    talk = Conversation(secure, plaintext)
    try:
        for user in ("alice", ""):
            await talk.create(f"create-{user}", user)
            await talk.create(f"group-{user}", user, 3, "Group:g")
            await talk.create(f"for-bob-{user}", user, owner_principal_type="User", owner_principal_name="bob")
            await talk.describe(f"describe-{user}", user)
            await talk.describe(f"none-{user}", user, owners=[])
            await talk.renew(f"renew-{user}", user, "unknown")
            await talk.expire(f"expire-{user}", user, "unknown")
    finally:
        await talk.close()
    return talk.answers


@pytest.mark.interop
def test_tools_and_clients_of_kafka_manage_and_use_our_tokens(tmp_path: Path) -> None:
    """DelegationTokenCommand creates, describes, renews and expires; TopicCommand logs in with the token."""
    kafka = ApacheKafka(tmp_path)
    tools = "org.apache.kafka.tools"

    def with_broker(secure: str) -> None:
        settings = "".join(f"{name}={value}\n" for name, value in admin_settings(secure, "admin").items())
        (tmp_path / "admin.properties").write_text(settings)
        places = ("--bootstrap-server", secure, "--command-config", str(tmp_path / "admin.properties"))

        def tool(*words: str) -> str:
            return kafka.tool(f"{tools}.DelegationTokenCommand", *places, *words)

        made = tool("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
        token_id, hmac = made.split("MAXDATE")[1].split()[:2]
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            (tmp_path / "token.properties").write_text(
                f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
                "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
                f'username="{token_id}" password="{hmac}" tokenauth="true";\n'
            )
            login = ("--bootstrap-server", secure, "--command-config", str(tmp_path / "token.properties"))
            kafka.tool(f"{tools}.TopicCommand", *login, "--create", "--topic", f"by-token-{mechanism}")
            assert f"by-token-{mechanism}" in kafka.tool(f"{tools}.TopicCommand", *login, "--list")
        assert hmac in tool("--describe", "--owner-principal", "User:admin")
        assert "Completed renew operation" in tool("--renew", "--hmac", hmac, "--renew-time-period", "-1")
        assert "Completed expire operation" in tool("--expire", "--hmac", hmac, "--expiry-time-period", "-1")
        assert hmac not in tool("--describe", "--owner-principal", "User:admin")

    async def run() -> None:
        async with ours(_COMMON) as (secure, _):
            await asyncio.to_thread(with_broker, secure)

    asyncio.run(run())


@pytest.mark.interop
def test_our_client_logs_in_to_kafka_with_a_token_of_kafka(tmp_path: Path) -> None:
    [port] = free_ports(1)
    lines = [f"{name}={value}" for name, value in _COMMON.items()]
    secure = f"127.0.0.1:{port}"

    async def run() -> None:
        async with AsyncAdmin(admin_settings(secure)) as admin:
            token = await admin.create_delegation_token()
            while token not in await admin.describe_delegation_tokens():
                await asyncio.sleep(0.02)  # the broker follows the metadata log
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            login = {"bootstrap.servers": secure, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
            async with AsyncAdmin({**login, "sasl.jaas.config": token.jaas_config}) as job:
                await job.describe_cluster()
                with pytest.raises(KafkaError) as refused:
                    await job.create_delegation_token()
                assert refused.value.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED

    with ApacheKafka(tmp_path, lines, more_listeners=[f"SECURE://127.0.0.1:{port}"]).running():
        asyncio.run(run())
