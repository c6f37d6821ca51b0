"""A running broker's listeners are added, removed and given other certificates with dynamic configs."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from barnabas import AsyncAdmin
from barnabas.client.values import AlterOp, ConfigChange, ConfigResource, ConfigResourceType
from barnabas.core.config import ConfigError
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.server.node.listening.broker_listeners import BrokerListeners
from barnabas.testing import AsyncEmbeddedBroker
from barnabas.testing.ports import free_port, is_free
from tests.system.client.tls_proxy import Authority

AUTHORITY = Authority("Barnabas tests")
BROKER = ConfigResource(ConfigResourceType.BROKER, "1")
OUTSIDE = "listener.name.outside."


class Running:
    """A broker with a plain-text listener INSIDE and a TLS listener OUTSIDE."""

    def __init__(self, folder: Path, *, advertises: bool = True, between_nodes: bool = False) -> None:
        self.folder = folder
        self.inside, self.outside, self.more = free_port(), free_port(), free_port()
        self.listeners = f"INSIDE://127.0.0.1:{self.inside},OUTSIDE://127.0.0.1:{self.outside}"
        self.settings = {
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:SSL,MORE:SSL",
            "inter.broker.listener.name": "OUTSIDE" if between_nodes else "INSIDE",
            f"{OUTSIDE}ssl.keystore.type": "PEM",
            f"{OUTSIDE}ssl.keystore.location": self.store("old", "localhost"),
        }
        if between_nodes:
            self.settings[f"{OUTSIDE}ssl.truststore.type"] = "PEM"
            self.settings[f"{OUTSIDE}ssl.truststore.certificates"] = AUTHORITY.pem
        if advertises:
            self.settings["advertised.listeners"] = self.listeners

    def store(self, file: str, *names: str, authority: Authority = AUTHORITY) -> str:
        path = self.folder / f"{file}.pem"
        identity = authority.sign(*names)
        path.write_text(identity.key + identity.certificate)
        return str(path)

    @asynccontextmanager
    async def broker(self) -> AsyncIterator[AsyncAdmin]:
        data_dir = str(self.folder / "data")
        async with (
            AsyncEmbeddedBroker(self.settings, data_dir=data_dir, listener=self.listeners),
            AsyncAdmin(bootstrap_servers=f"127.0.0.1:{self.inside}") as admin,
        ):
            yield admin

    async def alter(self, admin: AsyncAdmin, changes: Mapping[str, str | None]) -> KafkaError | None:
        """Set the configs; delete those whose value is None."""
        steps = [
            ConfigChange(name, value, AlterOp.DELETE if value is None else AlterOp.SET)
            for name, value in changes.items()
        ]
        return (await admin.incremental_alter_configs({BROKER: steps}))[BROKER]

    def with_more(self) -> dict[str, str | None]:
        return {
            "listeners": f"{self.listeners},MORE://127.0.0.1:{self.more}",
            "listener.name.more.ssl.keystore.type": "PEM",
            "listener.name.more.ssl.keystore.location": self.store("more", "more.example"),
        }


async def certificate_at(port: int) -> str | None:
    """The certificate that a listener shows; None if no one listens."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    except OSError:
        return None
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return ssl.DER_cert_to_PEM_cert(der)


def shown(path: str | None) -> str:
    """The certificate in a store."""
    assert path is not None
    text = Path(path).read_text()
    return text[text.index("-----BEGIN CERTIFICATE-----") :]


async def wait_for(port: int, certificate: str | None) -> None:
    async with asyncio.timeout(60):
        while await certificate_at(port) != certificate:
            await asyncio.sleep(0.01)  # the listener changes when the broker has read the metadata log


def refusal(error: KafkaError | None) -> str:
    assert error is not None
    assert error.code is ErrorCode.INVALID_REQUEST
    return str(error)


def test_a_listener_is_added_survives_a_restart_and_is_removed(tmp_path: Path) -> None:
    async def main() -> None:
        running = Running(tmp_path)
        changes = running.with_more()
        async with running.broker() as admin:
            assert await certificate_at(running.more) is None
            assert await running.alter(admin, changes) is None
            await wait_for(running.more, shown(changes["listener.name.more.ssl.keystore.location"]))
        async with running.broker() as admin:
            await wait_for(running.more, shown(changes["listener.name.more.ssl.keystore.location"]))
            assert await running.alter(admin, dict.fromkeys(changes)) is None
            await wait_for(running.more, None)
            assert await certificate_at(running.outside) is not None, "the others stay open"

    asyncio.run(main())


