"""Machine: metadata records applied to an image; the only place where the cluster's state changes.

    delta = ClusterDelta(image); delta.apply(record); ...; image = delta.finish(provenance)

The finished delta still lists the changes, part by part, for the subscribers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec.structs import replace

from barnabas.protocol.security.credentials import ScramCredential
from barnabas.protocol.security.quotas.limits import QuotaEntity
from barnabas.server.metadata.errors import MetadataError
from barnabas.server.metadata.image.cluster import ClusterImage, MetadataProvenance
from barnabas.server.metadata.image.map_delta import MapDelta
from barnabas.server.metadata.image.nodes import (
    AdvertisedEndpoint,
    BrokerImage,
    BrokersImage,
    ControllerImage,
    FeatureRange,
)
from barnabas.server.metadata.image.small import (
    AclImage,
    AclsImage,
    ConfigResourceKey,
    ConfigsImage,
    DelegationTokenImage,
    FeaturesImage,
    ProducerIdsImage,
    QuotasImage,
    ResourceType,
    ScramImage,
    TokensImage,
)
from barnabas.server.metadata.image.topics_delta import TopicsDelta
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.metadata.records.nodes import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    ControllerFeature,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from barnabas.server.metadata.records.other import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from barnabas.server.metadata.records.topics import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

_NO_BROKER: Final = -1


class ClusterDelta:
    """The changes since the image `before`. A part without changes is empty, and false as a boolean."""

    def __init__(self, before: ClusterImage) -> None:
        self.before = before
        self.topics = TopicsDelta(before.topics)
        self.brokers: MapDelta[int, BrokerImage] = MapDelta(before.brokers.brokers)
        self.controllers: MapDelta[int, ControllerImage] = MapDelta(before.brokers.controllers)
        self.configs: MapDelta[ConfigResourceKey, Mapping[str, str]] = MapDelta(before.configs.by_resource)
        self.features: MapDelta[str, int] = MapDelta(before.features.levels)
        self.acls: MapDelta[Any, AclImage] = MapDelta(before.acls.by_id)
        self.scram: MapDelta[tuple[int, str], ScramCredential] = MapDelta(before.scram.credentials)
        self.tokens: MapDelta[str, DelegationTokenImage] = MapDelta(before.tokens.by_id)
        self.quotas: MapDelta[QuotaEntity, Mapping[str, float]] = MapDelta(before.quotas.by_entity)
        self.next_producer_id: int | None = None
        self.producer_id_floor: int | None = None
        """No broker may hand out a lower producer id any more, not even from a block that it holds (cluster links)."""

    @property
    def is_empty(self) -> bool:
        return not (
            self.topics
            or self.brokers
            or self.controllers
            or self.configs
            or self.features
            or self.acls
            or self.scram
            or self.tokens
            or self.quotas
            or self.next_producer_id is not None
        )

    def apply(self, record: MetadataRecord) -> None:
        """Apply one record. Raises MetadataError if the record contradicts earlier records."""
        method = _APPLY.get(type(record))
        if method is None:
            raise MetadataError(f"Records of type {type(record).__name__} cannot be applied to an image.")
        method(self, record)

    def finish(self, provenance: MetadataProvenance) -> ClusterImage:
        """Build the next image. It shares all unchanged parts with the previous one."""
        before = self.before
        return ClusterImage(
            cluster_id=before.cluster_id,
            provenance=provenance,
            features=FeaturesImage(self.features.finish(), provenance.offset) if self.features else before.features,
            brokers=(
                BrokersImage(self.brokers.finish(), self.controllers.finish())
                if self.brokers or self.controllers
                else before.brokers
            ),
            topics=self.topics.finish(),
            configs=ConfigsImage(self.configs.finish()) if self.configs else before.configs,
            producer_ids=(
                before.producer_ids if self.next_producer_id is None else ProducerIdsImage(self.next_producer_id)
            ),
            acls=self._finish_acls(),
            scram=ScramImage(self.scram.finish()) if self.scram else before.scram,
            quotas=QuotasImage(self.quotas.finish()) if self.quotas else before.quotas,
            tokens=TokensImage(self.tokens.finish()) if self.tokens else before.tokens,
        )

    @staticmethod
    def between(before: ClusterImage, after: ClusterImage) -> ClusterDelta:
        """The delta between two images, for the case that the records in between are unknown (a snapshot was
        loaded)."""
        delta = ClusterDelta(before)
        delta.topics = TopicsDelta.between(before.topics, after.topics)
        delta.brokers = MapDelta.between(before.brokers.brokers, after.brokers.brokers)
        delta.controllers = MapDelta.between(before.brokers.controllers, after.brokers.controllers)
        delta.configs = MapDelta.between(before.configs.by_resource, after.configs.by_resource)
        delta.features = MapDelta.between(before.features.levels, after.features.levels)
        delta.acls = MapDelta.between(before.acls.by_id, after.acls.by_id)
        delta.scram = MapDelta.between(before.scram.credentials, after.scram.credentials)
        delta.tokens = MapDelta.between(before.tokens.by_id, after.tokens.by_id)
        delta.quotas = MapDelta.between(before.quotas.by_entity, after.quotas.by_entity)
        if before.producer_ids != after.producer_ids:
            delta.next_producer_id = after.producer_ids.next_producer_id
            if before.offset >= 0:  # the snapshot may include a floor
                delta.producer_id_floor = delta.next_producer_id
        return delta

    @staticmethod
    def everything(image: ClusterImage) -> ClusterDelta:
        """The delta from the empty image to `image`, for a subscriber that is added when `image` already exists."""
        return ClusterDelta.between(ClusterImage(cluster_id=image.cluster_id), image)

    def _finish_acls(self) -> AclsImage:
        if not self.acls:
            return self.before.acls
        before = self.before.acls
        ids = MapDelta(before.ids)
        for acl_id in self.acls.changed:
            replaced = before.by_id.get(acl_id)
            if replaced is not None:
                ids.remove(replaced.binding)
        for acl_id, acl in self.acls.changed.items():
            if acl is not None:
                ids.put(acl.binding, acl_id)
        return AclsImage(self.acls.finish(), ids.finish())

    # -- one method per kind of record ---------------------------------------------------------------------------

    def _topic(self, record: TopicRecord) -> None:
        self.topics.create(record)

    def _partition(self, record: PartitionRecord) -> None:
        self.topics.add_partition(record)

    def _partition_change(self, record: PartitionChangeRecord) -> None:
        self.topics.change_partition(record)

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        name = self.topics.remove(record.topic_id)
        resource = ConfigResourceKey(ResourceType.TOPIC, name)
        if self.configs.get(resource) is not None:
            self.configs.remove(resource)

    def _clear_elr(self, record: ClearElrRecord) -> None:
        self.topics.clear_elr(record)

    def _register_broker(self, record: RegisterBrokerRecord) -> None:
        self.brokers.put(
            record.broker_id,
            BrokerImage(
                broker_id=record.broker_id,
                epoch=record.broker_epoch,
                incarnation_id=record.incarnation_id,
                endpoints=_endpoints(record.end_points),
                features=_features(record.features),
                rack=record.rack,
                fenced=record.fenced,
                in_controlled_shutdown=record.in_controlled_shutdown,
                log_dirs=tuple(record.log_dirs),
                cordoned_log_dirs=None if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs),
            ),
        )

    def _unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self._broker(record.broker_id, record.broker_epoch)
        self.brokers.remove(record.broker_id)

    def _fence_broker(self, record: FenceBrokerRecord) -> None:
        self._change_broker(self._broker(record.id, record.epoch), fenced=True)

    def _unfence_broker(self, record: UnfenceBrokerRecord) -> None:
        self._change_broker(self._broker(record.id, record.epoch), fenced=False)

    def _change_registration(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch)
        changes: dict[str, Any] = {}
        if record.fenced:
            changes["fenced"] = record.fenced > 0
        if record.in_controlled_shutdown:
            changes["in_controlled_shutdown"] = record.in_controlled_shutdown > 0
        if record.log_dirs:
            changes["log_dirs"] = tuple(record.log_dirs)
        if record.cordoned_log_dirs is not None:
            changes["cordoned_log_dirs"] = tuple(record.cordoned_log_dirs)
        self._change_broker(broker, **changes)

    def _register_controller(self, record: RegisterControllerRecord) -> None:
        self.controllers.put(
            record.controller_id,
            ControllerImage(
                controller_id=record.controller_id,
                incarnation_id=record.incarnation_id,
                zk_migration_ready=record.zk_migration_ready,
                endpoints=_endpoints(record.end_points),
                features=_features(record.features),
            ),
        )

    def _config(self, record: ConfigRecord) -> None:
        resource = ConfigResourceKey(record.resource_type, record.resource_name)
        configs = dict(self.configs.get(resource) or {})
        if record.value is None:
            configs.pop(record.name, None)
        else:
            configs[record.name] = record.value
        if configs:
            self.configs.put(resource, MappingProxyType(configs))
        else:
            self.configs.remove(resource)

    def _feature(self, record: FeatureLevelRecord) -> None:
        if record.feature_level == 0:
            self.features.remove(record.name)
        else:
            self.features.put(record.name, record.feature_level)

    def _producer_ids(self, record: ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id
        if record.broker_id == _NO_BROKER:  # it grants no block (AlterMirrorTopics)
            self.producer_id_floor = record.next_producer_id

    def _acl(self, record: AccessControlEntryRecord) -> None:
        self.acls.put(
            record.id,
            AclImage(
                acl_id=record.id,
                resource_type=record.resource_type,
                resource_name=record.resource_name,
                pattern_type=record.pattern_type,
                principal=record.principal,
                host=record.host,
                operation=record.operation,
                permission_type=record.permission_type,
            ),
        )

    def _remove_acl(self, record: RemoveAccessControlEntryRecord) -> None:
        self.acls.remove(record.id)

    def _scram(self, record: UserScramCredentialRecord) -> None:
        self.scram.put(
            (record.mechanism, record.name),
            ScramCredential(bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations),
        )

    def _remove_scram(self, record: RemoveUserScramCredentialRecord) -> None:
        self.scram.remove((record.mechanism, record.name))

    def _token(self, record: DelegationTokenRecord) -> None:
        self.tokens.put(
            record.token_id,
            DelegationTokenImage(
                token_id=record.token_id,
                owner=record.owner,
                requester=record.requester,
                renewers=tuple(record.renewers),
                issue_timestamp=record.issue_timestamp,
                max_timestamp=record.max_timestamp,
                expiration_timestamp=record.expiration_timestamp,
                names_length=sum(map(len, (record.owner, record.requester, *record.renewers))),
            ),
        )

    def _remove_token(self, record: RemoveDelegationTokenRecord) -> None:
        self.tokens.remove(record.token_id)

    def _quota(self, record: ClientQuotaRecord) -> None:
        entity: QuotaEntity = tuple(sorted((part.entity_type, part.entity_name) for part in record.entity))
        present = self.quotas.get(entity) or {}
        limits = {key: value for key, value in present.items() if key != record.key}
        if not record.remove:
            limits[record.key] = record.value
        if limits:
            self.quotas.put(entity, MappingProxyType(limits))
        else:
            self.quotas.remove(entity)

    def _nothing(self, record: MetadataRecord) -> None:
        """Ignore NoOpRecord and ZkMigrationStateRecord, which carry no state, and transaction markers, which the Loader
        handles."""

    def _broker(self, broker_id: int, epoch: int) -> BrokerImage:
        broker = self.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            raise MetadataError(
                f"A metadata record refers to broker {broker_id} at epoch {epoch}, which is not registered."
            )
        return broker

    def _change_broker(self, broker: BrokerImage, **changes: Any) -> None:
        self.brokers.put(broker.broker_id, replace(broker, **changes))


def replayed(image: ClusterImage, records: Iterable[MetadataRecord]) -> ClusterImage:
    """`image` with `records` applied, for a decision that builds on an earlier one. The offset of the result is not
    exact."""
    delta = ClusterDelta(image)
    count = 0
    for record in records:
        delta.apply(record)
        count += 1
    last = image.provenance
    return delta.finish(MetadataProvenance(last.offset + count, last.epoch, last.timestamp_ms))


def _endpoints(given: list[BrokerEndpoint] | list[ControllerEndpoint]) -> tuple[AdvertisedEndpoint, ...]:
    return tuple(AdvertisedEndpoint(e.name, e.host, e.port, e.security_protocol) for e in given)


def _features(given: list[BrokerFeature] | list[ControllerFeature]) -> tuple[tuple[str, FeatureRange], ...]:
    return tuple(sorted((f.name, FeatureRange(f.min_supported_version, f.max_supported_version)) for f in given))


_APPLY: Final[Mapping[type[MetadataRecord], Callable[[ClusterDelta, Any], None]]] = {
    TopicRecord: ClusterDelta._topic,
    PartitionRecord: ClusterDelta._partition,
    PartitionChangeRecord: ClusterDelta._partition_change,
    RemoveTopicRecord: ClusterDelta._remove_topic,
    ClearElrRecord: ClusterDelta._clear_elr,
    RegisterBrokerRecord: ClusterDelta._register_broker,
    UnregisterBrokerRecord: ClusterDelta._unregister_broker,
    FenceBrokerRecord: ClusterDelta._fence_broker,
    UnfenceBrokerRecord: ClusterDelta._unfence_broker,
    BrokerRegistrationChangeRecord: ClusterDelta._change_registration,
    RegisterControllerRecord: ClusterDelta._register_controller,
    ConfigRecord: ClusterDelta._config,
    FeatureLevelRecord: ClusterDelta._feature,
    ProducerIdsRecord: ClusterDelta._producer_ids,
    AccessControlEntryRecord: ClusterDelta._acl,
    RemoveAccessControlEntryRecord: ClusterDelta._remove_acl,
    UserScramCredentialRecord: ClusterDelta._scram,
    RemoveUserScramCredentialRecord: ClusterDelta._remove_scram,
    DelegationTokenRecord: ClusterDelta._token,
    RemoveDelegationTokenRecord: ClusterDelta._remove_token,
    ClientQuotaRecord: ClusterDelta._quota,
    NoOpRecord: ClusterDelta._nothing,
    ZkMigrationStateRecord: ClusterDelta._nothing,
    BeginTransactionRecord: ClusterDelta._nothing,
    EndTransactionRecord: ClusterDelta._nothing,
    AbortTransactionRecord: ClusterDelta._nothing,
}
