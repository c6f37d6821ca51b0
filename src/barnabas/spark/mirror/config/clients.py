"""Codec: the settings of the clients of a pair's clusters, from the keys of the file.

A setting can be given at several places. Later ones win:

    security.protocol                       all clients
    A.security.protocol                     the clients of a cluster
    A->B.consumer.fetch.min.bytes           the consumers of a pair
    A.consumer.fetch.min.bytes              the consumers of a cluster
    A->B.source.consumer.fetch.min.bytes    the consumers of a pair's source cluster; .target. for its target

This is the order of Kafka's `MirrorMakerConfig` and `MirrorConnectorConfig`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.client.config import ADMIN_CONFIGS, check_names
from barnabas.core.config import ConfigError
from barnabas.spark.mirror.config.keys import PAIR_KEYS, UNUSED_WORKER_PREFIXES, WORKER_KEYS
from barnabas.spark.mirror.config.values import Clients
from barnabas.spark.mirror.errors import MirrorConfigError

_ROLES: Final = ("admin.", "consumer.", "producer.")
CLIENT_PREFIXES: Final = _ROLES
PAIR_CLIENT_PREFIXES: Final = (
    *_ROLES,
    "source.",
    "target.",
    "offset-syncs.source.",
    "offset-syncs.target.",
)
"""How the keys of a pair begin that are settings of its clients."""
_OVERRIDE: Final = "override."
"""Connect's prefix for the settings of the producer that a connector's records are written with."""
_OWN_CONSUMER: Final = ("group.id", "enable.auto.commit")
"""Settings that mirroring decides itself, as Kafka's connectors do."""


def source_clients(texts: Mapping[str, str], source: str, target: str) -> Clients:
    """The clients of the source cluster. Raises MirrorConfigError for a setting that no client has."""
    return _clients(texts, source, f"{source}->{target}.", "source.")


def target_clients(texts: Mapping[str, str], source: str, target: str) -> Clients:
    """The clients of the target cluster. Raises MirrorConfigError."""
    return _clients(texts, target, f"{source}->{target}.", "target.")


def _clients(texts: Mapping[str, str], alias: str, pair: str, side: str) -> Clients:
    shared = {name: text for name, text in texts.items() if name in ADMIN_CONFIGS}
    own = {name: text for name, text in _below(texts, f"{alias}.").items() if not _is_other(name)}
    own |= {name: text for name, text in _below(texts, f"{pair}{side}cluster.").items() if name != "alias"}
    _check(own, f"{alias}.")
    found = {}
    for role in _ROLES:
        layers = [_below(texts, prefix) for prefix in (pair + role, f"{alias}.{role}", f"{pair}{side}{role}")]
        layers[0] = {
            name: text
            for name, text in layers[0].items()
            if not name.startswith(_OVERRIDE) and role + name not in PAIR_KEYS
        }
        if side == "target." and role == "producer.":
            layers.append(_below(texts, f"{pair}{role}{_OVERRIDE}"))
        for layer in layers:
            _check(layer, f"{alias}.{role}")
        settings = dict(shared) | own
        for layer in layers:
            settings |= layer
        found[role] = {name: text for name, text in settings.items() if name not in _OWN_CONSUMER}
    return Clients(found["admin."], found["consumer."], found["producer."])


def _is_other(name: str) -> bool:
    """Whether a key of a cluster is not a setting of all its clients."""
    return name in WORKER_KEYS or name.startswith((*_ROLES, *UNUSED_WORKER_PREFIXES))


def _check(settings: Mapping[str, str], prefix: str) -> None:
    try:
        check_names(settings, prefix=prefix)
    except ConfigError as error:
        raise MirrorConfigError(str(error)) from error


def _below(texts: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name[len(prefix) :]: text for name, text in texts.items() if name.startswith(prefix)}
