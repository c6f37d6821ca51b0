"""Codec: the topic id in the metadata string of a committed offset, for brokers that store no topic ids with offsets.

A topic that is deleted and created again has another id, so that a commit of the old topic, for example one that was
under way during the deletion, is recognized and does not become the position in the new topic. The mark names the
cluster, too, because tools copy metadata strings to other clusters (MirrorMaker), where topics have other ids.

    ""                  ->  "[topic 5Yj0yG9sQd2r5c0M1Qp1Lw of cluster MkU3OEVBNTcwNTJENDM2Qg]"
    "my own text"       ->  "my own text"       a string of the user is stored unchanged, without a mark
    "x[topic 5... of]"  ->  "x[topic 5... of][topic 5... of cluster Mk...]"     unless it ends like a mark itself

Reading removes one mark, so every string comes back as it was given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final
from uuid import UUID

from barnabas.client.cluster.metadata import MetadataCache
from barnabas.client.values import OffsetAndMetadata
from barnabas.core.ids import NO_TOPIC_ID, TopicPartition, uuid_from_text, uuid_to_text

_MARK: Final = re.compile(r"\[topic ([A-Za-z0-9_-]{22}) of cluster ([^\[\]\n]*)\]\Z")
_CLUSTER_ID: Final = re.compile(r"[^\[\]\n]+")


def add_mark(metadata: str, topic_id: UUID, cluster_id: str | None) -> str:
    """The metadata string to store. `topic_id` is NO_TOPIC_ID, and `cluster_id` is None, if they are unknown."""
    cluster = cluster_id if cluster_id is not None and _CLUSTER_ID.fullmatch(cluster_id) else ""
    wants_mark = not metadata and topic_id != NO_TOPIC_ID and cluster
    if not wants_mark and not has_mark(metadata):
        return metadata
    return f"{metadata}[topic {uuid_to_text(topic_id)} of cluster {cluster}]"


def read_mark(metadata: str, cluster_id: str | None) -> tuple[str, UUID]:
    """The metadata string as it was given to `add_mark`, and the topic id; NO_TOPIC_ID if the string has no mark, or if
    the mark is that of another cluster."""
    found = _MARK.search(metadata)
    if found is None:
        return metadata, NO_TOPIC_ID
    topic_id = uuid_from_text(found[1]) if found[2] and found[2] == cluster_id else NO_TOPIC_ID
    return metadata[: found.start()], topic_id


def has_mark(metadata: str) -> bool:
    return _MARK.search(metadata) is not None


def with_marks(
    offsets: Mapping[TopicPartition, OffsetAndMetadata], cluster: MetadataCache
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The offsets as they are stored."""
    if not cluster.marks_commits:
        return dict(offsets)
    return {
        partition: replace(commit, metadata=add_mark(commit.metadata, commit.topic_id, cluster.cluster_id))
        for partition, commit in offsets.items()
    }


def without_mark(stored: OffsetAndMetadata, cluster: MetadataCache) -> OffsetAndMetadata:
    """The inverse of `with_marks`. `topic_id` is NO_TOPIC_ID without a mark of this cluster."""
    metadata, topic_id = read_mark(stored.metadata, cluster.cluster_id)
    return replace(stored, metadata=metadata, topic_id=topic_id)
