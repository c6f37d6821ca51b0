"""Machine: what a command on mirror topics changes: the topic configs `mirror.name` and `mirror.state`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final

from msgspec import Struct

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import uuid_to_text
from barnabas.server.links.coordination.planning import LocalFacts, Patterns, SourceFacts, may_be_mirrored
from barnabas.server.links.coordination.values import STOPPED, MirrorId, MirrorStored, StoredLink

ACTIVE: Final = "active"
PAUSED: Final = "paused"
STOPPING: Final = "stopping"
STOPPED_MODE: Final = "stopped"


class LinkOperation(IntEnum):
    """The values of `AlterLinkRequest.operation`."""

    CREATE = 0
    REPLACE = 1
    DELETE = 2
    ANNOUNCE = 3
    """Between brokers: the definition has changed, read it again."""


class MirrorOperation(IntEnum):
    """The values of `AlterMirrorsRequest.operation`."""

    START = 0
    PAUSE = 1
    RESUME = 2
    STOP = 3
    RECOVER = 4


_MODES: Final = {
    MirrorOperation.PAUSE: PAUSED,
    MirrorOperation.RESUME: ACTIVE,
    MirrorOperation.STOP: STOPPING,
    MirrorOperation.RECOVER: PAUSED,
}


class MirrorCommand(Struct, frozen=True):
    """What happens to one topic. Exactly one of `create`, `mode` and `error` is set, or none if nothing changes."""

    topic: str
    partitions: int = 0
    create: SourceFacts | None = None
    mode: str | None = None
    error: KafkaError | None = None


def plan_start(
    link: StoredLink,
    patterns: Sequence[str],
    source: Mapping[str, SourceFacts],
    local: Mapping[str, LocalFacts],
) -> list[MirrorCommand]:
    """Make topics of the source mirrors here: new ones, and stopped or ordinary ones with the same id (failback)."""
    names = Patterns(patterns, link.topics_exclude).select(
        sorted(name for name, topic in source.items() if may_be_mirrored(topic) or name in patterns)
    )
    commands = [_start(link, source[name], local.get(name)) for name in names]
    return commands + _not_found(patterns, names, "The source has no topic of this name.")


def _start(link: StoredLink, topic: SourceFacts, here: LocalFacts | None) -> MirrorCommand:
    if here is None:
        return MirrorCommand(topic.name, topic.partitions, create=topic)
    if here.is_mirror:
        if here.link == link.name:
            return MirrorCommand(topic.name, here.partitions)
        return _refused(topic.name, f"It is a mirror of link {here.link} already. Stop it there first.")
    if topic.topic_id is not None and topic.topic_id != here.topic_id:
        return _refused(
            topic.name,
            f"A topic of this name exists here with another id ({uuid_to_text(here.topic_id)}; on the source "
            f"{uuid_to_text(topic.topic_id)}), so its records are not the source's. Delete it here, or exclude it.",
        )
    if topic.topic_id is None and here.link is None:
        return _refused(topic.name, "A topic of this name exists here. Delete it, or exclude it from the link.")
    if topic.partitions < here.partitions:
        return _refused(
            topic.name,
            f"It has {here.partitions} partitions here, and {topic.partitions} on the source. Delete it here.",
        )
    return MirrorCommand(topic.name, here.partitions, mode=ACTIVE)


def plan_change(
    link: StoredLink, operation: MirrorOperation, patterns: Sequence[str], local: Iterable[LocalFacts]
) -> list[MirrorCommand]:
    """Pause, resume, stop or recover mirrors of the link."""
    mirrors = {topic.name: topic for topic in local if topic.link == link.name and topic.is_mirror}
    names = Patterns(patterns, ()).select(sorted(mirrors))
    commands = []
    for name in names:
        topic = mirrors[name]
        if topic.mode == STOPPING and operation is not MirrorOperation.STOP:
            commands.append(_refused(name, "It is being stopped. Wait until it is, then start it again."))
        elif topic.mode == _MODES[operation] and operation is not MirrorOperation.RECOVER:
            commands.append(MirrorCommand(name, topic.partitions))
        else:
            commands.append(MirrorCommand(name, topic.partitions, mode=_MODES[operation]))
    return commands + _not_found(patterns, names, f"It is no mirror of link {link.name}.")


def _not_found(patterns: Sequence[str], names: Sequence[str], reason: str) -> list[MirrorCommand]:
    """An error for each plain name in a request that selects no topic."""
    found = set(names)
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    plain = [pattern for pattern in patterns if pattern.replace("-", "").replace("_", "").replace(".", "").isalnum()]
    missing = [name for name in plain if name not in found and not Patterns([name], ()).select(names)]
    return [MirrorCommand(name, error=KafkaError(error, reason)) for name in missing]


def _refused(topic: str, reason: str) -> MirrorCommand:
    return MirrorCommand(topic, error=KafkaError(ErrorCode.INVALID_REQUEST, reason))


def stopped_topics(link: str, local: Iterable[LocalFacts], states: Mapping[MirrorId, MirrorStored]) -> list[LocalFacts]:
    """The topics of the link that are being stopped and whose partitions all are: they become writable."""

    def is_stopped(topic: LocalFacts, partition: int) -> bool:
        stored = states.get(MirrorId(link, topic.topic_id, partition))
        return stored is not None and stored.state == STOPPED

    return [
        topic
        for topic in local
        if topic.link == link
        and topic.mode == STOPPING
        and all(is_stopped(topic, partition) for partition in range(topic.partitions))
    ]
