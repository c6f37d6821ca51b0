"""A link over TLS and SASL to Apache Kafka, with passwords that change, in the link and in files."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from barnabas.testing.ports import free_ports
from tests.interop.apache_kafka import ApacheKafka
from tests.system.mirror.secure_links import listener_settings, rotate, write_certificates

pytestmark = pytest.mark.interop


@pytest.mark.timeout(400)
def test_changed_passwords_of_a_link_to_kafka(tmp_path: Path) -> None:
    write_certificates(tmp_path)
    certificates, users = (f"127.0.0.1:{port}" for port in free_ports(2))
    settings = [f"{name}={value}" for name, value in listener_settings(tmp_path, "CERTIFICATES", "USERS").items()]
    listeners = [f"CERTIFICATES://{certificates}", f"USERS://{users}"]
    with ApacheKafka(tmp_path, settings, more_listeners=listeners).running() as kafka:
        rotate(tmp_path, SimpleNamespace(plain=kafka.bootstrap, certificates=certificates, users=users))
