"""Machine: the changes that a sequence of metadata records makes to topics and partitions."""

from __future__ import annotations

from uuid import UUID

from msgspec.structs import replace

from barnabas.core.ids import TopicId
from barnabas.server.metadata.errors import MetadataError
from barnabas.server.metadata.image.topics import MIGRATING_DIRECTORY, PartitionImage, TopicImage, TopicsImage
from barnabas.server.metadata.records.topics import ClearElrRecord, PartitionChangeRecord, PartitionRecord, TopicRecord

NO_LEADER_CHANGE = -2
_NO_RECOVERY_CHANGE = -1


class TopicDelta:
    """One changed topic: its previous state (`before`, None for a new topic) and its new and changed partitions."""

    __slots__ = ("before", "name", "partition_changes", "topic_id")

    def __init__(self, name: str, topic_id: TopicId, before: TopicImage | None) -> None:
        self.name = name
        self.topic_id = topic_id
        self.before = before
        self.partition_changes: dict[int, PartitionImage] = {}

    @property
    def is_new(self) -> bool:
        return self.before is None

    def partition(self, index: int) -> PartitionImage | None:
        changed = self.partition_changes.get(index)
        if changed is not None or self.before is None:
            return changed
        return self.before.partition(index)

    def finish(self) -> TopicImage:
        """Build the new topic. Raises MetadataError if the partition numbers do not start at 0 or have a gap."""
        partitions = list(self.before.partitions) if self.before is not None else []
        for index, partition in sorted(self.partition_changes.items()):
            if index < len(partitions):
                partitions[index] = partition
            elif index == len(partitions):
                partitions.append(partition)
            else:
                raise MetadataError(
                    f"Topic {self.name} has a partition {index} but no partition {len(partitions)} in the metadata log."
                )
        return TopicImage(self.name, self.topic_id, tuple(partitions))


class TopicsDelta:
    """Changes of topics, by topic id: `changed` has new and changed topics, `deleted` has deleted topics."""

    __slots__ = ("_before", "changed", "deleted")

    def __init__(self, before: TopicsImage) -> None:
        self._before = before
        self.changed: dict[TopicId, TopicDelta] = {}
        self.deleted: dict[TopicId, TopicImage] = {}

    def __bool__(self) -> bool:
        return bool(self.changed or self.deleted)

    @property
    def created(self) -> list[TopicDelta]:
        return [topic for topic in self.changed.values() if topic.is_new]

    def create(self, record: TopicRecord) -> None:
        self.changed[record.topic_id] = TopicDelta(record.name, record.topic_id, None)

    def add_partition(self, record: PartitionRecord) -> None:
        self._topic(record.topic_id).partition_changes[record.partition_id] = partition_from_record(record)

    def change_partition(self, record: PartitionChangeRecord) -> None:
        topic = self._topic(record.topic_id)
        partition = topic.partition(record.partition_id)
        if partition is None:
            raise MetadataError(
                f"A record changes partition {record.partition_id} of topic {topic.name}, which has no such partition."
            )
        topic.partition_changes[record.partition_id] = merge_partition(partition, record)

    def remove(self, topic_id: TopicId) -> str:
        """Delete a topic. Returns its name."""
        image = self._before.get_by_id(topic_id)
        changed = self.changed.pop(topic_id, None)
        if image is not None and topic_id not in self.deleted:
            self.deleted[topic_id] = image
            return image.name
        if changed is not None:
            return changed.name
        raise MetadataError(f"A record removes topic id {topic_id}, which does not exist.")

    def clear_elr(self, record: ClearElrRecord) -> None:
        for image in self._now():
            if record.topic_name not in ("", image.name):
                continue
            for index, partition in enumerate(image.partitions):
                if partition.elr or partition.last_known_elr:
                    self._topic(image.topic_id).partition_changes[index] = replace(
                        partition, elr=(), last_known_elr=(), partition_epoch=partition.partition_epoch + 1
                    )

    def finish(self) -> TopicsImage:
        if not self:
            return self._before
        images = [topic.finish() for topic in self.changed.values()]
        names = {image.name: image for image in images}
        ids = {image.topic_id: image for image in images}
        return TopicsImage(
            self._before.by_name.evolve(names, [gone.name for gone in self.deleted.values()]),
            self._before.by_id.evolve(ids, self.deleted),
        )

    @staticmethod
    def between(before: TopicsImage, after: TopicsImage) -> TopicsDelta:
        """The delta between two images of topics."""
        delta = TopicsDelta(before)
        for topic in after:
            old = before.get_by_id(topic.topic_id)
            if old is topic or old == topic:
                continue
            changed = TopicDelta(topic.name, topic.topic_id, old)
            for index, partition in enumerate(topic.partitions):
                if old is None or old.partition(index) != partition:
                    changed.partition_changes[index] = partition
            delta.changed[topic.topic_id] = changed
        for topic in before:
            if after.get_by_id(topic.topic_id) is None:
                delta.deleted[topic.topic_id] = topic
        return delta

    def _topic(self, topic_id: TopicId) -> TopicDelta:
        changed = self.changed.get(topic_id)
        if changed is not None:
            return changed
        image = self._before.get_by_id(topic_id)
        if image is None or topic_id in self.deleted:
            raise MetadataError(f"A metadata record refers to topic id {topic_id}, which does not exist.")
        changed = self.changed[topic_id] = TopicDelta(image.name, topic_id, image)
        return changed

    def _now(self) -> list[TopicImage]:
        return list(self.finish())


