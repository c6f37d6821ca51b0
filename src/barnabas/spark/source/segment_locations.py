"""Shell: runs on the driver: finds the directories from which executors may read closed segments.

A directory counts only if the broker that it belongs to was the leader of the partition after all records of the range
were committed: then the directory has them, and no others below the end of the range. The response of ListOffsets
proves this: it has the leader epoch, and a high watermark at or above the end.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from barnabas.client.admin import AsyncAdmin
from barnabas.client.offsets import list_offsets
from barnabas.client.values import LATEST, IsolationLevel
from barnabas.core.errors import KafkaError
from barnabas.core.ids import NO_LEADER_EPOCH, NO_TOPIC_ID, TopicPartition
from barnabas.spark.connection import LogClient
from barnabas.spark.source.planner import PartitionRange
from barnabas.spark.source.segment_plan import SegmentDirectory

log = logging.getLogger("barnabas.spark")

AT_THE_SAME_PATH = "{path}"
"""The `segments.root` of executors that see the data directories at the brokers' own paths."""


@dataclass(frozen=True, slots=True)
class LeaderView:
    """What the cluster says about the leader of a partition."""

    node_id: int
    metadata_epoch: int
    """The leader epoch in the response of Metadata, which has the node id."""
    answer_epoch: int
    """The leader epoch in the response of ListOffsets, which has the high watermark."""
    high_watermark: int
    topic_id: UUID
    path: str | None
    """The leader's data directory; None if it is not known."""


def locate_segments(
    client: LogClient, ranges: Sequence[PartitionRange], root: str | None
) -> dict[TopicPartition, SegmentDirectory]:
    """The directory of each partition whose closed segments executors may read. Logs why a partition has none."""
    template = AT_THE_SAME_PATH if root is None else root
    try:
        cluster_id, views = client.run(_leaders(client, [r.tp for r in ranges], "{path}" in template))
    except KafkaError as error:
        log.warning("readFrom=segments: all records are read from the brokers: %s", error)
        return {}
    found: dict[TopicPartition, SegmentDirectory] = {}
    for wanted in ranges:
        view = views.get(wanted.tp)
        reason = "its leader is not known" if view is None else why_not(view, wanted, template)
        if reason is None and view is not None and cluster_id is not None:
            found[wanted.tp] = directory_of(view, wanted.tp, cluster_id, template)
        else:
            log.warning("readFrom=segments: %s is read from its broker: %s", wanted.tp, reason or "no cluster id")
    return found


def why_not(view: LeaderView, wanted: PartitionRange, template: str) -> str | None:
    """Why the leader's directory must not be used for a range; None if it may be."""
    if view.answer_epoch == NO_LEADER_EPOCH or view.answer_epoch != view.metadata_epoch:
        return "its leader changes, or is of a version that does not return the leader epoch"
    if view.high_watermark < wanted.end:
        return f"its leader's high watermark is {view.high_watermark}, below the end {wanted.end} of the range"
    if view.topic_id == NO_TOPIC_ID:
        return "its topic has no id"
    if view.path is None and "{path}" in template:
        return (
            f"broker {view.node_id} does not say in which data directory it is (DescribeLogDirs); allow DESCRIBE on the"
            " cluster, or give segments.root without {path}"
        )
    return None


def directory_of(view: LeaderView, tp: TopicPartition, cluster_id: str, template: str) -> SegmentDirectory:
    """The leader's directory of a partition, as executors see it."""
    data_directory = template.format(broker=view.node_id, path=view.path or "").rstrip("/")
    path = f"{data_directory}/{tp.topic}-{tp.partition}"
    return SegmentDirectory(path, data_directory, cluster_id, view.node_id, view.topic_id)


async def _leaders(
    client: LogClient, partitions: Sequence[TopicPartition], with_paths: bool
) -> tuple[str | None, dict[TopicPartition, LeaderView]]:
    cluster = client.cluster
    topics = sorted({tp.topic for tp in partitions})
    answers = await list_offsets(cluster, dict.fromkeys(partitions, LATEST), isolation=IsolationLevel.READ_UNCOMMITTED)
    await cluster.refresh(topics)
    views = await cluster.topics(topics)
    leaders = {p.topic_partition: p for view in views.values() for p in view.partitions}
    nodes = sorted({leaders[tp].leader for tp in partitions if tp in leaders and leaders[tp].leader >= 0})
    paths = await _paths(AsyncAdmin(cluster=cluster), nodes) if with_paths else {}
    found: dict[TopicPartition, LeaderView] = {}
    for tp in partitions:
        answer, partition = answers[tp], leaders.get(tp)
        if isinstance(answer, KafkaError) or partition is None or answer.leader_epoch is None:
            continue
        node = partition.leader
        found[tp] = LeaderView(
            node,
            partition.leader_epoch,
            answer.leader_epoch,
            answer.offset,
            views[tp.topic].topic_id,
            paths.get((node, tp)),
        )
    return cluster.metadata.cluster_id, found


async def _paths(admin: AsyncAdmin, nodes: Sequence[int]) -> Mapping[tuple[int, TopicPartition], str]:
    """The data directory of each partition on each of these brokers. Empty if the brokers may not be asked."""
    try:
        brokers = await admin.describe_log_dirs(nodes)
    except KafkaError as error:
        log.warning("readFrom=segments: the data directories of the brokers are not known: %s", error)
        return {}
    return {
        (node, tp): path
        for node, directories in brokers.items()
        for path, directory in directories.items()
        if not isinstance(directory, KafkaError)
        for tp, replica in directory.replicas.items()
        if not replica.is_future
    }
