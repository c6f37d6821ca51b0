"""TLS and users of HTTP servers: settings, passwords, reloaded files, and the answers to those who may not pass."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest

from barnabas.core.config import ConfigError
from barnabas.protocol.transport.http.logins import decode_basic
from barnabas.protocol.transport.http.messages import HttpRequest, HttpResponse
from barnabas.protocol.transport.http.pages import Page, PageServer
from barnabas.protocol.transport.http.security import HttpSecurity
from barnabas.protocol.transport.http.server import http_api
from barnabas.protocol.transport.http.settings import HttpSecurityConfig, parse_users, read_http_security
from barnabas.protocol.transport.tls_files import CHECK_EVERY_S
from tests.system.client.tls_proxy import Authority, Identity

AUTHORITY = Authority("Barnabas tests")
PAGES = {"/metrics": lambda: Page("a 1\n")}
PROBES = {"/healthz": lambda: Page("the disk is gone\n", 503)}


def header(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def users(folder: Path, text: str = "alice: secret, admin\nbob: other\n") -> str:
    path = folder / "users"
    path.write_text(text)
    return str(path)


def basic(folder: Path, **more: str) -> dict[str, str]:
    return {"authentication.method": "BASIC", "authentication.users.file": users(folder), **more}


# ---- settings


def test_without_settings_everybody_may_pass() -> None:
    assert read_http_security({}, is_https=False) == HttpSecurityConfig()
    assert read_http_security({"authentication.method": "NONE", "listeners": "x"}, is_https=False).login is None


def test_a_prefix_stands_before_all_names(tmp_path: Path) -> None:
    given = {f"p.{name}": text for name, text in basic(tmp_path).items()} | {"ssl.keystore.location": "of another"}
    found = read_http_security(given, is_https=False, prefix="p.")
    assert found.login is not None
    assert found.login.users_file == str(tmp_path / "users")


@pytest.mark.parametrize(
    ("given", "is_https", "reason"),
    [
        ({"authentication.method": "BEARER"}, False, "use NONE or BASIC"),
        ({"authentication.method": "BASIC"}, False, "needs p.authentication.users.file"),
        ({"ssl.keystore.location": "/x"}, False, "p.ssl.keystore.location has no effect without"),
        ({"ssl.client.authentication": "MAYBE"}, True, "use NONE, REQUESTED or REQUIRED"),
        ({"authentication.user.file": "/x"}, False, "Did you mean p.authentication.users.file"),
    ],
)
def test_wrong_settings_are_named(given: Mapping[str, str], is_https: bool, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        read_http_security({f"p.{name}": text for name, text in given.items()}, is_https=is_https, prefix="p.")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has no users"),
        ("alice", "line 1: write"),
        ("# users\nalice: ", "line 2: write"),
        ("alice: MD5:5ebe2294ecd0e0f08eab7690d2a6ee69", "hashed passwords"),
    ],
)
def test_a_file_of_users_that_cannot_be_used(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as refusal:
        parse_users(text, "users")
    assert "5ebe" not in str(refusal.value)


def test_passwords_are_in_no_repr() -> None:
    assert "secret" not in repr(parse_users("alice: secret, admin", "users"))


@pytest.mark.parametrize("text", ["", "Bearer x", "Basic", "Basic ====", "Basic " + "QQ" * 3000, "Basic YWxpY2U="])
def test_headers_without_a_user(text: str) -> None:
    assert decode_basic(text) is None


def test_the_user_of_a_header() -> None:
    assert decode_basic(header("alice", "a:b")) == ("alice", "a:b")


# ---- users


def refusals(security: HttpSecurity, *headers: str) -> list[int | None]:
    async def main() -> list[int | None]:
        found = [await security.refusal(text, "10.0.0.1") for text in headers]
        return [None if one is None else one.status for one in found]

    return asyncio.run(main())


def test_users_and_roles(tmp_path: Path) -> None:
    attempts = (header("alice", "secret"), header("alice", "wrong"), header("eve", ""), header("bob", "other"), "")
    anyone = HttpSecurity(read_http_security(basic(tmp_path), is_https=False), lambda: 0.0)
    assert refusals(anyone, *attempts) == [None, 401, 401, None, 401]
    admins = HttpSecurity(
        read_http_security(basic(tmp_path, **{"authentication.roles": "admin"}), is_https=False), lambda: 0.0
    )
    assert refusals(admins, *attempts) == [None, 401, 401, 401, 401]


def test_a_changed_file_of_users_is_read_again(tmp_path: Path) -> None:
    now = [0.0]
    security = HttpSecurity(read_http_security(basic(tmp_path), is_https=False), lambda: now[0])
    users(tmp_path, "carol: new, and longer\n")
    now[0] += CHECK_EVERY_S
    assert refusals(security, header("carol", "new"), header("alice", "secret")) == [None, 401]
    users(tmp_path, "nonsense")
    now[0] += CHECK_EVERY_S
    assert refusals(security, header("carol", "new")) == [None], "the previous users stay"


# ---- servers


async def hello(request: HttpRequest) -> HttpResponse:
    return HttpResponse(200, b"hello", "text/plain")


async def ask(port: int, request: str, tls: ssl.SSLContext | None = None) -> tuple[str, str]:
    """The head and the body of the response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    writer.write(request.encode())
    answer = await reader.read()
    writer.close()
    head, _, body = answer.decode().partition("\r\n\r\n")
    return head, body


