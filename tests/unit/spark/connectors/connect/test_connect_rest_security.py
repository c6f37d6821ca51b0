"""Connect's REST API with TLS and basic authentication, configured as in Connect."""

from __future__ import annotations

import asyncio
import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.system.client.tls_proxy import PASSWORD, Authority
from tests.unit.spark.connectors.connect.memory_connect import MemoryRuntime

from barnabas.spark.connectors.connect.rest.basic_auth import parse_rest_users, users_file
from barnabas.spark.connectors.connect.server import ConnectServer
from barnabas.spark.connectors.connect.worker_config import BASIC_AUTH, WorkerConfigError, parse_worker_config

GIVEN = {
    "bootstrap.servers": "127.0.0.1:1",
    "group.id": "g",
    "config.storage.topic": "c",
    "status.storage.topic": "s",
    "storage.location": "/shared",
    "listeners": "https://127.0.0.1:0",
}
MODULE = "org.apache.kafka.connect.rest.basic.auth.extension.PropertyFileLoginModule"


def write(place: Path, text: str) -> str:
    place.write_text(text)
    return str(place)


def login_file(folder: Path, users: str = "admin=s3cret\n# none\nguest = pass=word\n") -> str:
    file = write(folder / "users.properties", users)
    return write(
        folder / "jaas.conf", f'Other {{ x.Y required; }};\nKafkaConnect {{\n {MODULE} required\n file="{file}";\n}};'
    )


def answers(config: dict[str, str], authority: Authority, *requests: dict[str, str]) -> list[tuple[int, Any]]:
    """Statuses and documents of `GET /connectors` with these headers."""
    context = ssl.create_default_context(cadata=authority.pem)

    def ask(url: str, headers: dict[str, str]) -> tuple[int, Any]:
        request = urllib.request.Request(f"{url}/connectors", headers=headers)
        try:
            with urllib.request.urlopen(request, context=context, timeout=60) as response:
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    async def main() -> list[tuple[int, Any]]:
        server = ConnectServer(parse_worker_config(config), MemoryRuntime())
        await server._http.bind()
        serving = asyncio.create_task(server._http.serve())
        assert server.url.startswith("https://127.0.0.1:")
        url = server.url.replace("127.0.0.1", "localhost")
        found = [await asyncio.to_thread(ask, url, headers) for headers in requests]
        server._http.stop()
        await serving
        return found

    return asyncio.run(main())


def basic(text: str) -> dict[str, str]:
    import base64

    return {"Authorization": f"Basic {base64.b64encode(text.encode()).decode()}"}


def test_a_worker_has_tls_and_lets_its_users_in(tmp_path: Path) -> None:
    authority = Authority("connect")
    identity = authority.sign("localhost")
    config = {
        **GIVEN,
        "listeners.https.ssl.keystore.location": write(tmp_path / "k.pem", identity.certificate + identity.locked_key),
        "listeners.https.ssl.keystore.type": "PEM",
        "listeners.https.ssl.key.password": PASSWORD,
        "rest.extension.classes": BASIC_AUTH,
        "java.security.auth.login.config": login_file(tmp_path),
    }
    found = answers(config, authority, {}, basic("admin:wrong"), basic("admin:s3cret"), basic("guest:pass=word"))
    assert [status for status, _ in found] == [401, 401, 503, 503]  # 503: the worker has not started
    assert found[0][1] == {"error_code": 401, "message": "User cannot access the resource."}


def test_the_settings_of_the_workers_clients_are_used_if_the_listener_has_none(tmp_path: Path) -> None:
    authority = Authority("connect")
    identity = authority.sign("localhost")
    config = {
        **GIVEN,
        "ssl.keystore.certificate.chain": identity.certificate,
        "ssl.keystore.key": identity.key,
        "ssl.keystore.type": "PEM",
    }
    assert [status for status, _ in answers(config, authority, {})] == [503]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "an https listener needs a certificate"),
        ({"listeners.https.ssl.keystor.location": "/k"}, r"did you mean listeners\.https\.ssl\.keystore\.location"),
        ({"listeners": "http://:1", "rest.extension.classes": "com.example.Mine"}, "the only extension is"),
    ],
)
def test_wrong_settings_are_refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(WorkerConfigError, match=words):
        parse_worker_config({**GIVEN, **given})


def test_a_certificate_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    place = write(tmp_path / "k.pem", "no certificate")
    more = {"listeners.https.ssl.keystore.location": place, "listeners.https.ssl.keystore.type": "PEM"}
    with pytest.raises(WorkerConfigError, match=r"listeners\.https"):
        ConnectServer(parse_worker_config({**GIVEN, **more}), MemoryRuntime())


def test_the_login_file_may_be_in_kafka_opts(tmp_path: Path) -> None:
    place = login_file(tmp_path)
    options = {"KAFKA_OPTS": f"-Xmx1g -Djava.security.auth.login.config={place} -Dx=y"}
    path = users_file("", options)
    users = parse_rest_users(Path(path).read_text(), path)
    assert {name: user.secret for name, user in users.items()} == {"admin": "s3cret", "guest": "pass=word"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no entry KafkaConnect"),
        ("KafkaConnect { x.Y required; };", "the only login module is"),
        (f"KafkaConnect {{ {MODULE} required; }};", "has no file of users"),
    ],
)
def test_a_wrong_login_file_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(WorkerConfigError, match=words):
        users_file(write(tmp_path / "jaas.conf", text))


def test_a_file_without_users_is_refused() -> None:
    with pytest.raises(WorkerConfigError, match="at least one"):
        parse_rest_users("# no users\n", "users")


def test_without_a_login_file_the_setting_is_named() -> None:
    with pytest.raises(WorkerConfigError, match=r"needs java\.security\.auth\.login\.config"):
        users_file("", {})
