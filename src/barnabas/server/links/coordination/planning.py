"""Machine: what a link copies from its source besides records: which topics, partitions, configs, offsets and ACLs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicId
from barnabas.protocol.security.acls import AclBinding, AclPermissionType, AclResourceType
from barnabas.protocol.security.operations import AclOperation
from barnabas.protocol.wire.regex import Re2Pattern
from barnabas.server.links.coordination.values import StoredLink

CONFIGS_EXCLUDED: Final = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "message.timestamp.difference.max.ms",
        "log.message.timestamp.before.max.ms",
        "log.message.timestamp.after.max.ms",
        "message.timestamp.type",
        "unclean.leader.election.enable",
        "min.insync.replicas",
    }
)
"""Configs that describe a cluster rather than its data (MirrorMaker's `config.properties.exclude`). A mirror has them
from its own cluster."""
_OWN: Final = "mirror."
_TIERED: Final = "remote.storage.enable"
ANY: Final = "*"
PATTERNS_MAX: Final = 200
"""The limit for the patterns of one list; compiling them takes some milliseconds."""
ACL_RULES_MAX: Final = 200
ACL_RULE: Final = "type;name;operation;permission;principal"

Key = tuple[str, int]
"""The key of a mirror partition: topic and partition."""


class SourceFacts(Struct, frozen=True):
    """A topic of the source."""

    name: str
    topic_id: TopicId | None
    partitions: int
    is_internal: bool = False


class LocalFacts(Struct, frozen=True):
    """A topic of this cluster. `link` is its `mirror.name`, `mode` its `mirror.state`."""

    name: str
    topic_id: TopicId
    partitions: int
    link: str | None = None
    mode: str = "active"

    @property
    def is_mirror(self) -> bool:
        return self.link is not None and self.mode != "stopped"


class TopicPlan(Struct, frozen=True):
    """The changes of mirror topics that a link needs."""

    create: tuple[SourceFacts, ...]
    grow: tuple[tuple[str, int], ...]
    """Name, and the number of partitions on the source."""
    conflicts: tuple[tuple[str, str], ...]
    """Name, and why the topic cannot be mirrored."""


class Patterns:
    """The names that at least one pattern matches, and no pattern of the exclusions. A pattern must match the whole
    name."""

    def __init__(self, include: Iterable[str], exclude: Iterable[str]) -> None:
        """Raises KafkaError INVALID_REGULAR_EXPRESSION, and INVALID_REQUEST for too many patterns."""
        include, exclude = list(include), list(exclude)
        if len(include) + len(exclude) > PATTERNS_MAX:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"More than {PATTERNS_MAX} patterns; join some with |.")
        self._include = [Re2Pattern(pattern) for pattern in include]
        self._exclude = [Re2Pattern(pattern) for pattern in exclude]

    def select(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if self.matches(name)]

    def matches(self, name: str) -> bool:
        return any(pattern.matches(name) for pattern in self._include) and not any(
            pattern.matches(name) for pattern in self._exclude
        )


def check_link(link: StoredLink) -> None:
    """Check the patterns and rules of a link. Raises KafkaError INVALID_REGULAR_EXPRESSION, ValueError."""
    Patterns(link.topics, link.topics_exclude)
    Patterns(link.groups, link.groups_exclude)
    if len(link.acls) > ACL_RULES_MAX:
        raise ValueError(f"A link has at most {ACL_RULES_MAX} ACL rules.")
    for rule in link.acls:
        acl_rule(rule)


def plan_topics(link: StoredLink, source: Sequence[SourceFacts], local: Mapping[str, LocalFacts]) -> TopicPlan:
    """Discover new topics by the link's patterns, and follow the number of partitions of mirrors.

    A topic that exists here is left alone: it may be a stopped mirror, and only `links start` makes it a mirror again.
    """
    wanted = Patterns(link.topics, link.topics_exclude)
    create, grow, conflicts = [], [], []
    for topic in sorted(source, key=lambda topic: topic.name):
        here = local.get(topic.name)
        if here is None:
            if may_be_mirrored(topic) and wanted.matches(topic.name):
                create.append(topic)
        elif here.link == link.name and here.is_mirror:
            if topic.partitions > here.partitions:
                grow.append((topic.name, topic.partitions))
        elif here.link is None and may_be_mirrored(topic) and wanted.matches(topic.name):
            conflicts.append((topic.name, f"Topic {topic.name} exists here and is no mirror. Delete or exclude it."))
        elif here.is_mirror and wanted.matches(topic.name):
            conflicts.append((topic.name, f"Topic {topic.name} is a mirror of link {here.link}."))
    return TopicPlan(tuple(create), tuple(grow), tuple(conflicts))


def may_be_mirrored(topic: SourceFacts) -> bool:
    """Whether the topic's records make sense in another cluster: state of coordinators does not."""
    return not topic.is_internal and not topic.name.startswith("__")


def plan_configs(source: Mapping[str, str], local: Mapping[str, str], known: Iterable[str]) -> dict[str, str | None]:
    """The configs to set, or to remove (None), so that a mirror has the source's. `source` has the configs that differ
    from the source's defaults, `local` those set on the mirror, `known` the names of all topic configs here."""
    names = set(known)

    def copied(name: str) -> bool:
        return name in names and name not in CONFIGS_EXCLUDED and not name.startswith(_OWN) and name != _TIERED

    changes: dict[str, str | None] = {}
    for name in sorted(source):
        if copied(name) and local.get(name) != source[name]:
            changes[name] = source[name]
    for name in sorted(local):
        if copied(name) and name not in source:
            changes[name] = None
    return changes


class MirrorBounds(NamedTuple):
    """The log start offset and the high watermark of a mirror partition here."""

    start: int
    end: int


def plan_offsets(
    source: Mapping[Key, int], bounds: Mapping[Key, MirrorBounds], local: Mapping[Key, int]
) -> dict[Key, int]:
    """The offsets to commit for a group: the source's, within the records that are here. A partition that is no mirror,
    or whose bounds are unknown, is left out, and so is an offset that is committed already."""
    commits: dict[Key, int] = {}
    for key in sorted(source):
        here = bounds.get(key)
        if here is None or source[key] < 0:
            continue
        offset = max(here.start, min(source[key], here.end))
        if local.get(key) != offset:
            commits[key] = offset
    return commits


class AclRule(NamedTuple):
    """Selects ACLs of the source. A field that is `*` matches everything; a name or principal may end with `*`."""

    resource_type: str
    name: str
    operation: str
    permission: str
    principal: str


def acl_rule(text: str) -> AclRule:
    """Parse `type;name;operation;permission;principal`. Raises ValueError."""
    parts = [part.strip() for part in text.split(";")]
    if len(parts) != len(AclRule._fields) or not all(parts):
        raise ValueError(f"`{text}` is no ACL rule. A rule has the form {ACL_RULE}; * stands for anything.")
    return AclRule(*parts)


def plan_acls(rules: Iterable[str], source: Iterable[AclBinding], local: Iterable[AclBinding]) -> list[AclBinding]:
    """The ACLs of the source that a rule selects and that are not here yet. ACLs are never deleted."""
    parsed = [acl_rule(rule) for rule in rules]
    present = set(local)
    return [acl for acl in source if acl not in present and any(_selects(rule, acl) for rule in parsed)]


def _selects(rule: AclRule, acl: AclBinding) -> bool:
    """Whether the rule selects the ACL. An ACL of a newer source, with a number that this version does not know, is not
    selected: brokers here could not enforce the ACL."""
    try:
        kind, operation = AclResourceType(acl.resource_type), AclOperation(acl.operation)
        permission = AclPermissionType(acl.permission_type)
    except ValueError:
        return False
    return (
        _is(rule.resource_type, kind.name)
        and _text(rule.name, acl.resource_name)
        and _is(rule.operation, operation.name)
        and _is(rule.permission, permission.name)
        and _text(rule.principal, acl.principal)
    )


def _is(wanted: str, found: str) -> bool:
    return wanted == ANY or wanted.lower().replace("_", "") == found.lower().replace("_", "")


def _text(wanted: str, found: str) -> bool:
    return found.startswith(wanted[:-1]) if wanted.endswith(ANY) else wanted == found