def get(path: str, authorization: str = "") -> str:
    login = f"Authorization: {authorization}\r\n" if authorization else ""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{login}\r\n"


def write_store(path: Path, identity: Identity) -> None:
    path.write_text(identity.key + identity.certificate)


def https(folder: Path) -> dict[str, str]:
    return {"ssl.keystore.location": str(folder / "own.pem"), "ssl.keystore.type": "PEM"}


def trusting() -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=AUTHORITY.pem)
    context.check_hostname = False
    return context


def test_an_api_over_tls_with_users_and_a_renewed_certificate(tmp_path: Path) -> None:
    async def main() -> None:
        store, now = tmp_path / "own.pem", [0.0]
        write_store(store, AUTHORITY.sign("a"))
        config = read_http_security({**https(tmp_path), **basic(tmp_path)}, is_https=True)
        server = http_api("127.0.0.1", 0, hello, security=HttpSecurity(config, lambda: now[0]))
        await server.bind()
        assert server.url.startswith("https://")
        serving = asyncio.create_task(server.serve())
        head, body = await ask(server.port, get("/"), trusting())
        assert head.startswith("HTTP/1.1 401 Unauthorized\r\n")
        assert 'WWW-Authenticate: Basic realm="Barnabas"' in head
        assert body == '{"error_code": 401, "message": "Unauthorized"}'
        head, body = await ask(server.port, get("/", header("alice", "secret")), trusting())
        assert (head[:15], body) == ("HTTP/1.1 200 OK", "hello")
        renewed = AUTHORITY.sign("another.name")
        write_store(store, renewed)
        now[0] += CHECK_EVERY_S
        await ask(server.port, get("/"), trusting())  # notices that the file has changed
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting())
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        assert shown == ssl.PEM_cert_to_DER_cert(renewed.certificate)
        writer.close()
        server.stop()
        await serving

    asyncio.run(main())


def test_pages_with_users_show_everybody_only_the_status_of_the_node(tmp_path: Path) -> None:
    async def main() -> None:
        security = HttpSecurity(read_http_security(basic(tmp_path), is_https=False), lambda: 0.0)
        server = PageServer("127.0.0.1", 0, PAGES, probes=PROBES, security=security)
        server.bind()
        serving = asyncio.create_task(server.serve())
        login = header("alice", "secret")
        answers = [
            await ask(server.port, get(path, authorization))
            for path in ("/metrics", "/healthz", "/nowhere")
            for authorization in ("", login)
        ]
        assert [(head.split(" ")[1], body) for head, body in answers] == [
            ("401", "This page needs a user and a password.\n"),
            ("200", "a 1\n"),
            ("503", "not ok\n"),
            ("503", "the disk is gone\n"),
            ("401", "This page needs a user and a password.\n"),
            ("404", "There is no such page. The pages are /healthz, /metrics.\n"),
        ]
        assert "WWW-Authenticate: Basic" in answers[0][0]
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)

    asyncio.run(main())


def test_clients_need_a_certificate_if_that_is_required(tmp_path: Path) -> None:
    async def main() -> None:
        write_store(tmp_path / "own.pem", AUTHORITY.sign("a"))
        required = {"ssl.client.authentication": "REQUIRED", "ssl.truststore.certificates": AUTHORITY.pem}
        config = read_http_security({**https(tmp_path), **required}, is_https=True)
        server = http_api("127.0.0.1", 0, hello, security=HttpSecurity(config, lambda: 0.0))
        await server.bind()
        serving = asyncio.create_task(server.serve())
        answer = ("", "")
        with contextlib.suppress(ssl.SSLError, ConnectionError):  # or the connection ends without an answer
            answer = await ask(server.port, get("/"), trusting())
        assert answer == ("", "")
        mine, context = tmp_path / "mine.pem", trusting()
        write_store(mine, AUTHORITY.sign("client"))
        context.load_cert_chain(mine)
        assert (await ask(server.port, get("/"), context))[1] == "hello"
        server.stop()
        await serving

    asyncio.run(main())
