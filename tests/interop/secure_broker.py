"""Shell: one broker with three secure listeners, and the settings with which foreign clients connect to them.

CERTIFICATES asks for client certificates, USERS for users and passwords; SHORT is as USERS, but its sessions end soon.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from barnabas import Admin, TopicPartition
from barnabas.cli.cluster.certificates import Certified, certify_again, certify_node, make_authority
from barnabas.client.admin.users import UserScramCredentialUpsertion
from barnabas.client.values import LATEST
from barnabas.testing.embedded import EmbeddedBroker
from tests.progress import wait_until

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SESSION_MS: Final = 1_500
_HOST: Final = "127.0.0.1"
_JAAS: Final = "org.apache.kafka.common.security"


class SecureBroker:
    """The running broker. A mechanism of None means a client certificate."""

    def __init__(self, folder: Path, authority: Certified, broker: EmbeddedBroker) -> None:
        self.folder = folder
        self.ca = folder / "ca.pem"
        self._authority = authority
        self._broker = broker
        assert broker.node is not None
        self._ports = {endpoint.name: endpoint.port for endpoint in broker.node.endpoints}

    def address(self, mechanism: str | None, listener: str | None = None) -> str:
        return f"{_HOST}:{self._ports[listener or ('USERS' if mechanism else 'CERTIFICATES')]}"

    def authentications(self, listener: str) -> int:
        """How often clients have authenticated, renewed sessions included."""
        return self._count("barnabas_net_authentications_total", listener)

    def refusals(self, listener: str) -> int:
        """How often clients have failed to authenticate."""
        return self._count("barnabas_net_failed_authentications_total", listener)

    def _count(self, name: str, listener: str) -> int:
        assert self._broker.node is not None
        return int(self._broker.node.metrics.counter(name, listener=listener).value)

    def count_records(self, topic: str) -> int:
        """The records of the only partition of a topic."""
        with Admin(self.ours()) as admin:
            (found,) = admin.list_offsets({TopicPartition(topic, 0): LATEST}).values()
        assert not isinstance(found, Exception), found
        return int(found.offset)

    # ---- certificates

    def renew_certificate(self) -> None:
        store = self.folder / "node.pem"
        renewed = certify_again(self._authority, _certificate_of(store), 1)
        fresh = self.folder / "fresh.pem"
        fresh.write_text(renewed.key + renewed.certificate)
        fresh.replace(store)

    def wait_for_certificate(self, listener: str) -> None:
        """Returns when the listener presents the certificate of the file to new clients."""
        expected = _certificate_of(self.folder / "node.pem")
        address = (_HOST, self._ports[listener])
        wait_until(
            lambda: ssl.get_server_certificate(address, ca_certs=str(self.ca)) == expected,
            "the renewed certificate is in use",
            progress=time.monotonic,
        )

    # ---- settings of clients

    def environment(self, mechanism: str | None, user: str = "alice") -> dict[str, str]:
        """The environment variables that the programs in Go and JavaScript read."""
        if mechanism is None:
            files = {"SECURITY_CERTIFICATE": "client.crt", "SECURITY_KEY": "client.key"}
            return {"SECURITY_CA": str(self.ca), **{name: str(self.folder / file) for name, file in files.items()}}
        login = {"SECURITY_USER": user, "SECURITY_PASSWORD": f"{user}-secret"}
        return {"SECURITY_CA": str(self.ca), "SECURITY_MECHANISM": mechanism, **login}

    def java(self, mechanism: str | None, user: str = "alice") -> dict[str, str]:
        """The settings of a client in Java, without the addresses."""
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca)}
        if mechanism is None:
            store = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.folder / "client.pem")}
            return {"security.protocol": "SSL", **trust, **store}
        module = f"{_JAAS}.{'plain.Plain' if mechanism == 'PLAIN' else 'scram.Scram'}LoginModule"
        jaas = f'{module} required username="{user}" password="{user}-secret";'
        return {"security.protocol": "SASL_SSL", **trust, "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}

    def properties(self, mechanism: str | None, user: str = "alice", listener: str | None = None) -> str:
        """The text of a properties file for a client in Java."""
        settings = {"bootstrap.servers": self.address(mechanism, listener), **self.java(mechanism, user)}
        return "".join(f"{name}={value}\n" for name, value in settings.items())

    def librdkafka(self, mechanism: str, user: str = "alice", listener: str | None = None) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.address(mechanism, listener),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.ca),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": f"{user}-secret",
        }

    def ours(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.address(None), **self.java(None)}


@contextmanager
def secure_broker(folder: Path) -> Iterator[SecureBroker]:
    """A broker whose user alice has a password for each mechanism."""
    authority = make_authority("Barnabas tests", 1)
    own, client = (certify_node(authority, name, [_HOST], 1) for name in ("node", "client"))
    texts = {
        "ca.pem": authority.certificate,
        "node.pem": own.key + own.certificate,
        "client.pem": client.key + client.certificate,
        "client.crt": client.certificate,
        "client.key": client.key,
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    plain = f'{_JAAS}.plain.PlainLoginModule required user_alice="alice-secret";'
    settings = {
        "listener.security.protocol.map": "CERTIFICATES:SSL,USERS:SASL_SSL,SHORT:SASL_SSL,CONTROLLER:SSL",
        "inter.broker.listener.name": "CERTIFICATES",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "listener.name.certificates.ssl.client.auth": "required",
        "listener.name.users.plain.sasl.jaas.config": plain,
        "listener.name.short.plain.sasl.jaas.config": plain,
        "listener.name.short.connections.max.reauth.ms": str(SESSION_MS),
    }
    listeners = ",".join(f"{name}://{_HOST}:0" for name in ("CERTIFICATES", "USERS", "SHORT"))
    with EmbeddedBroker(settings, listener=listeners) as broker:
        running = SecureBroker(folder, authority, broker)
        with Admin(running.ours()) as admin:
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                change = UserScramCredentialUpsertion("alice", mechanism, "alice-secret", 4096)
                assert admin.alter_user_scram_credentials([change]) == {"alice": None}
        yield running


def _certificate_of(store: Path) -> str:
    text = store.read_text()
    return text[text.index("-----BEGIN CERTIFICATE-----") :]
