"""principal.builder.class: the class of a user maps connections to principals, and refuses some."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from barnabas import AsyncAdmin
from barnabas.core.config import ConfigError
from barnabas.core.errors import BarnabasError
from barnabas.protocol.security.principal_builder import (
    SETTING,
    AuthenticationContext,
    build_principal_builder,
)
from barnabas.protocol.security.principals import ANONYMOUS, KafkaPrincipal
from tests.system.security.test_secure_listeners import CLIENT, PLAIN_USERS, broker, client, tls_settings

_contexts: list[AuthenticationContext] = []


class Principals:
    """Everybody is the administrator, but for alice."""

    def __init__(self, configs: Mapping[str, str]) -> None:
        assert configs[SETTING].endswith("Principals")

    def build(self, context: AuthenticationContext) -> KafkaPrincipal:
        _contexts.append(context)
        if context.principal.name == "alice":
            raise ValueError("alice is not welcome")
        return KafkaPrincipal("Role", "admin")


async def test_connections_have_the_principals_of_the_class() -> None:
    _contexts.clear()
    settings = tls_settings(
        **{
            SETTING: f"{__name__}:Principals",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "Role:admin",
            "listener.name.ssl.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
        }
    )
    async with broker("PLAINTEXT,SSL,SASL_PLAINTEXT", settings) as addresses:
        sasl = {"sasl.mechanism": "PLAIN", "sasl.username": "node", "sasl.password": "node-secret"}
        for config in (
            client(addresses["PLAINTEXT"], "PLAINTEXT"),
            client(addresses["SSL"], "SSL", CLIENT),
            client(addresses["SASL_PLAINTEXT"], "SASL_PLAINTEXT", **sasl),
        ):
            async with AsyncAdmin(config) as admin:
                assert await admin.describe_acls() == []
        alice = {**sasl, "sasl.username": "alice", "sasl.password": "alice-secret"}
        with pytest.raises(BarnabasError):
            async with AsyncAdmin(client(addresses["SASL_PLAINTEXT"], "SASL_PLAINTEXT", **alice)) as admin:
                await admin.list_topics(timeout_ms=1000)
    seen = {(c.listener, c.security_protocol, str(c.principal), c.certificate is not None) for c in _contexts}
    assert seen == {
        ("PLAINTEXT", "PLAINTEXT", "User:ANONYMOUS", False),
        ("SSL", "SSL", "User:CN=client", True),
        ("SASL_PLAINTEXT", "SASL_PLAINTEXT", "User:node", False),
        ("SASL_PLAINTEXT", "SASL_PLAINTEXT", "User:alice", False),
    }


def test_without_a_class_of_a_user_there_is_none() -> None:
    assert build_principal_builder({}) is None
    default = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
    assert build_principal_builder({SETTING: default}) is None
    with pytest.raises(ConfigError, match="lacks build"):
        build_principal_builder({SETTING: "builtins:dict"})


def test_the_class_of_the_security_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[3] / "docs" / "SECURITY.md").read_text(encoding="utf-8")
    code = page.partition("### Principals of your own")[2].partition("```python\n")[2].partition("```")[0]
    (tmp_path / "company_principals.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    builder = build_principal_builder({SETTING: "company_principals:Principals"})
    assert builder is not None
    names = [
        str(builder.build(AuthenticationContext("A", "PLAINTEXT", host, ANONYMOUS)))
        for host in ("10.9.0.1", "10.8.0.1")
    ]
    assert names == ["Node:ANONYMOUS", "User:ANONYMOUS"]
