"""A link over TLS and SASL to a source of ours, with passwords that change, in the link and in files."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from barnabas.testing.embedded import EmbeddedBroker
from tests.system.mirror.secure_links import listener_settings, rotate, write_certificates

pytestmark = pytest.mark.system


@pytest.mark.timeout(300)
def test_changed_passwords_reach_every_broker_at_once(tmp_path: Path) -> None:
    write_certificates(tmp_path)
    settings = listener_settings(tmp_path, "CERTIFICATES", "USERS")
    listeners = ",".join(f"{name}://127.0.0.1:0" for name in ("PLAINTEXT", "CERTIFICATES", "USERS"))
    with EmbeddedBroker(settings, listener=listeners) as broker:
        assert broker.node is not None
        at = {endpoint.name: f"127.0.0.1:{endpoint.port}" for endpoint in broker.node.endpoints}
        source = SimpleNamespace(plain=at["PLAINTEXT"], certificates=at["CERTIFICATES"], users=at["USERS"])
        rotate(tmp_path, source)
