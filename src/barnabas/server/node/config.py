"""Value: a node's static configuration: server.properties, `-c key=value`, and defaults for small clusters.

Names, types and defaults are Kafka's (`server/metadata/configs`). If Kafka's default cannot work on a small cluster
(three replicas of the internal topics), `development_defaults` replaces it; a value set by the user is never replaced.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, field

from barnabas.core.config import ConfigError
from barnabas.core.properties import parse_properties
from barnabas.core.reprs import repr_without
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.server.metadata.config_relations import check_relations
from barnabas.server.metadata.config_view import development_defaults
from barnabas.server.metadata.configs.tables import BROKER_CONFIGS, TOPIC_CONFIGS
from barnabas.server.node.setup.listeners import controller_listener, inter_broker_listener, read_listeners
from barnabas.server.node.setup.topology import Topology, read_topology

DEFAULT_NODE_ID: Final = 1
DEFAULT_LISTENER: Final = "PLAINTEXT://127.0.0.1:9092"
COMBINED_ROLES: Final[Mapping[str, str]] = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
}
AUTHORIZER_CONFIGS: Final[Mapping[str, str]] = {
    "super.users": "The principals that may do everything, separated by semicolons: User:admin;User:CN=node,O=example.",
    "allow.everyone.if.no.acl.found": "true: everyone may use a resource that has no ACL; false, the default: nobody.",
}
"""The configs of StandardAuthorizer. As in Kafka they are no broker configs: the authorizer reads their texts."""
READ_AS_TEXTS: Final = (
    "barnabas.metrics.ssl.", "barnabas.metrics.authentication.", "schema.registry.", "config.providers.",
    "rsm.config.", "rlmm.config.",
)  # fmt: skip
"""The beginnings of the settings of the HTTP servers in the process of a node, of its config providers, and of tiered
storage, which read their texts."""
_MANY: Final = 3
"""The assumed number of brokers if the configuration does not determine it."""


class NodeConfig(Struct, frozen=True):
    """The static configuration of one node. `given` has the texts that the user set, and the development defaults;
    `values` has the value of every broker config, in its type."""

    given: Mapping[str, str]
    values: Mapping[str, Any]
    listeners: tuple[ListenerEndpoint, ...]
    """The listeners for clients and brokers; empty without the role broker."""
    advertised: tuple[ListenerEndpoint, ...]
    log_dirs: tuple[str, ...]
    controller_listeners: tuple[ListenerEndpoint, ...] = ()
    """The listeners for controllers and brokers; a cluster of one node needs none."""
    controller_advertised: tuple[ListenerEndpoint, ...] = ()
    inter_broker_listener: str = "PLAINTEXT"
    controller_listener: tuple[str, str] = ("", "PLAINTEXT")
    """The name and the security protocol of the listener at which this node connects to controllers."""
    topology: Topology = field(default_factory=Topology)
    node_id: int | None = None
    """The configured node id; None to take it from meta.properties, or the default."""
    first_users: tuple[str, ...] = ()
    """The SCRAM credentials of users that a new cluster has from its start, as `--add-scram` writes them."""
    metadata_fsync: bool = True
    """False only if the data may be lost, as for embedded brokers in a temporary directory."""

    __repr__ = repr_without("given", "values", "first_users")

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


def read_properties_file(path: str) -> dict[str, str]:
    """Read a properties file. Raises ConfigError if the file cannot be read or parsed."""
    from pathlib import Path  # imported here because it imports urllib and ipaddress, 0.6 MB

    try:
        return parse_properties(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"The configuration file {path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise ConfigError(f"The configuration file {path} is not a properties file: {error}") from error


def parse_assignments(assignments: list[str]) -> dict[str, str]:
    """Parse `-c key=value` arguments. Raises ConfigError."""
    found: dict[str, str] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"{assignment!r} must have the form name=value, for example -c num.partitions=3")
        found[name.strip()] = value.strip()
    return found


def build_config(
    given: Mapping[str, str],
    *,
    data_dir: str | None = None,
    listener: str | None = None,
    metadata_fsync: bool = True,
    first_users: Sequence[str] = (),
) -> NodeConfig:
    """Check and parse the configuration. Raises ConfigError for an invalid configuration; the message has the fix."""
    texts = {**COMBINED_ROLES, **given}
    if data_dir is not None:
        texts["log.dirs"] = data_dir
    if listener is not None:
        texts["listeners"] = listener
    if "node.id" in texts or "broker.id" in texts:  # two names of the same config, as in Kafka
        texts.setdefault("broker.id", texts.get("node.id", ""))
        texts.setdefault("node.id", texts["broker.id"])
    former_key = texts.pop("delegation.token.master.key", None)  # the name before Kafka 4.0
    if former_key is not None:
        texts.setdefault("delegation.token.secret.key", former_key)
    node_id = _node_id(texts)
    topology = read_topology(texts, node_id)
    texts.setdefault("listeners", DEFAULT_LISTENER)
    texts = development_defaults(texts, 1 if topology.decides_alone else len(topology.voters) or _MANY)
    parsed_from = {name: text for name, text in texts.items() if name in BROKER_CONFIGS}
    parsed_from.setdefault("node.id", texts.get("broker.id", str(DEFAULT_NODE_ID)))
    values = BROKER_CONFIGS.parse_all(parsed_from)
    check_relations(values)
    if first_users:
        from barnabas.protocol.security.scram_arguments import parse_scram

        for text in first_users:
            parse_scram(text)
    log_dirs = _log_dirs(texts)
    if values["remote.log.storage.system.enable"] and len(log_dirs) > 1:
        raise ConfigError(
            "remote.log.storage.system.enable=true needs a single directory in log.dirs: as in Kafka, tiered logs "
            "cannot be moved between directories."
        )
    clients, controllers = read_listeners(texts, topology)
    return NodeConfig(
        given=texts,
        values=values,
        listeners=clients.bound,
        advertised=clients.advertised,
        log_dirs=log_dirs,
        controller_listeners=controllers.bound,
        controller_advertised=controllers.advertised,
        controller_listener=controller_listener(texts, topology),
        inter_broker_listener=inter_broker_listener(texts, clients) if topology.is_broker else "",
        topology=topology,
        node_id=node_id,
        metadata_fsync=metadata_fsync,
        first_users=tuple(first_users),
    )


def _node_id(texts: Mapping[str, str]) -> int | None:
    """The configured node id; None if it is not set or -1."""
    text = texts.get("node.id", "").strip()
    try:
        return int(text) if text and int(text) >= 0 else None
    except ValueError:
        raise ConfigError(f"node.id={text}: the value must be an integer of 0 or more.") from None


def unknown_names(given: Mapping[str, str]) -> list[str]:
    """Names that are in no config table: misspelt, or of a plug-in. Kafka ignores them; `serve` logs a warning."""
    known = {*TOPIC_CONFIGS.keys, *AUTHORIZER_CONFIGS}
    return sorted(
        name
        for name in given
        if _without_prefixes(name) not in BROKER_CONFIGS and name not in known and not name.startswith(READ_AS_TEXTS)
    )


def _without_prefixes(name: str) -> str:
    """The config `K` of `listener.name.<listener>.K` and `listener.name.<listener>.<mechanism>.K`."""
    if not name.startswith("listener.name."):
        return name
    rest = name.split(".", 3)[-1]
    return rest if rest in BROKER_CONFIGS else rest.partition(".")[2]


def _log_dirs(texts: Mapping[str, str]) -> tuple[str, ...]:
    text = texts.get("log.dirs") or texts.get("log.dir") or ""
    paths = tuple(dict.fromkeys(_absolute(part.strip()) for part in text.split(",") if part.strip()))
    if not paths:
        raise ConfigError("No data directory is configured. Use --data-dir DIR, or set log.dirs in server.properties.")
    return paths


def _absolute(path: str) -> str:
    """The absolute path without empty and `.` parts. `..` is kept, because the part before it may be a link."""
    parts = os.path.join(os.getcwd(), path).split("/")  # noqa: PTH109, PTH118 - pathlib costs 0.6 MB
    return "/" + "/".join(part for part in parts if part not in ("", "."))
