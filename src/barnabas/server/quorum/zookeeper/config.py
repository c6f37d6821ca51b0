"""Value: the `zookeeper.*` configs: the addresses and the timeouts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from barnabas.core.config import ConfigError

DEFAULT_PORT: Final = 2181
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:/,\s]+)(?::(\d{1,5}))?\Z")
_CHROOT: Final = re.compile(r"(/[^/\s]+)+\Z")


class ZooKeeperConfig(Struct, frozen=True):
    """The `zookeeper.*` configs. `zookeeper_connect` is in the form that kazoo takes: host:port,host:port/chroot."""

    zookeeper_connect: str
    zookeeper_session_timeout_ms: int
    zookeeper_connection_timeout_ms: int


def read_zookeeper_config(values: Mapping[str, Any]) -> ZooKeeperConfig:
    """Read the configs from the typed broker configs. Raises ConfigError for an invalid `zookeeper.connect`."""
    session = int(values["zookeeper.session.timeout.ms"])
    connection = values["zookeeper.connection.timeout.ms"]
    return ZooKeeperConfig(
        parse_connect(values["zookeeper.connect"] or ""), session, session if connection is None else int(connection)
    )


def parse_connect(text: str) -> str:
    """Parse `host[:port],host[:port][/chroot]` and add the default port where there is none. Raises ConfigError."""
    hosts, slash, rest = text.strip().partition("/")
    chroot = slash + rest.rstrip("/") if rest.rstrip("/") else ""
    if chroot and not _CHROOT.match(chroot):
        raise _wrong(text, f"{chroot!r} is not a valid path")
    found: list[str] = []
    for part in hosts.split(","):
        match = _HOST.match(part.strip())
        port = int(match[2] or DEFAULT_PORT) if match else 0
        if match is None or not 0 < port < 65536:
            raise _wrong(text, f"{part.strip()!r} does not have the form host:port")
        found.append(f"{match[1]}:{port}")
    return ",".join(found) + chroot


def _wrong(text: str, why: str) -> ConfigError:
    return ConfigError(
        f"zookeeper.connect={text}: {why}. "
        "Write host:port,host:port, with /name at the end if the cluster has a path of its own."
    )
