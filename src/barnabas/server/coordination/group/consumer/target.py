"""Machine: the target assignment of a consumer group, and the hash of its subscribed topics (KIP-1101)."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from weakref import WeakKeyDictionary

from barnabas.core.ids import TopicId
from barnabas.protocol.assign.server import GroupSpec, MemberSpec, ServerAssignor
from barnabas.server.coordination.group.consumer.group import ConsumerGroup
from barnabas.server.coordination.group.consumer.member import Partitions
from barnabas.server.coordination.ports import CatalogTopic, TopicCatalog

_known_facts: WeakKeyDictionary[TopicCatalog, dict[str, bytes]] = WeakKeyDictionary()
"""The hashed data of topics, by catalog. A catalog never changes; each image has a new one."""
_known_hashes: WeakKeyDictionary[TopicCatalog, WeakKeyDictionary[frozenset[str], int]] = WeakKeyDictionary()
"""The hashes of sets of topics, by catalog. When a thousand members join a group at once, the hash of the same topics
is needed a thousand times."""


def metadata_hash(catalog: TopicCatalog, topics: frozenset[str]) -> int:
    """A hash that changes when one of the topics is created, deleted, recreated or gets partitions, or when the racks
    of its replicas change.

    Kafka hashes the same data with XXH3. A group whose coordinator moves between Kafka and Barnabas is rebalanced once,
    which moves no partition. The hash of no topics is 0.
    """
    hashes = _known_hashes.get(catalog)
    if hashes is None:
        hashes = _known_hashes[catalog] = WeakKeyDictionary()
    known = hashes.get(topics)
    if known is None:
        known = hashes[topics] = _hash(catalog, sorted(catalog.existing(topics)))
    return known


def _hash(catalog: TopicCatalog, existing: Sequence[str]) -> int:
    if not existing:
        return 0
    digest = blake2b(digest_size=8)
    known = _known_facts.setdefault(catalog, {})
    for name in existing:
        facts = known.get(name)
        if facts is None:
            view = catalog.by_name(name)
            assert view is not None
            facts = known[name] = _facts(view)
        digest.update(facts)
    return int.from_bytes(digest.digest(), "big", signed=True)


def _facts(view: CatalogTopic) -> bytes:
    racks = ";".join(",".join(sorted(here)) for here in view.racks)
    return f"{view.topic_id}/{view.name}/{view.partitions}/{racks}\n".encode()


def compute_target(group: ConsumerGroup, catalog: TopicCatalog, assignor: ServerAssignor) -> dict[str, Partitions]:
    """The target assignment of each member, for the current subscriptions and topics."""
    counts: dict[str, CatalogTopic] = {}
    members: dict[str, MemberSpec] = {}
    subscriptions: dict[tuple[tuple[str, ...], str | None], frozenset[TopicId]] = {}
    for member_id in sorted(group.members):
        member = group.members[member_id]
        subscription = (member.topic_names, member.topic_regex)
        wanted = subscriptions.get(subscription)
        if wanted is None:
            wanted = subscriptions[subscription] = _topic_ids(catalog, group.topics_of(member), counts)
        members[member_id] = MemberSpec(wanted, group.target_of(member_id), member.instance_id)
    spec = GroupSpec(members, {view.topic_id: view.partitions for view in counts.values()})
    return assignor.assign(spec)


def _topic_ids(catalog: TopicCatalog, names: frozenset[str], found: dict[str, CatalogTopic]) -> frozenset[TopicId]:
    """The ids of those of the topics that exist. They are added to `found`."""
    for name in sorted(catalog.existing(names) - found.keys()):
        view = catalog.by_name(name)
        if view is not None:
            found[name] = view
    return frozenset(found[name].topic_id for name in names if name in found)
