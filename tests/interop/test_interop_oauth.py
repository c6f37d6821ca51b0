"""OAUTHBEARER: Java, franz-go and kafkajs at our listeners; our clients, and raw messages, at Apache Kafka's."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.protocol.security.oauth.unsecured import UnsecuredLogin
from barnabas.protocol.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.wire.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.testing.embedded import EmbeddedBroker
from barnabas.testing.ports import free_ports
from tests.interop.apache_kafka import ApacheKafka
from tests.interop.foreign_clients import HERE, run_go, run_node
from tests.interop.jars import kafka_classpath
from tests.progress import STANDSTILL_S
from tests.system.security.provider import AUDIENCE, CLIENTS, ISSUER, Provider
from tests.system.security.test_sasl_conversations import connected
from tests.system.security.test_secure_listeners import round_trip

COUNT = 50
KAFKA = "org.apache.kafka.common.security.oauthbearer"
MODULE = f"{KAFKA}.OAuthBearerLoginModule required"
VALIDATOR = f"{KAFKA}.OAuthBearerValidatorCallbackHandler"


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with Provider() as running, pytest.MonkeyPatch.context() as patch:
        allowed = f"{running.url}/token,{running.url}/keys"
        patch.setenv("BARNABAS_SASL_OAUTHBEARER_ALLOWED_URLS", allowed)
        patch.setenv("JAVA_TOOL_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={allowed}")
        yield running


def listeners(provider: Provider) -> dict[str, str]:
    """The settings of two listeners, SIGNED and PLAIN_TOKENS, for our broker and for Apache Kafka."""
    signed, unsecured = "listener.name.signed.oauthbearer.", "listener.name.plain_tokens.oauthbearer."
    return {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SIGNED:SASL_PLAINTEXT,"
        "PLAIN_TOKENS:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{signed}sasl.server.callback.handler.class": VALIDATOR,
        f"{signed}sasl.jaas.config": f"{MODULE};",
        f"{signed}sasl.oauthbearer.jwks.endpoint.url": f"{provider.url}/keys",
        f"{signed}sasl.oauthbearer.expected.audience": AUDIENCE,
        f"{signed}sasl.oauthbearer.expected.issuer": ISSUER,
        f"{signed}connections.max.reauth.ms": "60000",
        f"{unsecured}sasl.jaas.config": f'{MODULE} unsecuredLoginStringClaim_sub="node"'
        ' unsecuredValidatorRequiredScope="kafka";',
    }


def clients(provider: Provider, signed: str, unsecured: str) -> list[dict[str, str]]:
    """The settings of a client of each listener: the same for Java and for ours."""
    shared = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    own = f'{MODULE} unsecuredLoginStringClaim_sub="alice" unsecuredLoginListClaim_scope="|kafka|other";'
    return [
        {
            **shared,
            "bootstrap.servers": signed,
            "sasl.login.callback.handler.class": f"{KAFKA}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": f"{provider.url}/token",
            "sasl.jaas.config": f'{MODULE} clientId="orders" clientSecret="{CLIENTS["orders"]}" extension_traceId="9";',
        },
        {**shared, "bootstrap.servers": unsecured, "sasl.jaas.config": own},
    ]


@pytest.fixture(scope="module")
def ours(provider: Provider) -> Iterator[dict[str, str]]:
    """The addresses of our two listeners."""
    text = "SIGNED://127.0.0.1:0,PLAIN_TOKENS://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"
    with EmbeddedBroker(listeners(provider), listener=text) as broker:
        assert broker.node is not None
        yield {endpoint.name: f"127.0.0.1:{endpoint.port}" for endpoint in broker.node.endpoints}


def test_java_logs_in(provider: Provider, ours: dict[str, str], tmp_path: Path) -> None:
    files = []
    for number, config in enumerate(clients(provider, ours["SIGNED"], ours["PLAIN_TOKENS"])):
        files.append(tmp_path / f"{number}.properties")
        files[-1].write_text("".join(f"{name}={value}\n" for name, value in config.items()))
    command = ["java", "-cp", kafka_classpath(), str(HERE / "java" / "Secured.java"), "copy", "java", str(COUNT)]
    done = subprocess.run(
        [*command, *map(str, files)], capture_output=True, text=True, timeout=STANDSTILL_S, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    read = [json.loads(line)["read"] for line in done.stdout.splitlines() if line.startswith("{")]
    assert read == [list(range(COUNT))] * len(files)


@pytest.mark.parametrize("program", [run_go, run_node], ids=["franz-go", "kafkajs"])
def test_a_program_writes_and_reads_in_a_group(
    provider: Provider, ours: dict[str, str], program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECURITY_TOKEN", provider.token())
    topic = program.__name__
    program(ours["SIGNED"], topic, COUNT, "none", "produce")
    rows = program(ours["SIGNED"], topic, COUNT, f"g-{topic}", "consume")
    assert sorted(row["key"] for row in rows) == sorted(f"key-{number}" for number in range(COUNT))


@pytest.fixture(scope="module")
def kafka(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The addresses of Apache Kafka's two listeners."""
    signed, unsecured = free_ports(2)
    lines = [f"{name}={value}" for name, value in listeners(provider).items()]
    more = [f"SIGNED://127.0.0.1:{signed}", f"PLAIN_TOKENS://127.0.0.1:{unsecured}"]
    with ApacheKafka(tmp_path_factory.mktemp("kafka"), lines, more_listeners=more).running():
        yield {"SIGNED": f"127.0.0.1:{signed}", "PLAIN_TOKENS": f"127.0.0.1:{unsecured}"}


