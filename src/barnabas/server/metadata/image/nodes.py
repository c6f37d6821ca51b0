"""Value: the brokers and controllers that are registered in the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from uuid import UUID

from msgspec import Struct, field

from barnabas.core.ids import NO_TOPIC_ID
from barnabas.server.metadata.image.persistent import PersistentMap
from barnabas.server.metadata.image.topics import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY


class SecurityProtocol(IntEnum):
    """Ids of `org.apache.kafka.common.security.auth.SecurityProtocol`."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3


class AdvertisedEndpoint(Struct, frozen=True):
    """A listener of a node: its name and its advertised address."""

    name: str
    host: str
    port: int
    security_protocol: int = SecurityProtocol.PLAINTEXT


class FeatureRange(Struct, frozen=True):
    """The levels of one feature that a node supports, both inclusive."""

    min_level: int
    max_level: int

    def __contains__(self, level: object) -> bool:
        return isinstance(level, int) and self.min_level <= level <= self.max_level


class BrokerImage(Struct, frozen=True):
    """One registered broker (`BrokerRegistration` of Kafka)."""

    broker_id: int
    epoch: int
    incarnation_id: UUID = NO_TOPIC_ID
    endpoints: tuple[AdvertisedEndpoint, ...] = ()
    features: tuple[tuple[str, FeatureRange], ...] = ()
    """Sorted by feature name."""
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[UUID, ...] = ()
    cordoned_log_dirs: tuple[UUID, ...] | None = None

    @property
    def is_active(self) -> bool:
        """Whether the broker may lead partitions and is visible to clients: neither fenced nor in controlled
        shutdown."""
        return not self.fenced and not self.in_controlled_shutdown

    def endpoint(self, listener: str) -> AdvertisedEndpoint | None:
        for endpoint in self.endpoints:
            if endpoint.name == listener:
                return endpoint
        return None


class ControllerImage(Struct, frozen=True):
    """One registered controller (KIP-919)."""

    controller_id: int
    incarnation_id: UUID = NO_TOPIC_ID
    zk_migration_ready: bool = False
    endpoints: tuple[AdvertisedEndpoint, ...] = ()
    features: tuple[tuple[str, FeatureRange], ...] = ()


class BrokersImage(Struct, frozen=True):
    """All registered brokers and controllers, by id."""

    brokers: PersistentMap[int, BrokerImage] = field(default_factory=PersistentMap)
    controllers: PersistentMap[int, ControllerImage] = field(default_factory=PersistentMap)

    def get(self, broker_id: int) -> BrokerImage | None:
        broker: BrokerImage | None = self.brokers.get(broker_id)
        return broker

    def __contains__(self, broker_id: object) -> bool:
        return broker_id in self.brokers

    def __iter__(self) -> Iterator[BrokerImage]:
        """Every registered broker, by ascending id."""
        return iter(sorted(self.brokers.values(), key=lambda broker: broker.broker_id))

    def __len__(self) -> int:
        return len(self.brokers)

    def alive(self) -> list[BrokerImage]:
        """The brokers that are not fenced, by ascending id. Metadata responses list these."""
        return [broker for broker in self if not broker.fenced]

    def is_unfenced(self, broker_id: int) -> bool:
        broker = self.get(broker_id)
        return broker is not None and not broker.fenced

    def has_online_dir(self, broker_id: int, directory: UUID) -> bool:
        """Whether `directory` is one of the broker's online log directories (`DirectoryId.isOnline`). True also if that
        cannot be known: the directory is UNASSIGNED or MIGRATING, or the broker is unknown or has registered no
        directories."""
        broker = self.get(broker_id)
        if broker is None or not broker.log_dirs or directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
            return True
        return directory in broker.log_dirs

    def is_active(self, broker_id: int) -> bool:
        broker = self.get(broker_id)
        return broker is not None and broker.is_active
