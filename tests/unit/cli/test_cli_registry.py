"""`barnabas registry` and `serve --registry` warn in one line if other hosts can reach the registry."""

from __future__ import annotations

import pytest

from barnabas.cli.serve_beside import open_registry_warning


@pytest.mark.parametrize(
    "listener", ["http://127.0.0.1:8081", "localhost:8081", "http://[::1]:0", "http://127.1.2.3:1"]
)
def test_a_registry_on_a_loopback_address_is_not_warned_about(listener: str) -> None:
    assert open_registry_warning(listener, {}) is None


@pytest.mark.parametrize(
    "listener", ["http://0.0.0.0:8081", "http://:8081", "registry.example.com:8081", "http://[::]:1"]
)
def test_a_registry_that_other_hosts_reach_is_warned_about(listener: str) -> None:
    warning = open_registry_warning(listener, {})
    assert warning is not None
    assert warning.startswith(f"WARNING: the registry at {listener} has no authentication")
    assert "\n" not in warning


@pytest.mark.parametrize("configs", [{"authentication.method": "BASIC"}, {"ssl.client.authentication": "REQUIRED"}])
def test_a_registry_that_asks_who_its_clients_are_is_not_warned_about(configs: dict[str, str]) -> None:
    assert open_registry_warning("https://0.0.0.0:8081", configs) is None