def test_a_new_key_store_is_shown_to_later_connections(tmp_path: Path) -> None:
    async def main() -> None:
        running = Running(tmp_path)
        async with running.broker() as admin:
            store = running.store("new", "localhost", "more.example")
            assert await running.alter(admin, {f"{OUTSIDE}ssl.keystore.location": store}) is None
            await wait_for(running.outside, shown(store))

    asyncio.run(main())


def test_changes_that_do_not_fit_are_refused_with_the_reason(tmp_path: Path) -> None:
    async def main() -> None:
        running = Running(tmp_path)
        location = f"{OUTSIDE}ssl.keystore.location"
        async with running.broker() as admin:
            before = await certificate_at(running.outside)
            other = running.store("other", "other.example")
            assert "would change from CN=localhost" in refusal(await running.alter(admin, {location: other}))
            missing = str(tmp_path / "missing.pem")
            assert "missing.pem" in refusal(await running.alter(admin, {location: missing}))
            trust = {f"{OUTSIDE}ssl.truststore.certificates": AUTHORITY.pem, f"{OUTSIDE}ssl.truststore.type": "PEM"}
            assert "can neither be added" in refusal(await running.alter(admin, trust))
            mechanisms = {f"{OUTSIDE}sasl.enabled.mechanisms": "PLAIN"}
            assert "while the listener OUTSIDE is open" in refusal(await running.alter(admin, mechanisms))
            no_store = {"listeners": f"{running.listeners},MORE://127.0.0.1:{running.more}"}
            assert "needs a certificate" in refusal(await running.alter(admin, no_store))
            assert await running.alter(admin, {"listeners": running.listeners}) is None, "nothing changes"
            assert await certificate_at(running.outside) == before

    asyncio.run(main())


def test_new_listeners_are_closed_again_if_a_store_cannot_be_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = asyncio.Event()

    def refuse(*_: object) -> None:
        refused.set()
        raise ConfigError("the key store is gone")

    async def main() -> None:
        running = Running(tmp_path)
        async with running.broker() as admin:
            before = await certificate_at(running.outside)
            monkeypatch.setattr(BrokerListeners, "_replace_stores", refuse)
            store = running.store("new", "localhost")
            changes = {**running.with_more(), f"{OUTSIDE}ssl.keystore.location": store}
            assert await running.alter(admin, changes) is None
            await refused.wait()
            async with asyncio.timeout(60):
                while not is_free(running.more):
                    await asyncio.sleep(0.01)  # the broker closes the new listener
            assert await certificate_at(running.outside) == before

    asyncio.run(main())


def test_without_advertised_listeners_no_listener_is_added(tmp_path: Path) -> None:
    async def main() -> None:
        running = Running(tmp_path, advertises=False)
        async with running.broker() as admin:
            assert "advertised.listeners" in refusal(await running.alter(admin, running.with_more()))

    asyncio.run(main())


def test_nodes_with_old_and_new_certificates_must_accept_each_other(tmp_path: Path) -> None:
    async def main() -> None:
        running = Running(tmp_path, between_nodes=True)
        async with running.broker() as admin:
            foreign = running.store("foreign", "localhost", authority=Authority("another"))
            reason = refusal(await running.alter(admin, {f"{OUTSIDE}ssl.keystore.location": foreign}))
            assert "could not connect" in reason
            own = running.store("own", "localhost")
            assert await running.alter(admin, {f"{OUTSIDE}ssl.keystore.location": own}) is None
            await wait_for(running.outside, shown(own))

    asyncio.run(main())


@pytest.mark.parametrize("early", ["", "INSIDE"])
def test_early_listeners_are_open_like_the_others(tmp_path: Path, early: str) -> None:
    async def main() -> None:
        running = Running(tmp_path)
        running.settings["early.start.listeners"] = early
        async with running.broker() as admin:
            assert len((await admin.describe_cluster()).brokers) == 1
            assert await certificate_at(running.outside) is not None

    asyncio.run(main())
