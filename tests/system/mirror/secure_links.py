"""A link over TLS and SASL whose password is changed: the steps, for a source of either program."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Protocol

import pytest

from barnabas.cli.cluster.certificates import certify_node, make_authority
from barnabas.client import AsyncAdmin, AsyncProducer
from barnabas.client.admin.links import Link
from barnabas.client.admin.users import UserScramCredentialUpsertion
from barnabas.client.values import NewTopic
from barnabas.core.errors import KafkaError
from barnabas.testing.process_cluster import ClusterProcess

PARTITIONS: Final = 4
SESSION_MS: Final = 1_000
"""How long a session lasts at the source's listener with passwords: then the link must show its password again."""
_SOON_S: Final = 40.0
"""Less than `mirror.metadata.refresh.interval.ms`, after which a broker would notice any change by itself."""
_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


class SecureSource(Protocol):
    """A cluster with three listeners."""

    plain: str
    certificates: str
    """SSL; it asks for the client's certificate."""
    users: str
    """SASL_SSL with SCRAM-SHA-256; sessions end after SESSION_MS."""


def write_certificates(folder: Path) -> None:
    """ca.pem, and for the source and for the brokers with the mirrors a store: source.pem, mirror.pem."""
    authority = make_authority("links", 1)
    (folder / "ca.pem").write_text(authority.certificate)
    for name in ("source", "mirror"):
        own = certify_node(authority, name, ["127.0.0.1", "localhost"], 1)
        (folder / f"{name}.pem").write_text(own.key + own.certificate)


def listener_settings(folder: Path, certificates: str, users: str) -> dict[str, str]:
    """The settings of a source; `certificates` and `users` are the names of its two secure listeners."""
    protocols = f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{certificates}:SSL,{users}:SASL_SSL"
    return {
        "listener.security.protocol.map": protocols,
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "source.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        f"listener.name.{certificates.lower()}.ssl.client.auth": "required",
        f"listener.name.{users.lower()}.scram-sha-256.sasl.jaas.config": f"{_MODULE} required;",
        f"listener.name.{users.lower()}.connections.max.reauth.ms": str(SESSION_MS),
    }


def brokers_with_mirrors(folder: Path) -> ClusterProcess:
    """Two brokers that resolve references to files below `folder`/secrets."""
    (folder / "secrets").mkdir()
    providers = (
        "config.providers=file",
        "config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider",
        f"config.providers.file.param.allowed.paths={folder}/secrets",
    )
    return ClusterProcess(folder / "mirror", brokers=2, settings=(*providers, "mirror.state.topic.num.partitions=2"))


class Rotation:
    """The link, and the passwords that its user has one after the other."""

    def __init__(self, folder: Path, source: SecureSource, ours: AsyncAdmin, theirs: AsyncAdmin) -> None:
        self._folder, self._source, self._ours, self._theirs = folder, source, ours, theirs
        self._secret = folder / "secrets" / "paris.properties"
        self._written = 0

    async def run(self) -> None:
        await self._theirs.create_topics([NewTopic("orders", PARTITIONS, 1)])
        store = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self._folder / "mirror.pem")}
        link = self._link(self._source.certificates, {"security.protocol": "SSL", **store})
        await self._ours.create_link(link)
        await self._copies("over TLS with a certificate")
        await self._set_password("first")
        await self._ours.alter_link(self._with_password("first"))
        await self._copies("with a password")
        shown = (await self._ours.describe_links(["paris"]))["paris"].link.client["sasl.jaas.config"]
        assert shown == "(hidden)"
        await self._set_password("second")
        await until(self._is_refused, "the former password is refused")
        await self._ours.alter_link(self._with_password("second"))
        await self._copies("with a changed password")
        await self._use_a_file()

    async def _use_a_file(self) -> None:
        reference = f"${{file:{self._secret}:password}}"
        with pytest.raises(KafkaError, match="cannot be resolved"):
            await self._ours.alter_link(self._with_password(reference))
        with pytest.raises(KafkaError, match=r"allowed\.paths does not allow this path"):
            await self._ours.alter_link(self._with_password("${file:/etc/passwd:root}"))
        self._secret.write_text("password=second")
        await self._ours.alter_link(self._with_password(reference))
        await self._copies("with a password in a file")
        self._secret.write_text("password=a-third-one")
        await self._set_password("a-third-one")
        await self._copies("with a changed password in a file")
        logs = [path for path in (self._folder / "mirror").rglob("*.log") if path.parent.name.startswith("__mirror")]
        stored = b"".join(path.read_bytes() for path in logs)
        assert b"second" in stored
        assert b"a-third-one" not in stored

    def _link(self, servers: str, client: dict[str, str]) -> Link:
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self._folder / "ca.pem")}
        return Link("paris", servers, {**client, **trust}, topics=("orders",))

    def _with_password(self, password: str) -> Link:
        jaas = f'{_MODULE} required username="link" password="{password}";'
        sasl = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": jaas}
        return self._link(self._source.users, sasl)

    async def _set_password(self, password: str) -> None:
        change = UserScramCredentialUpsertion("link", "SCRAM-SHA-256", password, 4096)
        assert await self._theirs.alter_user_scram_credentials([change]) == {"link": None}

    async def _copies(self, what: str) -> None:
        """Write to the source, and wait until the mirrors have it."""
        async with AsyncProducer(bootstrap_servers=self._source.plain) as producer:
            for number in range(10 * PARTITIONS):
                await producer.send("orders", str(self._written).encode(), partition=number % PARTITIONS)
                self._written += 1
            await producer.flush()
        await until(self._is_level, f"the mirrors have everything {what}")

    async def _is_level(self) -> bool:
        statuses = await self._ours.describe_mirrors(["paris"])
        level = [status for status in statuses if status.state == "MIRRORING" and status.lag == 0]
        return len(level) == PARTITIONS and sum(s.source_high_watermark for s in level) == self._written

    async def _is_refused(self) -> bool:
        """Whether every mirror is FAILED, those of both brokers."""
        statuses = await self._ours.describe_mirrors(["paris"])
        return len(statuses) == PARTITIONS and all("uthentication" in status.reason for status in statuses)


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    deadline = time.monotonic() + _SOON_S
    while not await condition():
        assert time.monotonic() < deadline, f"waiting until {what}"
        await asyncio.sleep(0.05)  # the clusters cannot notify the test


def rotate(folder: Path, source: SecureSource) -> None:
    """Run all steps against a source that runs."""

    async def main(servers: str) -> None:
        async with (
            AsyncAdmin(bootstrap_servers=servers) as ours,
            AsyncAdmin(bootstrap_servers=source.plain) as theirs,
        ):
            await Rotation(folder, source, ours, theirs).run()

    with brokers_with_mirrors(folder) as mirror:
        asyncio.run(main(mirror.bootstrap_servers))
