"""The secure listeners of the benchmarks have settings that a node accepts."""

from __future__ import annotations

import random
import ssl
from pathlib import Path

import pytest
from bench.attacks.edges import Edge, edge_settings
from bench.security import MECHANISM, PROTOCOLS, SecureListener, make_certificates

from barnabas.core.clock import SystemClock
from barnabas.server.node.config import build_config
from barnabas.server.node.setup.security_configs import SecuritySources, build_node_security


def security_of(settings: dict[str, str], folder: Path) -> dict[str, tuple[bool, tuple[str, ...]]]:
    """For each secure listener, whether it has TLS, and its mechanisms."""
    config = build_config({**settings, "log.dirs": str(folder)})
    sources = SecuritySources(SystemClock(), lambda: 0.0, random.Random(1), lambda _m, _u: None, lambda _t: None)
    return {
        name: (listener.tls is not None, () if listener.sasl is None else listener.sasl.enabled_mechanisms)
        for name, listener in build_node_security(config, sources).listeners.items()
    }


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_measured_listener_is_secure(protocol: str, tmp_path: Path) -> None:
    make_certificates(tmp_path)
    secure = SecureListener(protocol, tmp_path)
    mechanisms = (MECHANISM,) if protocol == "sasl_ssl" else ()
    assert security_of(secure.broker_settings(9092, 9093), tmp_path) == {"SECURE": (True, mechanisms)}
    ssl.create_default_context(cafile=secure.client_settings()["ssl.ca.location"])
    assert secure.java_settings().get("sasl.mechanism", "") == "".join(mechanisms)


def test_the_attacked_listeners_are_secure(tmp_path: Path) -> None:
    settings = dict(setting.split("=", 1) for setting in edge_settings(9092))
    assert security_of(settings, tmp_path) == {
        "SSL": (True, ()),
        "SASL_PLAINTEXT": (False, ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")),
        "SASL_SSL": (True, ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")),
        "MUTUAL": (True, ()),
    }
    assert [f":{9092 + edge}" in settings["listeners"] for edge in Edge] == [True] * len(Edge)
