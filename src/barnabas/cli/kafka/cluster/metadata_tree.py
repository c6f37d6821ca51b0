"""Value: the metadata of a cluster as directories and files, with the names and texts of Kafka's metadata shell.

    /local/{version,commitId}
    /image/provenance                              offset, epoch and time of the last record
    /image/features/{metadataVersion,finalized_NAME}
    /image/cluster/{brokers,controllers}/ID
    /image/topics/{byName/NAME,byId/ID}/{name,id,0,1,...}
    /image/configs/TYPE:NAME/CONFIG                TYPE alone: the defaults of that type
    /image/clientQuotas/user(NAME)_.../LIMIT
    /image/producerIds/nextProducerId
    /image/acls/byId/ID, /image/scram/MECHANISM/USER, /image/delegationToken/ID

The texts of files are those of the `toString` methods of Kafka's classes (`PartitionRegistration`, `StandardAcl`, ...).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final, TypeVar

from barnabas import __version__
from barnabas.core.config import value_to_text
from barnabas.core.ids import uuid_to_text
from barnabas.protocol.security.acls import AclPermissionType, AclResourceType, PatternType
from barnabas.protocol.security.credentials import ScramCredential
from barnabas.protocol.security.operations import AclOperation
from barnabas.protocol.security.quotas.limits import CLIENT_ID, IP, USER
from barnabas.server.metadata.features import METADATA_VERSION_NAMES
from barnabas.server.metadata.image.cluster import ClusterImage, MetadataProvenance, ResourceType, TopicImage
from barnabas.server.metadata.image.nodes import (
    AdvertisedEndpoint,
    BrokerImage,
    ControllerImage,
    FeatureRange,
    SecurityProtocol,
)
from barnabas.server.metadata.image.small import METADATA_VERSION, AclImage, DelegationTokenImage
from barnabas.server.metadata.image.topics import LeaderRecoveryState, PartitionImage

K = TypeVar("K")
V = TypeVar("V")
MECHANISMS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_LEVEL_MAX: Final = 32_767
_NAMES_OF_QUOTAS: Final = ((CLIENT_ID, "clientId"), (IP, "ip"), (USER, "user"))


@dataclass(frozen=True)
class Directory:
    """`children` are made when they are visited, because a cluster may have a million partitions."""

    children: Mapping[str, Callable[[], Node]]

    def names(self) -> list[str]:
        return sorted(self.children)

    def child(self, name: str) -> Node | None:
        make = self.children.get(name)
        return None if make is None else make()


Node = Directory | str
"""A directory, or the text of a file."""


def metadata_tree(image: ClusterImage) -> Directory:
    """The root directory."""
    return _of(
        {"local": lambda: _files({"version": __version__, "commitId": "unknown"}), "image": lambda: _image(image)}
    )


def _image(image: ClusterImage) -> Directory:
    resources = image.configs.by_resource
    entities = image.quotas.by_entity
    return _of(
        {
            "provenance": lambda: _provenance(image.provenance),
            "features": lambda: _features(dict(image.features.levels.items())),
            "cluster": lambda: _of(
                {
                    "brokers": lambda: _each(image.brokers.brokers, str, _broker),
                    "controllers": lambda: _each(image.brokers.controllers, str, _controller),
                }
            ),
            "topics": lambda: _of(
                {
                    "byName": lambda: _each(image.topics.by_name, str, _topic),
                    "byId": lambda: _each(image.topics.by_id, uuid_to_text, _topic),
                }
            ),
            "configs": lambda: _each(resources, lambda one: _resource(one.type, one.name), _files),
            "clientQuotas": lambda: _each(entities, _entity, lambda limits: _files(_limits(limits))),
            "producerIds": lambda: _files({"nextProducerId": str(image.producer_ids.next_producer_id or -1)}),
            "acls": lambda: _of({"byId": lambda: _each(image.acls.by_id, uuid_to_text, _acl)}),
            "scram": lambda: _of({name: partial(_users, image, number) for name, number in MECHANISMS.items()}),
            "delegationToken": lambda: _each(image.tokens.by_id, str, _token),
        }
    )


def _of(children: Mapping[str, Callable[[], Node]]) -> Directory:
    return Directory(children)


def _files(texts: Mapping[str, str]) -> Directory:
    return Directory({name: partial(str, text) for name, text in texts.items()})


def _each(values: Mapping[K, V], name: Callable[[K], str], node: Callable[[V], Node]) -> Directory:
    return Directory({name(key): partial(node, value) for key, value in values.items()})


def _provenance(last: MetadataProvenance) -> str:
    time = datetime.fromtimestamp(max(last.timestamp_ms, 0) / 1000, UTC).isoformat(timespec="milliseconds")
    time = time.removesuffix("+00:00").removesuffix(".000")
    return f"offset {last.offset}, epoch {last.epoch}, time {time}Z[UTC]"


def _features(levels: dict[str, int]) -> Directory:
    level = levels.pop(METADATA_VERSION, 0)
    name = METADATA_VERSION_NAMES.get(level, str(level))
    texts = {"metadataVersion": f"Optional[{name}]" if level else "Optional.empty"}
    return _files(texts | {f"finalized_{name}": str(level) for name, level in levels.items()})


def _topic(topic: TopicImage) -> Directory:
    texts = {"name": partial(str, topic.name), "id": partial(uuid_to_text, topic.topic_id)}
    partitions = {str(number): partial(_partition, one) for number, one in enumerate(topic.partitions)}
    return Directory(texts | partitions)


def _partition(one: PartitionImage) -> str:
    state = LeaderRecoveryState(one.leader_recovery_state).name
    directories = _list(map(uuid_to_text, one.directories))
    return (
        f"PartitionRegistration(replicas={_list(one.replicas)}, directories={directories}, "
        f"isr={_list(one.isr)}, removingReplicas={_list(one.removing_replicas)}, "
        f"addingReplicas={_list(one.adding_replicas)}, elr={_list(one.elr)}, lastKnownElr={_list(one.last_known_elr)}, "
        f"leader={one.leader}, leaderRecoveryState={state}, leaderEpoch={one.leader_epoch}, "
        f"partitionEpoch={one.partition_epoch})"
    )


def _broker(one: BrokerImage) -> str:
    rack = "Optional.empty" if one.rack is None else f"Optional[{one.rack}]"
    cordoned = "null" if one.cordoned_log_dirs is None else _list(map(uuid_to_text, one.cordoned_log_dirs))
    return (
        f"BrokerRegistration(id={one.broker_id}, epoch={one.epoch}, incarnationId={uuid_to_text(one.incarnation_id)}, "
        f"listeners={_endpoints(one.endpoints)}, supportedFeatures={_ranges(one.features)}, rack={rack}, "
        f"fenced={_flag(one.fenced)}, inControlledShutdown={_flag(one.in_controlled_shutdown)}, "
        f"isMigratingZkBroker=false, directories={_list(map(uuid_to_text, one.log_dirs))}, "
        f"cordonedDirectories={cordoned})"
    )


def _controller(one: ControllerImage) -> str:
    return (
        f"ControllerRegistration(id={one.controller_id}, incarnationId={uuid_to_text(one.incarnation_id)}, "
        f"zkMigrationReady={_flag(one.zk_migration_ready)}, listeners={_endpoints(one.endpoints)}, "
        f"supportedFeatures={_ranges(one.features)})"
    )


def _endpoints(endpoints: tuple[AdvertisedEndpoint, ...]) -> str:
    return _list(
        f"Endpoint(listenerName='{one.name}', securityProtocol={SecurityProtocol(one.security_protocol).name}, "
        f"host='{one.host}', port={one.port})"
        for one in sorted(endpoints, key=lambda one: one.name)
    )


def _ranges(features: tuple[tuple[str, FeatureRange], ...]) -> str:
    return "{" + ", ".join(f"{name}: {_range(levels)}" for name, levels in sorted(features)) + "}"


def _range(levels: FeatureRange) -> str:
    if levels.min_level == levels.max_level:
        return str(levels.min_level)
    return f"{levels.min_level}+" if levels.max_level == _LEVEL_MAX else f"{levels.min_level}-{levels.max_level}"


def _acl(one: AclImage) -> str:
    return (
        f"StandardAcl(resourceType={AclResourceType(one.resource_type).name}, resourceName={one.resource_name}, "
        f"patternType={PatternType(one.pattern_type).name}, principal={one.principal}, host={one.host}, "
        f"operation={AclOperation(one.operation).name}, permissionType={AclPermissionType(one.permission_type).name})"
    )


def _users(image: ClusterImage, mechanism: int) -> Directory:
    own = {user: one for (of, user), one in image.scram.credentials.items() if of == mechanism}
    return _each(own, str, _credential)


def _credential(one: ScramCredential) -> str:
    return (
        f"ScramCredentialData(salt={one.salt.hex()}, storedKey={one.stored_key.hex()}, "
        f"serverKey={one.server_key.hex()}, iterations={one.iterations})"
    )


def _token(one: DelegationTokenImage) -> str:
    """The parentheses are not balanced in Kafka's text, either."""
    return (
        f"DelegationTokenDatatokenId={one.token_id}(owner={one.owner}(tokenRequester={one.requester}"
        f"(renewers={' '.join(one.renewers)}, issueTimestamp={one.issue_timestamp}, maxTimestamp={one.max_timestamp}), "
        f"expiryTimestamp={one.expiration_timestamp}"
    )


def _resource(kind: int, name: str) -> str:
    return f"{ResourceType(kind).name}:{name}" if name else ResourceType(kind).name


def _entity(entity: tuple[tuple[str, str | None], ...]) -> str:
    """`user(alice)_clientId(app)`, with parentheses and backslashes of names escaped; the default is `<default>`."""
    names = dict(entity)
    return "_".join(f"{word}({_escaped(names[kind])})" for kind, word in _NAMES_OF_QUOTAS if kind in names)


def _escaped(name: str | None) -> str:
    return "<default>" if name is None else name.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")


def _limits(limits: Mapping[str, float]) -> dict[str, str]:
    return {name: str(value_to_text(float(limit))) for name, limit in limits.items()}


def _list(values: Iterable[object]) -> str:
    return f"[{', '.join(map(str, values))}]"


def _flag(value: bool) -> str:
    return "true" if value else "false"
