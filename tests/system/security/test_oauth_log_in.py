"""OAUTHBEARER against nodes: signed tokens of a provider, tokens without a signature, and the settings of the page."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from barnabas import AsyncAdmin, AsyncProducer
from barnabas.cli.app import build_app
from barnabas.client.values import ConfigResource, ConfigResourceType
from barnabas.core.config import ConfigError
from barnabas.core.errors import KafkaError
from barnabas.core.properties import parse_properties
from barnabas.protocol.wire.messages.metadata import MetadataRequest
from barnabas.protocol.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.wire.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.testing.embedded import AsyncEmbeddedBroker
from tests.system.pages import DOCS, run_page, section_of
from tests.system.security.provider import AUDIENCE, CLIENTS, ISSUER, Provider
from tests.system.security.test_sasl_conversations import connected
from tests.system.security.test_secure_listeners import round_trip
from tests.system.security.three_nodes import three_nodes

KAFKA = "org.apache.kafka.common.security.oauthbearer"
MODULE = f"{KAFKA}.OAuthBearerLoginModule required"
UNSECURED = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
    "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": f'{MODULE} unsecuredLoginStringClaim_sub="node";',
}


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    with Provider() as running:
        allowed = f"{running.url}/token,{running.url}/keys"
        monkeypatch.setenv("BARNABAS_SASL_OAUTHBEARER_ALLOWED_URLS", allowed)
        yield running


def of_provider(provider: Provider, **more: str) -> dict[str, str]:
    """The settings of a node whose listener takes the provider's tokens, and which has a token itself."""
    prefix = "listener.name.sasl_plaintext.oauthbearer."
    own = {
        "sasl.oauthbearer.jwks.endpoint.url": f"{provider.url}/keys",
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.token.endpoint.url": f"{provider.url}/token",
        "sasl.oauthbearer.client.credentials.client.id": "node",
        "sasl.oauthbearer.client.credentials.client.secret": CLIENTS["node"],
        "sasl.server.callback.handler.class": f"{KAFKA}.OAuthBearerValidatorCallbackHandler",
    }
    return {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        **{prefix + name: value for name, value in own.items()},
        **more,
    }


@asynccontextmanager
async def broker(settings: dict[str, str]) -> AsyncIterator[tuple[str, AsyncEmbeddedBroker]]:
    async with AsyncEmbeddedBroker(settings, listener="SASL_PLAINTEXT://127.0.0.1:0") as running:
        yield running.bootstrap_servers, running


def client(address: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.scope": uuid4().hex,  # clients with the same settings share their tokens
        **more,
    }


def by_secret(provider: Provider, address: str, secret: str = CLIENTS["orders"], **more: Any) -> dict[str, Any]:
    own = {
        "sasl.oauthbearer.token.endpoint.url": f"{provider.url}/token",
        "sasl.oauthbearer.client.credentials.client.id": "orders",
        "sasl.oauthbearer.client.credentials.client.secret": secret,
    }
    return client(address, **own, **more)


async def test_a_client_gets_its_token_by_its_id_and_secret(
    provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    rights = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:node;User:orders",
    }
    provider.failures = 1
    async with broker(of_provider(provider, **rights)) as (address, _):
        config = by_secret(provider, address)
        await round_trip(config)
        asked = provider.token_requests
        async with AsyncAdmin(config) as admin:
            await admin.list_topics()
        assert provider.token_requests == asked, "clients with the same settings share a token"
        async with AsyncAdmin(client(address, oauth_cb=lambda _: provider.token("mallory"))) as admin:
            with pytest.raises(KafkaError, match="uthoriz"):
                await admin.create_topic("other", 1, 1)
    assert CLIENTS["orders"] not in caplog.text
    assert "eyJ" not in caplog.text, "no token is logged"


async def test_a_wrong_secret_is_an_error_at_once(provider: Provider) -> None:
    async with (
        broker(of_provider(provider)) as (address, _),
        AsyncAdmin(by_secret(provider, address, "wrong")) as admin,
    ):
        with pytest.raises(KafkaError, match=r"HTTP status 401 \(invalid_client\)") as caught:
            await admin.list_topics()
        assert "wrong" not in str(caught.value)


async def test_an_error_says_that_the_provider_does_not_answer(provider: Provider) -> None:
    async with broker(of_provider(provider)) as (address, _):
        provider.failures = 1_000
        config = by_secret(provider, address, **{"default.api.timeout.ms": 1000, "request.timeout.ms": 500})
        async with AsyncAdmin(config) as admin:
            with pytest.raises(KafkaError, match=r"token\.endpoint\.url=.* answered with HTTP status 503"):
                await admin.list_topics()


async def test_a_token_for_another_audience_is_refused_with_a_hint(provider: Provider) -> None:
    async with broker(of_provider(provider)) as (address, _):
        token = provider.token(aud="other")
        async with AsyncAdmin(client(address, oauth_cb=lambda _: token)) as admin:
            with pytest.raises(KafkaError, match=r"refused the token of .orders.*the log of the broker has the reason"):
                await admin.list_topics()


