"""A registry that other hosts can reach starts with a login, or with `--insecure`."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.protocol.transport.http.doors import OpenListenerError
from barnabas.registry.server import RegistryServer

CLIENT = {"bootstrap.servers": "127.0.0.1:9092"}
OPEN = ["http://0.0.0.0:8081", "http://:8081", "registry.example.com:8081", "http://[::]:1"]


@pytest.mark.parametrize(
    "listener", ["http://127.0.0.1:8081", "localhost:8081", "http://[::1]:0", "http://127.1.2.3:1"]
)
def test_a_registry_on_a_loopback_address_needs_no_login(listener: str) -> None:
    RegistryServer(CLIENT, listener=listener)


@pytest.mark.parametrize("listener", OPEN)
def test_a_registry_that_other_hosts_reach_needs_a_login(listener: str, tmp_path: Path) -> None:
    with pytest.raises(OpenListenerError, match=r"x\.authentication\.method=BASIC"):
        RegistryServer(CLIENT, listener=listener, prefix="x.")
    users = tmp_path / "users"
    users.write_text("alice: secret\n")
    configs = {"authentication.method": "BASIC", "authentication.users.file": str(users)}
    RegistryServer(CLIENT, listener=listener, configs=configs)
    RegistryServer(CLIENT, listener=listener, insecure=True)
