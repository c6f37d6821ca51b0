"""Codec: the text of MirrorMaker's properties file, parsed -> `MirrorConfig`.

    clusters=A,B
    A.bootstrap.servers=a:9092           a setting of all clients of a cluster
    A.consumer.max.poll.records=100      of its consumers; also .producer., .admin.
    A->B.enabled=true                    a key of one pair
    A->B.source.consumer.client.id=x     a client of one pair; also .target., and .consumer., .producer., .admin.
    topics=orders.*                      a key of all pairs
    security.protocol=SSL                a setting of all clients of all clusters

References `${provider:path:key}` have been resolved before (`ConfigProviders`).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Final

from barnabas.client.config import ADMIN_CONFIGS
from barnabas.spark.mirror.config.clients import CLIENT_PREFIXES, PAIR_CLIENT_PREFIXES, source_clients, target_clients
from barnabas.spark.mirror.config.keys import (
    OLD_NAMES,
    PAIR_KEYS,
    REFUSED_PREFIXES,
    UNUSED_PAIR_KEYS,
    UNUSED_WORKER_PREFIXES,
    WORKER_KEYS,
)
from barnabas.spark.mirror.config.pairs import PairValues, build_pair
from barnabas.spark.mirror.config.values import MirrorConfig, PairConfig
from barnabas.spark.mirror.errors import MirrorConfigError

_TOP_KEYS: Final = ("clusters", "config.providers", "dedicated.mode.enable.internal.rest")
_PASSED: Final = ("spark.", "config.providers.")
_NO_CONNECT: Final = "there are no Connect workers, converters or REST API here"


def parse_mirror_config(properties: Mapping[str, str]) -> MirrorConfig:
    """What the file says. Raises MirrorConfigError."""
    texts = {name: text.strip() for name, text in properties.items()}
    clusters = _clusters(texts)
    unused = _check_names(texts, clusters)
    pairs = [_pair(texts, source, target) for source in clusters for target in clusters if source != target]
    return MirrorConfig(
        clusters,
        [pair for pair in pairs if pair.enabled or pair.heartbeats.enabled],
        unused,
        {name: text for name, text in texts.items() if name.startswith("spark.")},
    )


def _clusters(texts: Mapping[str, str]) -> list[str]:
    clusters = [name.strip() for name in texts.get("clusters", "").split(",") if name.strip()]
    if len(clusters) < 2:
        raise MirrorConfigError("clusters must name at least two clusters, for example clusters=A,B")
    if len(set(clusters)) != len(clusters):
        raise MirrorConfigError(f"clusters={texts['clusters']} names a cluster twice")
    for name in clusters:
        if not texts.get(f"{name}.bootstrap.servers") and not texts.get("bootstrap.servers"):
            raise MirrorConfigError(f"the cluster {name} needs {name}.bootstrap.servers, for example host:9092")
    return clusters


def _pair(texts: Mapping[str, str], source: str, target: str) -> PairConfig:
    values = PairValues(texts, source, target)
    return build_pair(values, source_clients(texts, source, target), target_clients(texts, source, target))


# -- unknown keys ------------------------------------------------------------------------------------------------------


def _check_names(texts: Mapping[str, str], clusters: Sequence[str]) -> list[tuple[str, str]]:
    """The keys without an effect, and why. Raises MirrorConfigError for a key that means nothing."""
    pairs = [f"{source}->{target}." for source in clusters for target in clusters if source != target]
    unused = []
    for name in texts:
        prefix = next((found for found in pairs if name.startswith(found)), None)
        if prefix is None and "->" in name:
            raise MirrorConfigError(f"{name}: {name.partition('.')[0]} is not a pair of the clusters {list(clusters)}")
        if prefix is None:
            prefix = next(
                (f"{alias}." for alias in sorted(clusters, key=len)[::-1] if name.startswith(f"{alias}.")), ""
            )
        reason = _why_unused(prefix, name[len(prefix) :], is_pair="->" in prefix)
        if reason is not None:
            unused.append((name, reason))
    return unused


def _why_unused(prefix: str, key: str, *, is_pair: bool) -> str | None:
    """Why a key has no effect; None if it has one. Raises MirrorConfigError."""
    if key in OLD_NAMES:
        raise MirrorConfigError(f"{prefix}{key} is called {prefix}{OLD_NAMES[key]} since Kafka 3")
    for refused, reason in REFUSED_PREFIXES.items():
        if key == refused or key.startswith(f"{refused}."):
            raise MirrorConfigError(f"{prefix}{key}: {reason}")
    is_cluster = bool(prefix) and not is_pair
    if key in UNUSED_PAIR_KEYS and not is_cluster:
        return UNUSED_PAIR_KEYS[key]
    if (key in PAIR_KEYS and not is_cluster) or key in WORKER_KEYS or (not prefix and key in _TOP_KEYS):
        return None
    if key.startswith(UNUSED_WORKER_PREFIXES):
        return _NO_CONNECT
    if (not prefix and key.startswith(_PASSED)) or key in ADMIN_CONFIGS or key.startswith(CLIENT_PREFIXES):
        return None
    if is_pair and key.startswith(PAIR_CLIENT_PREFIXES):
        return None
    if is_cluster and key in PAIR_KEYS:
        raise MirrorConfigError(f"{prefix}{key} is a key of a pair: write it as {key}, or as A->B.{key}")
    if key.startswith(("ssl.", "sasl.", "security.", "metadata.", "socket.", "retry.", "reconnect.")):
        return None  # the clients check these names
    known = (*PAIR_KEYS, *WORKER_KEYS, *ADMIN_CONFIGS.keys)
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {prefix}{near[0]}?" if near else "docs/MIRRORING.md has all keys"
    raise MirrorConfigError(f"there is no key {prefix}{key}: {hint}")
