"""Machine: the links of one partition of `__mirror_state`, and the states of their mirror partitions.

`LinkShard` implements the runtime's `CoordinatorShard`. Two epochs fence the leaders of mirror partitions, as in the
share coordinator: the leader epoch fences a leader that has been replaced, the state epoch a write that arrives late.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import asdict, replace

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicId
from barnabas.server.coordination.operation import CoordinatorRecord, TimerKey, WriteOperation
from barnabas.server.coordination.ports import ProducerIdAndEpoch
from barnabas.server.coordination.timeline import Timeline, TimelineMap
from barnabas.server.links.coordination import records as rec
from barnabas.server.links.coordination.values import (
    NO_STATE,
    STOPPED,
    MirrorId,
    MirrorStored,
    Settings,
    StoredLink,
)


class LinkShard:
    """The links of one partition of `__mirror_state`."""

    log_format = rec.FORMAT

    def __init__(self, timeline: Timeline) -> None:
        self.links: TimelineMap[str, StoredLink] = TimelineMap(timeline)
        self.mirrors: TimelineMap[MirrorId, MirrorStored] = TimelineMap(timeline)

    # -- links ---------------------------------------------------------------------------------------------------

    def create(self, op: WriteOperation, link: StoredLink) -> StoredLink:
        """Store a new link. Raises KafkaError DUPLICATE_RESOURCE."""
        if link.name in self.links:
            raise KafkaError(
                ErrorCode.DUPLICATE_RESOURCE,
                f"A link {link.name} exists already. Choose another name, or alter or delete that link.",
            )
        link = replace(link, version=1)
        op.write(_link_record(link))
        return link

    def alter(self, op: WriteOperation, link: StoredLink) -> StoredLink:
        """Replace the definition of a link. Raises KafkaError RESOURCE_NOT_FOUND, and INVALID_REQUEST if the link would
        get another source cluster."""
        before = self.require(link.name)
        if before.source_cluster_id is not None and link.source_cluster_id not in (None, before.source_cluster_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Link {link.name} mirrors the cluster {before.source_cluster_id}, but the new bootstrap servers are "
                f"those of {link.source_cluster_id}. Create another link for that cluster.",
            )
        link = replace(
            link, version=before.version + 1, source_cluster_id=link.source_cluster_id or before.source_cluster_id
        )
        op.write(_link_record(link))
        return link

    def delete(self, op: WriteOperation, name: str, exists: Callable[[TopicId], bool]) -> StoredLink:
        """Delete a link with the states of its partitions. Raises KafkaError: RESOURCE_NOT_FOUND, and INVALID_REQUEST
        while a partition of a topic that still exists is not STOPPED."""
        link = self.require(name)
        of_link = self.states(name)
        running = sorted(
            key for key, stored in of_link.items() if stored.state not in (STOPPED, NO_STATE) and exists(key.topic_id)
        )
        if running:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{len(running)} partitions of link {name} are mirrors. Stop their topics first: "
                f"barnabas links failover {name}.",
            )
        op.write(*(_tombstone(key) for key in sorted(of_link)))
        op.write(CoordinatorRecord(rec.LinkKey(link=name), None))
        return link

    def require(self, name: str) -> StoredLink:
        """Raises KafkaError RESOURCE_NOT_FOUND."""
        link = self.links.get(name)
        if link is None:
            raise unknown_link(name)
        return link

    # -- mirror partitions ---------------------------------------------------------------------------------------

    def states(self, link: str) -> dict[MirrorId, MirrorStored]:
        """The newest state of each partition of a link."""
        return {key: stored for key, stored in self.mirrors.items() if key.link == link}

    def read(self, op: WriteOperation, key: MirrorId, leader_epoch: int) -> MirrorStored:
        """The state for a new leader. The leader's epoch is stored, which fences the previous leader. Raises KafkaError
        FENCED_LEADER_EPOCH, RESOURCE_NOT_FOUND."""
        self.require(key.link)
        stored = self.mirrors.get(key) or MirrorStored()
        if leader_epoch < stored.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        if leader_epoch > stored.leader_epoch:
            op.write(_mirror_record(key, replace(stored, leader_epoch=leader_epoch)))
        else:
            op.wait_for_pending = True
        return stored

    def write(self, op: WriteOperation, key: MirrorId, state: MirrorStored) -> None:
        """Store a write of the partition's leader. Raises KafkaError FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH,
        RESOURCE_NOT_FOUND."""
        self.require(key.link)
        stored = self.mirrors.get(key) or MirrorStored()
        if state.leader_epoch < stored.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        if state == stored:
            op.wait_for_pending = True
            return
        if state.state_epoch <= stored.state_epoch and stored.state != NO_STATE:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH, "The state of the mirror was written by a later request.")
        op.write(_mirror_record(key, state))

    def forget(self, op: WriteOperation, link: str, topic_ids: frozenset[TopicId]) -> None:
        """Delete the states of deleted topics."""
        gone = sorted(key for key in self.mirrors if key.link == link and key.topic_id in topic_ids)
        op.write(*(_tombstone(key) for key in gone))

    # -- committed state -----------------------------------------------------------------------------------------

    def committed_links(self) -> Mapping[str, StoredLink]:
        return self.links.committed()

    def committed_states(self, link: str) -> dict[MirrorId, MirrorStored]:
        return {key: stored for key, stored in self.mirrors.committed().items() if key.link == link}

    # -- CoordinatorShard ----------------------------------------------------------------------------------------

    def apply(self, record: CoordinatorRecord, offset: int, producer_id: int) -> None:
        match record.key, record.value:
            case rec.LinkKey() as key, None:
                self.links.pop(key.link)
            case rec.LinkKey() as key, rec.LinkValue() as value:
                self.links[key.link] = _link(key.link, value)
            case rec.MirrorKey() as key, None:
                self.mirrors.pop(MirrorId(key.link, key.topic_id, key.partition))
            case rec.MirrorKey() as key, rec.MirrorValue() as value:
                fields = {name: getattr(value, name) for name in MirrorStored.__struct_fields__}
                self.mirrors[MirrorId(key.link, key.topic_id, key.partition)] = MirrorStored(**fields)

    def apply_marker(self, producer: ProducerIdAndEpoch, *, committed: bool) -> None:
        """Does nothing, because `__mirror_state` has no transactional records."""

    def on_loaded(self, op: WriteOperation) -> None:
        """Does nothing: the shard has no timers."""

    def on_timer(self, op: WriteOperation, key: TimerKey) -> None:
        """Does nothing: the shard has no timers."""

    def on_unloaded(self, op: WriteOperation) -> None:
        """Does nothing, because no operation of the shard defers its response."""


def unknown_link(name: str) -> KafkaError:
    return KafkaError(
        ErrorCode.RESOURCE_NOT_FOUND, f"There is no link {name}. `barnabas links list` shows the links of this cluster."
    )


def _mirror_record(key: MirrorId, stored: MirrorStored) -> CoordinatorRecord:
    return CoordinatorRecord(_mirror_key(key), rec.MirrorValue(**asdict(stored)))


def _mirror_key(key: MirrorId) -> rec.MirrorKey:
    return rec.MirrorKey(link=key.link, topic_id=key.topic_id, partition=key.partition)


def _tombstone(key: MirrorId) -> CoordinatorRecord:
    return CoordinatorRecord(_mirror_key(key), None)


def _link_record(link: StoredLink) -> CoordinatorRecord:
    value = rec.LinkValue(
        bootstrap_servers=link.bootstrap_servers,
        client=_settings(link.client),
        topics=list(link.topics),
        topics_exclude=list(link.topics_exclude),
        groups=list(link.groups),
        groups_exclude=list(link.groups_exclude),
        acls=list(link.acls),
        settings=_settings(link.settings),
        source_cluster_id=link.source_cluster_id,
        version=link.version,
    )
    return CoordinatorRecord(rec.LinkKey(link=link.name), value)


def _settings(settings: Settings) -> list[rec.StoredSetting]:
    return [rec.StoredSetting(name=name, value=value) for name, value in settings]


def _link(name: str, value: rec.LinkValue) -> StoredLink:
    return StoredLink(
        name,
        value.bootstrap_servers,
        tuple((setting.name, setting.value) for setting in value.client),
        tuple(value.topics),
        tuple(value.topics_exclude),
        tuple(value.groups),
        tuple(value.groups_exclude),
        tuple(value.acls),
        tuple((setting.name, setting.value) for setting in value.settings),
        value.source_cluster_id,
        value.version,
    )
