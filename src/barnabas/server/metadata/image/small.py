"""Value: the small parts of a cluster image: features, configs, producer ids, ACLs, SCRAM, quotas, tokens."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from msgspec import Struct, field

from barnabas.protocol.security.acls import AclBinding
from barnabas.protocol.security.credentials import ScramCredential
from barnabas.protocol.security.quotas.limits import QuotaEntity
from barnabas.server.metadata.image.persistent import PersistentMap

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"


class FeaturesImage(Struct, frozen=True):
    """The finalized level of every feature. A feature at level 0 is off and not listed."""

    levels: PersistentMap[str, int] = field(default_factory=PersistentMap)
    finalized_epoch: int = -1
    """The metadata offset of the image in which a level last changed. ApiVersions returns this offset as
    `finalized_features_epoch`."""

    def level(self, feature: str) -> int:
        return int(self.levels.get(feature, 0))

    @property
    def metadata_version(self) -> int:
        return self.level(METADATA_VERSION)


class ResourceType(IntEnum):
    """The types of config resources (`ConfigResourceKey.Type`)."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResourceKey(NamedTuple):
    """A resource with dynamic configs. The resource of the cluster-wide broker defaults has an empty name."""

    type: int
    name: str


def topic_resource(topic: str) -> ConfigResourceKey:
    return ConfigResourceKey(ResourceType.TOPIC, topic)


def broker_resource(broker_id: int | None) -> ConfigResourceKey:
    """The resource of one broker's dynamic configs, or with None that of the defaults of all brokers."""
    return ConfigResourceKey(ResourceType.BROKER, "" if broker_id is None else str(broker_id))


def group_resource(group: str) -> ConfigResourceKey:
    return ConfigResourceKey(ResourceType.GROUP, group)


_NO_CONFIGS: Mapping[str, str] = MappingProxyType({})


class ConfigsImage(Struct, frozen=True):
    """Every dynamic config, as text, by resource."""

    by_resource: PersistentMap[ConfigResourceKey, Mapping[str, str]] = field(default_factory=PersistentMap)

    def of(self, resource: ConfigResourceKey) -> Mapping[str, str]:
        configs: Mapping[str, str] = self.by_resource.get(resource, _NO_CONFIGS)
        return configs

    def topic(self, name: str) -> Mapping[str, str]:
        return self.of(topic_resource(name))

    def broker(self, broker_id: int) -> Mapping[str, str]:
        return self.of(broker_resource(broker_id))

    def broker_defaults(self) -> Mapping[str, str]:
        return self.of(broker_resource(None))

    def group(self, group_id: str) -> Mapping[str, str]:
        return self.of(group_resource(group_id))

    def names(self, resource_type: int) -> list[str]:
        """The resources of a type that have configs, sorted."""
        return sorted(resource.name for resource in self.by_resource if resource.type == resource_type)


class ProducerIdsImage(Struct, frozen=True):
    """The first producer id that has not been allocated in a block yet."""

    next_producer_id: int = 0


class AclImage(Struct, frozen=True):
    """One access control entry; the integers are Kafka's ACL enums."""

    acl_id: UUID
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

    @property
    def binding(self) -> AclBinding:
        """The entry without its id."""
        return AclBinding(
            self.resource_type,
            self.resource_name,
            self.pattern_type,
            self.principal,
            self.host,
            self.operation,
            self.permission_type,
        )


class AclsImage(Struct, frozen=True):
    """Every access control entry, by id."""

    by_id: PersistentMap[UUID, AclImage] = field(default_factory=PersistentMap)
    ids: PersistentMap[AclBinding, UUID] = field(default_factory=PersistentMap)
    """The id of each entry: an entry that exists is not created again."""

    def __contains__(self, acl: AclBinding) -> bool:
        return acl in self.ids


class ScramImage(Struct, frozen=True):
    """SCRAM credentials by (mechanism id: 1 = SHA-256, 2 = SHA-512; user name)."""

    credentials: PersistentMap[tuple[int, str], ScramCredential] = field(default_factory=PersistentMap)

    def get(self, mechanism: int, user: str) -> ScramCredential | None:
        credential: ScramCredential | None = self.credentials.get((mechanism, user))
        return credential


class QuotasImage(Struct, frozen=True):
    """Client quotas: entity -> quota key (`producer_byte_rate`, ...) -> limit."""

    by_entity: PersistentMap[QuotaEntity, Mapping[str, float]] = field(default_factory=PersistentMap)


class DelegationTokenImage(Struct, frozen=True):
    """One delegation token; its HMAC is derived from the secret key, never stored."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp: int
    max_timestamp: int
    expiration_timestamp: int
    names_length: int
    """The characters of the owner, the requester and the renewers together."""


class TokensImage(Struct, frozen=True):
    """Every delegation token, by token id."""

    by_id: PersistentMap[str, DelegationTokenImage] = field(default_factory=PersistentMap)