async def test_new_keys_are_fetched_when_a_token_names_one(provider: Provider) -> None:
    async with broker(of_provider(provider)) as (address, _):
        provider.rotate("k2")
        fetched = provider.key_requests

        async def admitted() -> bool:
            async with AsyncAdmin(client(address, oauth_cb=lambda _: provider.token())) as admin:
                try:
                    await admin.list_topics()
                except KafkaError:
                    return False
                return True

        assert not await admitted()
        deadline = time.monotonic() + 60
        while not await admitted():
            assert time.monotonic() < deadline
        assert provider.key_requests == fetched + 1


def settings_of_node(provider: Provider) -> dict[str, str]:
    """The settings of a node that authenticates to other nodes by tokens."""
    names = ("CLIENTS", "NODES", "CONTROLLER")
    own = {
        name.partition("oauthbearer.")[2]: text for name, text in of_provider(provider).items() if "listener" in name
    }
    return {
        "listener.security.protocol.map": ",".join(f"{name}:SASL_PLAINTEXT" for name in names),
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.mechanism.controller.protocol": "OAUTHBEARER",
        **{f"listener.name.{name.lower()}.oauthbearer.{key}": text for name in names for key, text in own.items()},
    }


async def test_sessions_of_clients_and_nodes_are_renewed_with_new_tokens(provider: Provider, tmp_path: Path) -> None:
    provider.lifetime_s = 2.5
    async with three_nodes(tmp_path, lambda _: settings_of_node(provider), host="127.0.0.1") as servers:
        config = by_secret(provider, servers, **{"linger.ms": 0})
        async with AsyncAdmin(config) as admin:
            await admin.create_topic("t", 3, 3, {"min.insync.replicas": "3"})
        before, count = provider.token_requests, 0
        async with AsyncProducer({**config, "acks": "all", "retries": 0}) as producer:
            until = time.monotonic() + 4
            while time.monotonic() < until:
                await (await producer.send("t", b"v", partition=count % 3))
                count += 1
        assert provider.token_requests >= before + 2, "the nodes share one login, and the clients another"
        assert count > 0


