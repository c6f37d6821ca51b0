"""Ports for servers: free ones, below those of outgoing connections."""

from __future__ import annotations

import socket

import pytest

from barnabas.testing import ports


def test_ports_differ_and_are_below_those_of_outgoing_connections() -> None:
    found = ports.free_ports(50)
    assert len(set(found)) == 50
    assert max(found) < 32_768


def test_a_port_with_a_server_is_not_free() -> None:
    port = ports.free_port()
    with socket.create_server(("127.0.0.1", port)):
        assert not ports.is_free(port)


def test_a_range_has_only_free_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda port: port % 10 != 0)
    first = ports.free_range(9)
    assert first % 10 == 1


def test_too_few_free_ports_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda port: False)
    with pytest.raises(RuntimeError, match="only 0 are free"):
        ports.free_ports(1)