@pytest.mark.parametrize("number", [0, 1], ids=["signed", "unsecured"])
def test_our_clients_log_in_at_apache_kafka(provider: Provider, kafka: dict[str, str], number: int) -> None:
    config = clients(provider, kafka["SIGNED"], kafka["PLAIN_TOKENS"])[number]
    asyncio.run(round_trip(config, f"ours-{number}"))


def messages(provider: Provider) -> dict[str, bytes]:
    """Another scheme than Bearer is missing: Kafka 4.3 ends the connection without an answer, by a mistake."""
    now_ms = int(time.time() * 1000)
    narrow = UnsecuredLogin((("sub", "a"), ("scope", ("other",)))).token(now_ms).text
    good = UnsecuredLogin((("sub", "a"), ("scope", ("kafka",)))).token(now_ms).text
    expired = UnsecuredLogin((("sub", "a"), ("scope", ("kafka",)))).token(now_ms - 7_200_000).text
    return {
        "good": f"n,,\x01auth=Bearer {good}\x01\x01".encode(),
        "authzid": f"n,a=a,\x01auth=Bearer {good}\x01k=v\x01\x01".encode(),
        "other-authzid": f"n,a=b,\x01auth=Bearer {good}\x01\x01".encode(),
        "expired": f"n,,\x01auth=Bearer {expired}\x01\x01".encode(),
        "narrow": f"n,,\x01auth=Bearer {narrow}\x01\x01".encode(),
        "signed": f"n,,\x01auth=Bearer {provider.token()}\x01\x01".encode(),
        "other-audience": f"n,,\x01auth=Bearer {provider.token(aud='x')}\x01\x01".encode(),
        "other-issuer": f"n,,\x01auth=Bearer {provider.token(iss='x')}\x01\x01".encode(),
        "no-subject": f"n,,\x01auth=Bearer {provider.token(sub=' ')}\x01\x01".encode(),
        "expired-signed": f"n,,\x01auth=Bearer {provider.token(exp=time.time() - 60)}\x01\x01".encode(),
        "early": f"n,,\x01auth=Bearer {provider.token(nbf=time.time() + 600)}\x01\x01".encode(),
        "no-token": b"n,,\x01k=v\x01\x01",
        "binding": f"p=x,,\x01auth=Bearer {good}\x01\x01".encode(),
        "garbage": b"garbage",
        "empty": b"",
    }


async def answers(address: str, message: bytes) -> list[Any]:
    """What a listener answers to a message, and to the client's last word after it."""
    found: list[Any] = []
    async with connected(address) as raw:
        await raw.send(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
        for token in (message, b"\x01"):
            try:
                response: Any = await asyncio.wait_for(raw.send(SaslAuthenticateRequest(auth_bytes=token), 2), 20)
            except (asyncio.IncompleteReadError, ConnectionError):
                found.append("closed")
                break
            found.append((response.error_code, json.loads(bytes(response.auth_bytes) or b"{}").get("status")))
    return found


def test_raw_messages_get_the_answers_of_apache_kafka(
    provider: Provider, kafka: dict[str, str], ours: dict[str, str]
) -> None:
    different = {}
    for name, message in messages(provider).items():
        for listener in kafka:
            theirs = asyncio.run(answers(kafka[listener], message))
            mine = asyncio.run(answers(ours[listener], message))
            if mine != theirs:
                different[name, listener] = (mine, theirs)
    assert different == {}
