"""Codec: links and states of mirror partitions to and from the messages that have them."""

from __future__ import annotations

from typing import Final

from msgspec.structs import asdict

from barnabas.core.config_providers import is_reference
from barnabas.protocol.wire.messages.alter_link import LinkData, LinkSetting
from barnabas.protocol.wire.messages.read_mirror_state import MirrorStateData
from barnabas.server.links.coordination.values import MirrorStored, Settings, StoredLink

HIDDEN: Final = "(hidden)"
"""In place of a password in a description."""
_SECRET: Final = ("password", "jaas.config", "secret", "keystore.key")


def link_of(data: LinkData) -> StoredLink:
    return StoredLink(
        data.name,
        data.bootstrap_servers,
        tuple((setting.name, setting.value) for setting in data.client),
        tuple(data.topics),
        tuple(data.topics_exclude),
        tuple(data.groups),
        tuple(data.groups_exclude),
        tuple(data.acls),
        tuple((setting.name, setting.value) for setting in data.settings),
        data.source_cluster_id,
        data.version,
    )


def data_of(link: StoredLink, *, hide_secrets: bool = False) -> LinkData:
    """The message form of a link; with `hide_secrets`, of a link that is shown to people."""
    return LinkData(
        name=link.name,
        bootstrap_servers=link.bootstrap_servers,
        client=_settings(link.client, hide_secrets),
        topics=list(link.topics),
        topics_exclude=list(link.topics_exclude),
        groups=list(link.groups),
        groups_exclude=list(link.groups_exclude),
        acls=list(link.acls),
        settings=_settings(link.settings, hide_secrets),
        source_cluster_id=link.source_cluster_id,
        version=link.version,
    )


def _settings(settings: Settings, hide_secrets: bool) -> list[LinkSetting]:
    return [
        LinkSetting(name=name, value=HIDDEN if hide_secrets and is_secret(name, value) else value)
        for name, value in settings
    ]


def is_secret(name: str, value: str) -> bool:
    """Whether the value of a client setting is not shown. A reference to a secret is."""
    return any(part in name for part in _SECRET) and not is_reference(value)


def stored_of(data: MirrorStateData) -> MirrorStored:
    return MirrorStored(**{name: getattr(data, name) for name in MirrorStored.__struct_fields__})


def state_data_of(stored: MirrorStored) -> MirrorStateData:
    return MirrorStateData(**asdict(stored))
