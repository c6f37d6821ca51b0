"""References of a link to secrets, and announcements of changed links."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.core.config import ConfigError
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.messages.alter_link import AlterLinkResponse
from barnabas.server.links import announcing
from barnabas.server.links.coordination.mirror_commands import LinkOperation
from barnabas.server.links.coordination.values import StoredLink
from barnabas.server.links.coordination.wire_forms import HIDDEN, data_of
from barnabas.server.links.fetching.values import LinkDefinition
from barnabas.server.links.references import LinkReferences
from barnabas.server.peers.peer_router import PeerRouter

ENV = {"config.providers": "env", "config.providers.env.class": "EnvVarConfigProvider"}


def definition(password: str) -> LinkDefinition:
    return LinkDefinition("l", "k:1", client={"sasl.jaas.config": f'x password="{password}";', "client.id": "c"})


def test_references_are_resolved_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    references = LinkReferences(ENV)
    for secret in ("one", "two"):
        monkeypatch.setenv("LINK_PASSWORD", secret)
        assert references.resolve(definition("${env:LINK_PASSWORD}")) == definition(secret)
    assert LinkReferences({}).resolve(definition("plain $5")) == definition("plain $5")


@pytest.mark.parametrize(
    ("properties", "reference", "reason"),
    [
        (ENV, "${env:NO_SUCH_VARIABLE}", "there is no environment variable NO_SUCH_VARIABLE"),
        (ENV, "${file:/a:b}", "there is no config provider 'file'"),
        ({"config.providers": "x"}, "${x:a}", r"config\.providers\.x\.class must be one of"),
    ],
)
def test_what_cannot_be_resolved_is_an_error(properties: dict[str, str], reference: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        LinkReferences(properties).resolve(definition(reference))


def test_a_description_shows_a_reference_and_hides_a_password() -> None:
    client = (("ssl.key.password", "${env:KEY}"), ("ssl.keystore.password", "hush"), ("client.id", "c"))
    shown = data_of(StoredLink("l", "k:1", client), hide_secrets=True).client
    assert [(setting.name, setting.value) for setting in shown] == [client[0], (client[1][0], HIDDEN), client[2]]


class Peers:
    """A router to the brokers 1 (this one), 2, 3 (which does not answer twice) and 4 (fenced)."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, LinkOperation, str]] = []
        self._failures = 2

    @property
    def local(self) -> Any:
        brokers = [SimpleNamespace(broker_id=number, fenced=number == 4) for number in (1, 2, 3, 4)]
        return SimpleNamespace(metadata=SimpleNamespace(image=SimpleNamespace(brokers=brokers)))

    def is_local(self, broker_id: int) -> bool:
        return broker_id == 1

    async def send(self, broker_id: int, request: Any, purpose: str) -> Any:
        self.sent.append((broker_id, request.operation, request.link.name))
        assert request.only_local
        if broker_id == 3 and self._failures:
            self._failures -= 1
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION)
        return AlterLinkResponse()


def test_every_other_broker_is_told_of_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcing, "_PAUSE_S", 0.0)
    peers = Peers()
    asyncio.run(announcing.Announcer(cast("PeerRouter", peers)).announce("paris"))
    assert sorted(peers.sent) == [(number, LinkOperation.ANNOUNCE, "paris") for number in (2, 3, 3, 3)]
