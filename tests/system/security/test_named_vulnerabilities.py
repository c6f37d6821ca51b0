"""Vulnerabilities that Apache Kafka had, each with its number: a whole broker does not have them.

The tests of `test_transport_cves.py`, `test_authorization_matrix.py`, `test_standard_authorizer.py` and
`test_sasl_matrix.py` have the others.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas import AsyncAdmin
from barnabas.client.values import ConfigChange, ConfigResource, ConfigResourceType
from barnabas.core.errors import KafkaError
from tests.system.security.test_secure_listeners import PLAIN_USERS, broker, client, round_trip, tls_settings

_SECRETS = ("node-secret", "alice-secret", "PRIVATE KEY")
_THIS_BROKER = ConfigResource(ConfigResourceType.BROKER, "1")


async def test_cve_2019_12399_describe_configs_shows_no_secret() -> None:
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
        "inter.broker.listener.name": "PLAINTEXT",
        **tls_settings(),
    }
    async with (
        broker("PLAINTEXT,SASL_PLAINTEXT,SSL", settings) as addresses,
        AsyncAdmin({"bootstrap.servers": addresses["PLAINTEXT"]}) as admin,
    ):
        described = (await admin.describe_configs([_THIS_BROKER]))[_THIS_BROKER]
    assert not isinstance(described, KafkaError)
    shown = repr(described)
    assert "ssl.keystore.key" in shown
    assert not any(secret in shown for secret in _SECRETS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("principal.builder.class", "barnabas_exploit.Builder"),
        ("ssl.engine.factory.class", "barnabas_exploit.Factory"),
        ("listener.name.sasl_plaintext.plain.sasl.jaas.config", "barnabas_exploit.Module required;"),
        (
            "listener.name.sasl_plaintext.plain.sasl.jaas.config",
            'com.sun.security.auth.module.JndiLoginModule required user.provider.url="ldap://127.0.0.1:1/x";',
        ),
    ],
)
async def test_cve_2023_25194_a_dynamic_config_loads_no_class(
    name: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CVE-2024-31141, CVE-2025-27817, CVE-2025-27818 and CVE-2025-27819 are of the same kind."""
    (tmp_path / "barnabas_exploit.py").write_text("Builder = Factory = Module = object\n")
    monkeypatch.syspath_prepend(tmp_path)
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
        "inter.broker.listener.name": "PLAINTEXT",
    }
    async with broker("PLAINTEXT,SASL_PLAINTEXT", settings) as addresses:
        async with AsyncAdmin({"bootstrap.servers": addresses["PLAINTEXT"]}) as admin:
            await admin.incremental_alter_configs({_THIS_BROKER: [ConfigChange(name, value)]})
        login = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "alice-secret"}
        await round_trip(client(addresses["SASL_PLAINTEXT"], "SASL_PLAINTEXT", **login))
    assert "barnabas_exploit" not in sys.modules


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the program openssl")
async def test_a_client_cannot_renegotiate_a_tls_connection() -> None:
    """CVE-2009-3555, and the work that each handshake is for the server."""
    async with broker("SSL", tls_settings()) as addresses:
        command = ["openssl", "s_client", "-connect", addresses["SSL"], "-tls1_2"]
        process = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        out, _ = await asyncio.wait_for(process.communicate(b"R\n"), 30)
        assert re.search(rb"no renegotiation|ssl handshake failure|alert", out), out[-2000:]
        await round_trip(client(addresses["SSL"], "SSL"))