async def test_the_lifetime_is_the_smaller_of_the_token_s_and_the_setting(provider: Provider) -> None:
    prefix = "listener.name.sasl_plaintext.oauthbearer.connections.max.reauth.ms"
    async with broker(of_provider(provider, **{prefix: "60000"})) as (address, _):
        for seconds, longest in ((30, 30_000), (300, 60_000)):
            provider.lifetime_s = seconds
            async with connected(address) as raw:
                await raw.send(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
                message = f"n,,\x01auth=Bearer {provider.token()}\x01\x01".encode()
                response: Any = await raw.send(SaslAuthenticateRequest(auth_bytes=message), 2)
                assert longest - 10_000 < response.session_lifetime_ms <= longest
                assert (await raw.send(MetadataRequest(topics=[]), 9)).brokers  # type: ignore[attr-defined]


async def test_the_refusal_of_a_token_on_the_wire() -> None:
    settings = {**UNSECURED, "connection.failed.authentication.delay.ms": "0"}
    async with broker(settings) as (address, running), connected(address) as raw:
        await raw.send(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
        message = b"n,,\x01auth=Bearer e30.e30.\x01\x01"
        response: Any = await raw.send(SaslAuthenticateRequest(auth_bytes=message), 2)
        assert (response.error_code, bytes(response.auth_bytes)) == (0, b'{"status":"invalid_token"}')
        response = await raw.send(SaslAuthenticateRequest(auth_bytes=b"\x01"), 2)
        assert (response.error_code, response.error_message) == (58, '{"status":"invalid_token"}')
        assert await raw.is_closed()
        assert running.node is not None
        failed = running.node.metrics.counter("barnabas_net_failed_authentications_total", listener="SASL_PLAINTEXT")
        assert failed.value == 1, "the refusal and the last word are one failure"
        async with connected(address) as hasty:
            await hasty.send(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
            await hasty.send(SaslAuthenticateRequest(auth_bytes=message), 2)
        async with AsyncAdmin(
            client(address, **{"sasl.jaas.config": f'{MODULE} unsecuredLoginStringClaim_sub="a";'})
        ) as one:
            await one.list_topics()
        assert failed.value == 2, "a client that closes the connection after the refusal is one failure, too"


async def test_a_file_with_a_token_and_a_file_with_keys(
    provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import json

    keys, token = tmp_path / "keys.json", tmp_path / "token"
    keys.write_text(json.dumps({"keys": [provider.key.as_dict(private=False)]}))
    token.write_text(provider.token() + "\n")
    allowed = f"{keys.as_uri()},{token.as_uri()},{provider.url}/token"
    monkeypatch.setenv("BARNABAS_SASL_OAUTHBEARER_ALLOWED_URLS", allowed)
    source = {"listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri()}
    async with broker(of_provider(provider, **source)) as (address, _):
        await round_trip(client(address, **{"sasl.oauthbearer.token.endpoint.url": token.as_uri()}))
        assert provider.key_requests == 0


@pytest.mark.parametrize("grant", ["client_assertion", "assertion"])
async def test_a_client_that_signs_an_assertion(
    provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grant: str
) -> None:
    key = tmp_path / "key.pem"
    key.write_bytes(provider.key.as_pem(private=True))
    monkeypatch.setenv("BARNABAS_SASL_OAUTHBEARER_ALLOWED_FILES", str(key))
    rights = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:node;User:{grant}-of-robot",
    }
    async with broker(of_provider(provider, **rights)) as (address, _):
        own = {
            "sasl.oauthbearer.token.endpoint.url": f"{provider.url}/token",
            "sasl.oauthbearer.assertion.private.key.file": str(key),
            "sasl.oauthbearer.assertion.claim.sub": "robot",
            "sasl.oauthbearer.assertion.claim.aud": ISSUER,
        }
        if grant == "assertion":
            own["sasl.oauthbearer.jwt.retriever.class"] = f"{KAFKA}.JwtBearerJwtRetriever"
        await round_trip(client(address, **own))


async def test_clients_without_a_url_of_the_list_are_not_made(provider: Provider) -> None:
    """CVE-2025-27817: a setting must not make this process read any file or URL."""
    for url in (f"{provider.url}/other", "file:///etc/passwd"):
        with pytest.raises(ConfigError, match="is not allowed"):
            AsyncAdmin(client("127.0.0.1:1", **{"sasl.oauthbearer.token.endpoint.url": url}))
    assert provider.token_requests == 0


# ---- docs/SECURITY.md

PAGE = DOCS / "SECURITY.md"


async def test_the_settings_of_the_page(provider: Provider, tmp_path: Path) -> None:
    """A node and a client with the settings of the page; the commands read them from a file."""
    section = section_of(PAGE.read_text(), "## OAUTHBEARER")
    of_node, of_client, of_test = (
        parse_properties(text.replace("https://idp.example.com", provider.url))
        for text in re.findall(r"```properties\n(.*?)```", section, re.DOTALL)
    )
    shared = {
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
    }
    issuer = "listener.name.clients.oauthbearer.sasl.oauthbearer.expected.issuer"
    # Listeners between nodes have a login of their own; here the listener of the clients is also that of the nodes.
    prefix = "listener.name.clients.oauthbearer."
    login = {prefix + name: text for name, text in of_client.items() if name.startswith("sasl.oauthbearer.")}
    settings = {**of_node, **shared, issuer: ISSUER, **login}
    async with AsyncEmbeddedBroker(settings, listener="CLIENTS://127.0.0.1:0") as running:
        file = tmp_path / "client.properties"
        file.write_text("".join(f"{name}={text}\n" for name, text in {**of_client, **PLAIN}.items()))
        servers = ["--bootstrap-server", running.bootstrap_servers]
        words = ["topics", "create", "orders", *servers, "--command-config", str(file)]
        done = await asyncio.to_thread(CliRunner().invoke, build_app(("topics",)), words)
        assert done.exit_code == 0, done.output
        answer = SimpleNamespace(token=provider.token(), expires_at=time.time() + 3000)
        await asyncio.to_thread(
            run_page,
            PAGE,
            {"localhost:9092": running.bootstrap_servers, "SASL_SSL": "SASL_PLAINTEXT"},
            {"company_login": lambda config: answer if config == "team=orders" else None},
            section="## OAUTHBEARER",
        )
        async with AsyncAdmin({**of_client, **PLAIN}, bootstrap_servers=running.bootstrap_servers) as admin:
            broker_1 = ConfigResource(ConfigResourceType.BROKER, "1")
            described = await admin.describe_configs([broker_1])
        entries = described[broker_1]
        assert isinstance(entries, dict)
        shown = {name: entry.value for name, entry in entries.items() if "oauthbearer" in name}
        assert "sasl.oauthbearer.client.credentials.client.secret" in shown
        assert of_client["sasl.oauthbearer.client.credentials.client.secret"] not in str(described)
    unsecured = {"sasl.enabled.mechanisms": "OAUTHBEARER", **shared, **of_test}
    async with AsyncEmbeddedBroker(unsecured, listener="CLIENTS://127.0.0.1:0") as running:
        options = f'{MODULE} unsecuredLoginStringClaim_sub="alice" unsecuredLoginListClaim_scope="|kafka";'
        await round_trip(client(running.bootstrap_servers, **{"sasl.jaas.config": options}))
        less = f'{MODULE} unsecuredLoginStringClaim_sub="alice";'
        async with AsyncAdmin(client(running.bootstrap_servers, **{"sasl.jaas.config": less})) as admin:
            with pytest.raises(KafkaError, match="it needs the scope 'kafka'"):
                await admin.list_topics()


PLAIN = {"security.protocol": "SASL_PLAINTEXT"}