def partition_from_record(record: PartitionRecord) -> PartitionImage:
    """Build a partition from its record. Equal tuples are shared, which halves the memory of a large cluster."""
    replicas = tuple(record.replicas)
    isr = tuple(record.isr)
    return PartitionImage(
        replicas=replicas,
        isr=replicas if isr == replicas else isr,
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        leader_recovery_state=record.leader_recovery_state,
        removing_replicas=tuple(record.removing_replicas),
        adding_replicas=tuple(record.adding_replicas),
        elr=tuple(record.eligible_leader_replicas or ()),
        last_known_elr=tuple(record.last_known_elr or ()),
        directories=_directories(record.directories, len(replicas)),
    )


def merge_partition(partition: PartitionImage, record: PartitionChangeRecord) -> PartitionImage:
    """The partition after a change record (`PartitionRegistration.merge`). A record with a leader begins a new leader
    epoch, even if the leader is the present one."""

    def pick(changed: list[int] | None, present: tuple[int, ...]) -> tuple[int, ...]:
        return present if changed is None else tuple(changed)

    replicas = pick(record.replicas, partition.replicas)
    isr = pick(record.isr, partition.isr)
    leader_changes = record.leader != NO_LEADER_CHANGE
    recovery = record.leader_recovery_state
    return PartitionImage(
        replicas=replicas,
        isr=replicas if isr == replicas else isr,
        leader=record.leader if leader_changes else partition.leader,
        leader_epoch=partition.leader_epoch + leader_changes,
        partition_epoch=partition.partition_epoch + 1,
        leader_recovery_state=partition.leader_recovery_state if recovery == _NO_RECOVERY_CHANGE else recovery,
        removing_replicas=pick(record.removing_replicas, partition.removing_replicas),
        adding_replicas=pick(record.adding_replicas, partition.adding_replicas),
        elr=pick(record.eligible_leader_replicas, partition.elr),
        last_known_elr=pick(record.last_known_elr, partition.last_known_elr),
        directories=_directories(record.directories or partition.directories, len(replicas)),
    )


def _directories(given: list[UUID] | tuple[UUID, ...], replicas: int) -> tuple[UUID, ...]:
    return tuple(given) if given else (MIGRATING_DIRECTORY,) * replicas
