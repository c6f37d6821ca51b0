"""Table: the features of the cluster (KIP-584): levels this node supports, and those a new cluster starts with.

Names, levels and dependencies are those of Kafka 4.3's `Feature` and `MetadataVersion`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.server.metadata.image.nodes import FeatureRange
from barnabas.server.metadata.image.small import KRAFT_VERSION, METADATA_VERSION
from barnabas.server.metadata.records.codec import LATEST_METADATA_VERSION, MIN_METADATA_VERSION
from barnabas.server.metadata.records.other import FeatureLevelRecord

GROUP_VERSION: Final = "group.version"
TRANSACTION_VERSION: Final = "transaction.version"
SHARE_VERSION: Final = "share.version"
STREAMS_VERSION: Final = "streams.version"
ELR_VERSION: Final = "eligible.leader.replicas.version"

SUPPORTED_FEATURES: Final[Mapping[str, FeatureRange]] = {
    METADATA_VERSION: FeatureRange(MIN_METADATA_VERSION, LATEST_METADATA_VERSION),
    KRAFT_VERSION: FeatureRange(0, 1),
    GROUP_VERSION: FeatureRange(0, 1),
    TRANSACTION_VERSION: FeatureRange(0, 2),
    SHARE_VERSION: FeatureRange(0, 1),
    STREAMS_VERSION: FeatureRange(0, 1),
    ELR_VERSION: FeatureRange(0, 1),
}

DEFAULT_LEVELS: Final[Mapping[str, int]] = {
    METADATA_VERSION: LATEST_METADATA_VERSION,
    GROUP_VERSION: 1,
    TRANSACTION_VERSION: 2,
    SHARE_VERSION: 1,
    ELR_VERSION: 1,
}
"""The feature levels of a new cluster. Streams groups are not supported yet, so that their feature starts at level
0."""

DEPENDENCIES: Final[Mapping[tuple[str, int], Mapping[str, int]]] = {(ELR_VERSION, 1): {METADATA_VERSION: 23}}
"""(feature, level) -> the lowest levels of other features that this level requires."""

INTRODUCED_AT: Final[Mapping[str, Mapping[int, int]]] = {
    GROUP_VERSION: {1: 22},
    TRANSACTION_VERSION: {2: 24},
    ELR_VERSION: {1: 26},
    SHARE_VERSION: {1: 28},
}
"""Feature -> level -> the first `metadata.version` with which a new cluster has this level (Kafka's FeatureVersion)."""

METADATA_VERSION_NAMES: Final[Mapping[int, str]] = {
    7: "3.3-IV3",
    8: "3.4-IV0",
    9: "3.5-IV0",
    10: "3.5-IV1",
    11: "3.5-IV2",
    12: "3.6-IV0",
    13: "3.6-IV1",
    14: "3.6-IV2",
    15: "3.7-IV0",
    16: "3.7-IV1",
    17: "3.7-IV2",
    18: "3.7-IV3",
    19: "3.7-IV4",
    20: "3.8-IV0",
    21: "3.9-IV0",
    22: "4.0-IV0",
    23: "4.0-IV1",
    24: "4.0-IV2",
    25: "4.0-IV3",
    26: "4.1-IV0",
    27: "4.1-IV1",
    28: "4.2-IV0",
    29: "4.2-IV1",
    30: "4.3-IV0",
}

CONTROLLER_REGISTRATION_LEVEL: Final = 15
"""3.7-IV0: the first level at which controllers register (KIP-919)."""

CORDONED_DIRECTORIES_LEVEL: Final = 30
"""4.3-IV0: the first level whose records have cordoned log directories (KIP-1066)."""

METADATA_CHANGED_AT: Final = frozenset({8, 11, 13, 14, 15, 17, 23, 30})
"""The levels that changed the format of metadata records. A downgrade below one of them may lose metadata."""


def levels_of_release(release: str) -> dict[str, int]:
    """The levels of all features that a new cluster of a release has; features at level 0 are left out. `release` is
    `4.3`, or a name in METADATA_VERSION_NAMES. Raises ValueError."""
    known = [
        level for level, name in METADATA_VERSION_NAMES.items() if name == release or name.startswith(f"{release}-IV")
    ]
    if not known:
        releases = dict.fromkeys(name.partition("-")[0] for name in METADATA_VERSION_NAMES.values())
        raise ValueError(f"{release} is not a known release. The releases are {', '.join(releases)}.")
    levels = {METADATA_VERSION: max(known)}
    for feature, introduced in INTRODUCED_AT.items():
        if reached := [level for level, since in introduced.items() if since <= levels[METADATA_VERSION]]:
            levels[feature] = max(reached)
    return levels


def bootstrap_records(levels: Mapping[str, int] = DEFAULT_LEVELS) -> list[FeatureLevelRecord]:
    """The first records of a new cluster's metadata log, `metadata.version` first."""
    ordered = sorted(levels.items(), key=lambda item: (item[0] != METADATA_VERSION, item[0]))
    return [FeatureLevelRecord(name=name, feature_level=level) for name, level in ordered if level > 0]


def unsupported_levels(levels: Mapping[str, int], ranges: Mapping[str, FeatureRange]) -> list[str]:
    """One text for each finalized level in `levels` that a node with these `ranges` does not support, by feature."""
    found = []
    for feature, level in sorted(levels.items()):
        supported = ranges.get(feature)
        if supported is None:
            found.append(f"{feature} {level_name(feature, level)}, which the node does not know")
        elif level not in supported:
            low, high = level_name(feature, supported.min_level), level_name(feature, supported.max_level)
            found.append(f"{feature} {level_name(feature, level)}, of which the node supports {low} to {high}")
    return found


def level_name(feature: str, level: int) -> str:
    """A level as administrators write it: `3.9-IV0` for level 21 of metadata.version, otherwise the number."""
    name = METADATA_VERSION_NAMES.get(level) if feature == METADATA_VERSION else None
    return str(level) if name is None else name
