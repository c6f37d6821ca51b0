"""Value: a node's static configuration: server.properties, then `-c key=value`, then what a single broker needs.

Names, types and defaults are Kafka's (`metadata.configs`). Where Kafka's default cannot work on a cluster of one (three
replicas of the internal topics), `development_defaults` stands in for it; anything the user sets wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from barnabas.core.config import ConfigError
from barnabas.core.properties import parse_properties
from barnabas.metadata.config_view import development_defaults
from barnabas.metadata.configs.tables import BROKER_CONFIGS, TOPIC_CONFIGS
from barnabas.net.endpoint import Endpoint, EndpointError, parse_endpoints, parse_protocol_map

DEFAULT_NODE_ID: Final = 1
DEFAULT_LISTENER: Final = "PLAINTEXT://127.0.0.1:9092"
SERVED_PROTOCOLS: Final = frozenset({"PLAINTEXT"})
_COMBINED_ROLES: Final[Mapping[str, str]] = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
}
_META_ADDRESSES: Final = frozenset({"0.0.0.0", "::"})


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """`given` is text as the user wrote it (plus the stand-ins above); `values` is every broker config, typed."""

    given: Mapping[str, str]
    values: Mapping[str, Any]
    listeners: tuple[Endpoint, ...]
    advertised: tuple[Endpoint, ...]
    log_dirs: tuple[str, ...]
    node_id: int | None = None
    """None: not said; take it from meta.properties, or the default."""
    metadata_fsync: bool = True
    """False only where nobody would miss the data (embedded brokers in a temporary directory)."""

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


def read_properties_file(path: str) -> dict[str, str]:
    """server.properties. Raises ConfigError when it cannot be read."""
    try:
        return parse_properties(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"The configuration file {path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise ConfigError(f"The configuration file {path} is not a properties file: {error}") from error


def parse_assignments(assignments: list[str]) -> dict[str, str]:
    """`-c key=value` arguments."""
    found: dict[str, str] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"{assignment!r} is not a setting: write -c name=value, for example -c num.partitions=3")
        found[name.strip()] = value.strip()
    return found


def build_config(
    given: Mapping[str, str],
    *,
    data_dir: str | None = None,
    listener: str | None = None,
    metadata_fsync: bool = True,
) -> NodeConfig:
    """Check everything and make the typed config. Raises ConfigError (with what to do) for whatever cannot work."""
    texts = {**_COMBINED_ROLES, **development_defaults(given, 1)}
    if data_dir is not None:
        texts["log.dirs"] = data_dir
    if listener is not None:
        texts["listeners"] = listener
    texts.setdefault("listeners", DEFAULT_LISTENER)
    if "node.id" in texts or "broker.id" in texts:  # two names of one setting, in Kafka too
        texts.setdefault("broker.id", texts.get("node.id", ""))
        texts.setdefault("node.id", texts["broker.id"])
    _check_roles(texts)
    parsed_from = {name: text for name, text in texts.items() if name in BROKER_CONFIGS}
    parsed_from.setdefault("node.id", texts.get("broker.id", str(DEFAULT_NODE_ID)))
    values = BROKER_CONFIGS.parse_all(parsed_from)
    log_dirs = _log_dirs(texts)
    listeners, advertised = _listeners(texts)
    node_id = texts.get("node.id", texts.get("broker.id"))
    return NodeConfig(
        given=texts,
        values=values,
        listeners=listeners,
        advertised=advertised,
        log_dirs=log_dirs,
        node_id=int(node_id) if node_id is not None and int(node_id) >= 0 else None,
        metadata_fsync=metadata_fsync,
    )


def unknown_names(given: Mapping[str, str]) -> list[str]:
    """Settings that no table knows: perhaps misspelt, perhaps a plug-in's. Kafka ignores them; we say so."""
    return sorted(name for name in given if name not in BROKER_CONFIGS and name not in TOPIC_CONFIGS)


def _check_roles(texts: Mapping[str, str]) -> None:
    roles = {role.strip() for role in texts["process.roles"].split(",") if role.strip()}
    if roles != {"broker", "controller"}:
        raise ConfigError(
            f"process.roles={texts['process.roles']}: this version runs broker and controller in one process; "
            "set process.roles=broker,controller or leave it out."
        )
    voters = [voter for voter in texts.get("controller.quorum.voters", "").split(",") if voter.strip()]
    if len(voters) > 1:
        raise ConfigError(
            f"controller.quorum.voters names {len(voters)} voters: this version runs a quorum of one. "
            "Name only this node, or leave the setting out."
        )


def _log_dirs(texts: Mapping[str, str]) -> tuple[str, ...]:
    text = texts.get("log.dirs") or texts.get("log.dir") or ""
    paths = tuple(dict.fromkeys(str(Path(part.strip()).absolute()) for part in text.split(",") if part.strip()))
    if not paths:
        raise ConfigError("No data directory: give --data-dir DIR, or set log.dirs in server.properties.")
    return paths


def _listeners(texts: Mapping[str, str]) -> tuple[tuple[Endpoint, ...], tuple[Endpoint, ...]]:
    """The listeners clients use, and what they are told. Controller listeners are left out: a quorum of one needs
    none.
    """
    controllers = {
        name.strip().upper() for name in texts.get("controller.listener.names", "").split(",") if name.strip()
    }
    try:
        protocols = {
            **dict.fromkeys(controllers, "PLAINTEXT"),
            **parse_protocol_map(texts.get("listener.security.protocol.map", "")),
        }
        listeners = tuple(e for e in parse_endpoints(texts["listeners"], protocols) if e.name not in controllers)
        advertised = parse_endpoints(texts.get("advertised.listeners") or "", protocols)
    except EndpointError as error:
        raise ConfigError(str(error)) from error
    if not listeners:
        raise ConfigError("listeners names no listener for clients: add one, for example PLAINTEXT://127.0.0.1:9092")
    for endpoint in listeners:
        if endpoint.security_protocol not in SERVED_PROTOCOLS:
            raise ConfigError(f"{endpoint}: {endpoint.security_protocol} is not served yet; use PLAINTEXT.")
    told = {endpoint.name: endpoint for endpoint in advertised}
    for name in told.keys() - {endpoint.name for endpoint in listeners}:
        raise ConfigError(f"advertised.listeners names {name}, which is not one of the listeners.")
    for endpoint in advertised:
        if endpoint.host in _META_ADDRESSES:
            raise ConfigError(
                f"advertised.listeners cannot use {endpoint.host}: clients are told to connect there. "
                "Write the name or address by which clients reach this host."
            )
    return listeners, tuple(told.get(endpoint.name, endpoint) for endpoint in listeners)
