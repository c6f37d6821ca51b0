"""Shell: all partitions that this broker hosts, and their log directories.

`Partitions` subscribes to cluster images, and creates, deletes and reconfigures logs accordingly. A log that exists on
disk at the start is opened only when the first image assigns its partition to this broker
(`directories/replica_directories.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from barnabas.core.clock import Clock
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicId, TopicPartition
from barnabas.core.rng import Rng, random_uuid
from barnabas.core.telemetry import get_logger
from barnabas.server.metadata.errors import MetadataError
from barnabas.server.metadata.image.cluster import ClusterImage, PartitionImage, ResourceType, TopicImage, TopicsImage
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.replication.context import ReplicationContext
from barnabas.server.replication.directories.found_logs import Steps
from barnabas.server.replication.directories.replica_directories import ReplicaDirectories
from barnabas.server.replication.directories.views import DirectoryReplica, DirectoryView, view_of
from barnabas.server.replication.partition import Partition, PartitionListener
from barnabas.server.storage.config import LogConfig
from barnabas.server.storage.directory.log_dir import LogDir
from barnabas.server.storage.errors import StorageError
from barnabas.server.storage.log import Log

log = get_logger("barnabas.server.replication")


class LeadershipListener(Protocol):
    """Port: a component that is notified when this broker becomes or stops being the leader of a partition."""

    def on_elected(self, partition: TopicPartition, leader_epoch: int) -> None:
        """This broker leads the partition in a new leader epoch."""
        ...

    def on_resigned(self, partition: TopicPartition, leader_epoch: int | None) -> None:
        """This broker no longer leads the partition; `leader_epoch` is None if the partition was removed."""
        ...


class ReplicaCopy(NamedTuple):
    """A replica that is being moved to another log directory."""

    partition: Partition
    target: LogDir
    original: Log
    copy: Log


class Mover(Protocol):
    """Port: the component that moves replicas between log directories (`directories/mover.py`)."""

    def resume(self, partition: Partition, target: LogDir) -> None:
        """Continue a move to `target` that the end of the previous process interrupted."""

    def on_dropped(self, partition: Partition) -> None:
        """The partition is removed from this broker. Called before its log is deleted."""

    def on_directory_failed(self, directory: LogDir) -> None:
        """The directory went offline. Called before its partitions are notified."""
        ...

    def copies(self) -> Iterable[ReplicaCopy]:
        """The moves in progress."""
        ...


LogConfigOf = Callable[[ClusterImage, str], LogConfig]
"""Returns the log config of a topic that is in effect in an image."""


class Partitions:
    """The lookup and the lifecycle of the hosted partitions."""

    def __init__(
        self,
        context: ReplicationContext,
        listener: PartitionListener,
        log_dirs: Sequence[LogDir],
        log_config: LogConfigOf,
        clock: Clock,
        rng: Rng,
        missing_dirs: Sequence[str],
        mover: Callable[[], Mover],
    ) -> None:
        """`listener` is notified by every partition; `missing_dirs` are the paths of log.dirs that could not be
        opened. `mover` returns what moves replicas between directories, which is built after this object."""
        self._node_id = context.node_id
        self.context = context
        self._listener = listener
        self.replica_directories = ReplicaDirectories(log_dirs, missing_dirs, clock, rng)
        self._dirs = self.replica_directories.directories
        self._log_config = log_config
        self._clock = clock
        self._rng = rng
        self._by_name: dict[tuple[str, int], Partition] = {}
        self._names: dict[TopicId, str] = {}
        self._topics = TopicsImage()
        """All topics of the newest image, with or without a replica on this broker."""
        self._dir_of: dict[tuple[str, int], LogDir] = {}
        self.planned_directories: dict[tuple[str, int], LogDir] = {}
        """The target directories of moves that are about to finish; the controller must know them before the end."""
        self._mover = mover
        self._listeners: list[LeadershipListener] = []
        self._unopened: dict[tuple[str, int], tuple[TopicId, LogConfig, UUID]] = {}
        """Partitions whose log could not be opened or created, although its directory is online."""
        self._first_image = True
        self._renamed: list[LogDir] = []
        """The directories with dropped logs whose new names are not durable yet."""

    # ---- lookup

    def get(self, topic: str, partition: int) -> Partition | None:
        return self._by_name.get((topic, partition))

    def topic_name(self, topic_id: TopicId) -> str | None:
        """The name of a topic in the newest image, or None. The topic need not have a replica on this broker."""
        return self._names.get(topic_id)

    def require(self, topic: str, partition: int) -> Partition:
        """Return a partition that this broker hosts.

        Raises KafkaError NOT_LEADER_OR_FOLLOWER for a partition of which other brokers have the replicas: the client
        must find them in new metadata. Raises UNKNOWN_TOPIC_OR_PARTITION for a partition that the newest image does not
        have. (Kafka's `ReplicaManager.getPartitionOrError` does the same.)
        """
        found = self._by_name.get((topic, partition))
        if found is None:
            raise KafkaError(self._reason_of_absence(topic, partition))
        return found

    def _reason_of_absence(self, topic: str, partition: int) -> ErrorCode:
        is_elsewhere = self._topics.partition(topic, partition) is not None
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if is_elsewhere else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def offline_dirs(self) -> list[UUID]:
        """The ids of the failed directories, which the broker's heartbeats report to the controller."""
        return [directory.directory_id for directory in self._dirs if directory.failure is not None]

    @property
    def log_dirs(self) -> Sequence[LogDir]:
        return self._dirs

    def log_dir_of(self, partition: Partition) -> LogDir | None:
        """The directory of the partition's log, or None if the log is offline or could not be created."""
        return self._dir_of.get((partition.name.topic, partition.name.partition))

    def is_damaged(self, partition: Partition) -> bool:
        """Whether the partition's log could not be opened although its directory is online, and is not tried again."""
        key = (partition.name.topic, partition.name.partition)
        home = self._dir_of.get(key)
        return partition.log is None and home is not None and home.failure is None and key not in self._unopened

    def add_listener(self, listener: LeadershipListener) -> None:
        """Notify `listener` of the current leaderships now, and of all changes from now on."""
        self._listeners.append(listener)
        for partition in list(self._by_name.values()):
            if partition.leader is not None:
                listener.on_elected(partition.name, partition.leader_epoch)

    def describe_dirs(self) -> list[DirectoryView]:
        """Every log directory with its replicas."""
        members: dict[str, list[DirectoryReplica]] = {}
        for key, directory in self._dir_of.items():
            partition = self._by_name[key]
            if partition.log is not None:
                lag = max(partition.high_watermark - partition.log.log_end_offset, 0)
                view = DirectoryReplica(partition.name, partition.log.size_bytes, lag)
                members.setdefault(directory.path, []).append(view)
        for partition, directory, original, copy in self._mover().copies():
            lag = original.log_end_offset - copy.log_end_offset
            view = DirectoryReplica(partition.name, copy.size_bytes, lag, future=True)
            members.setdefault(directory.path, []).append(view)
        views = [view_of(directory, members.get(directory.path, [])) for directory in self._dirs]
        return views + [DirectoryView(path, online=False) for path in self.replica_directories.missing]

    # ---- start

    def discover(self) -> Steps:
        """Scan the log directories in steps. Do this once, before the first image."""
        return self.replica_directories.discover()

    def check_metadata(self, image: ClusterImage) -> None:
        """Raises MetadataError if the metadata has no topics, but the log directories have partitions.

        Call this between `discover` and the first image, which would set all these partitions aside."""
        found = self.replica_directories.found_partitions
        if found and not len(image.topics):
            shown = ", ".join(map(str, found[:10]))
            raise MetadataError(
                f"The metadata has no topics, but the data directories have {len(found)} partitions ({shown}"
                f"{', ...' if len(found) > 10 else ''}). The broker does not start, because it would set them aside. "
                "Restore the metadata, see docs/OPERATIONS.md; if all topics were deleted on purpose while this broker "
                "was down, start it once with barnabas.accept.empty.metadata=true."
            )

    # ---- images

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        """Apply an image to the partitions of this broker, all at once."""
        for _ in self.applying(delta, image):
            pass

    def applying(self, delta: ClusterDelta, image: ClusterImage) -> Iterator[None]:
        """Apply an image to the partitions of this broker. Yields after each partition that was created, dropped or
        changed, and after each topic. The caller may let time pass between two steps, and must apply images in
        order."""
        self._topics = image.topics
        if delta.brokers:
            self.context.active_brokers = {
                broker.broker_id: broker.epoch for broker in image.brokers if broker.is_active
            }
        for topic_id, gone in delta.topics.deleted.items():
            self._names.pop(topic_id, None)
            yield from self._drop_topic(gone, topic_id)
            if gone.name not in image.topics:
                self.context.traffic.forget(gone.name)
        self._sync_names()
        for topic_id in list(delta.topics.changed):
            topic = image.topics.get_by_id(topic_id)
            if topic is not None:
                known = topic_id in self._names
                self._names[topic_id] = topic.name
                yield from self._apply_topic(image, topic, known=known)
            yield
        self._sync_names()
        for resource in delta.configs.changed:
            if resource.type == ResourceType.TOPIC:
                self._reconfigure(image, resource.name)
                yield
            elif resource.type == ResourceType.BROKER and resource.name in ("", str(self._node_id)):
                yield from self._reconfigure_all(image)
        if self._first_image:
            self._first_image = False
            self.replica_directories.set_rest_aside()
        for directory in self._dirs:
            self.context.sync_created(directory)

    def _apply_topic(self, image: ClusterImage, topic: TopicImage, *, known: bool) -> Iterator[None]:
        """Create, remove and update this broker's replicas of one topic.

        `known` means that an earlier image had the topic. A replica that this image adds is then new on this broker.
        """
        config: LogConfig | None = None
        for index, state in enumerate(topic.partitions):
            key = (topic.name, index)
            partition = self._by_name.get(key)
            if self._node_id not in state.replicas:
                if partition is not None:
                    self._drop(key)
                    yield
                continue
            if partition is not None and partition.topic_id != topic.topic_id:
                self._drop(key)  # the topic was deleted and created again between two images
                partition = None
            if partition is None:
                config = config or self._log_config(image, topic.name)
                name = TopicPartition(topic.name, index)
                is_new = known or state.partition_epoch == 0
                partition = self._open_partition(
                    name, topic.topic_id, config, state.directory_of(self._node_id), is_new=is_new
                )
            self._set_role(partition, state)
            yield

    def _set_role(self, partition: Partition, state: PartitionImage) -> None:
        led = partition.is_leader
        if partition.apply_image(state):
            for listener in self._listeners:
                listener.on_elected(partition.name, partition.leader_epoch)
        elif led and not partition.is_leader:
            for listener in self._listeners:
                listener.on_resigned(partition.name, partition.leader_epoch)

    def _open_partition(
        self, name: TopicPartition, topic_id: TopicId, config: LogConfig, wanted: UUID, *, is_new: bool
    ) -> Partition:
        key = (name.topic, name.partition)
        home = self.replica_directories.open(name, topic_id, config, wanted, is_new=is_new)
        directory = home.directory
        watermark = directory.high_watermarks.get(name, 0) if home.was_found and directory is not None else 0
        partition = self._by_name[key] = Partition(name, topic_id, home.log, self.context, self._listener, watermark)
        if directory is not None:
            self._dir_of[key] = directory
            if home.is_postponed:
                self._unopened[key] = (topic_id, config, wanted)
        if home.was_found and home.log is not None:
            for target in self.replica_directories.unfinished_copies(name):
                self._mover().resume(partition, target)
        return partition

    def open_again(self) -> None:
        """Try to open the logs that could not be opened, although their directory is online: for example, no file
        descriptor was left. Call this from time to time."""
        waiting, self._unopened = self._unopened, {}
        for key, (topic_id, config, wanted) in waiting.items():
            partition, directory = self._by_name.get(key), self._dir_of.get(key)
            state = self._topics.partition(*key)
            if partition is None or partition.topic_id != topic_id or partition.log is not None or state is None:
                continue
            if directory is None or directory.failure is not None:
                continue
            partition.close(ErrorCode.KAFKA_STORAGE_ERROR)
            name = TopicPartition(*key)
            self._set_role(self._open_partition(name, topic_id, config, wanted, is_new=True), state)

    def move_to(self, partition: Partition, moved: Log, directory: LogDir) -> None:
        """Continue the partition in `moved`, a copy of its log in another directory."""
        partition.replace_log(moved)
        self._dir_of[partition.name.topic, partition.name.partition] = directory

    def _reconfigure(self, image: ClusterImage, topic: str) -> None:
        image_topic = image.topics.get(topic)
        if image_topic is None:
            return
        config: LogConfig | None = None
        for index in range(len(image_topic.partitions)):
            partition = self._by_name.get((topic, index))
            if partition is not None and partition.log is not None:
                config = config or self._log_config(image, topic)
                if partition.log.config != config:
                    partition.log.update_config(config)
                    partition.on_config()

    def _reconfigure_all(self, image: ClusterImage) -> Iterator[None]:
        """Apply a change of a broker config, which may be the default of a topic config."""
        for topic in sorted({name for name, _ in self._by_name}):
            self._reconfigure(image, topic)
            yield

    # ---- end of a partition

    def _drop_topic(self, gone: TopicImage, topic_id: TopicId) -> Iterator[None]:
        for index in range(len(gone.partitions)):
            partition = self._by_name.get((gone.name, index))
            if partition is not None and partition.topic_id == topic_id:
                self._drop((gone.name, index))
                yield
        self.replica_directories.forget_topic(gone.name)
        yield

    def _sync_names(self) -> None:
        """Make the new names of all dropped logs durable: one fsync for each directory, not for each log."""
        renamed, self._renamed = self._renamed, []
        for directory in renamed:
            if directory.failure is None:
                try:
                    directory.sync_names()
                except StorageError as error:
                    directory.fail(error)

    def _drop(self, key: tuple[str, int]) -> None:
        partition = self._by_name.pop(key)
        led = partition.is_leader
        partition.close(self._reason_of_absence(*key))
        self._mover().on_dropped(partition)
        if led:
            for listener in self._listeners:
                listener.on_resigned(partition.name, None)
        self.replica_directories.abandon(partition.name)
        directory = self._dir_of.pop(key, None)
        if directory is None or directory.failure is not None or partition.log is None:
            return
        try:
            directory.delete_log(
                partition.name, unique=random_uuid(self._rng), now_ms=self._clock.now_ms(), durable=False
            )
            if directory not in self._renamed:
                self._renamed.append(directory)
        except StorageError as error:
            log.error("log could not be deleted", partition=str(partition.name), reason=str(error))

    # ---- failures and ends

    def on_directory_failed(self, directory: LogDir, error: BaseException) -> None:
        """Take all partitions of the directory offline; the other partitions continue."""
        log.error(
            "log directory is offline; its partitions are unavailable until the broker restarts",
            path=directory.path,
            reason=str(error),
        )
        self._mover().on_directory_failed(directory)
        for key, home in self._dir_of.items():
            if home is directory:
                partition = self._by_name[key]
                led = partition.is_leader
                partition.on_log_dir_failed()
                if led:
                    for listener in self._listeners:
                        listener.on_resigned(partition.name, partition.leader_epoch)

    def checkpoint_high_watermarks(self) -> None:
        by_dir: dict[int, dict[TopicPartition, int]] = {}
        for key, directory in self._dir_of.items():
            if directory.failure is None:
                partition = self._by_name[key]
                by_dir.setdefault(id(directory), {})[partition.name] = partition.high_watermark_to_checkpoint
        for directory in self._dirs:
            values = by_dir.get(id(directory))
            if values is not None and directory.failure is None:
                directory.checkpoint_high_watermarks(values)

    def close(self) -> None:
        """End all roles. The log directories are closed separately (`LogDir.close`)."""
        for partition in self._by_name.values():
            partition.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
