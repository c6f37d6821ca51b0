"""Table: all records that are not about topics or nodes. Names, keys, fields and versions are those of Kafka 4.3."""

from __future__ import annotations

from uuid import UUID

from barnabas.protocol.wire.schema import (
    MessageStruct,
    array,
    binary,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
    uuid,
)
from barnabas.server.metadata.records.base import MetadataRecord


class ConfigRecord(MetadataRecord, key=4, versions="0", flexible="0+"):
    """One dynamic config of one resource; the value None removes it."""

    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(null="0+")


class FeatureLevelRecord(MetadataRecord, key=12, versions="0", flexible="0+"):
    """The finalized level of a feature; 0 disables the feature."""

    name: str = string()
    feature_level: int = int16()


class ProducerIdsRecord(MetadataRecord, key=15, versions="0", flexible="0+"):
    """A block of producer ids was allocated; the record has the first id of the next block."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    next_producer_id: int = int64()


class EntityData(MessageStruct):
    entity_type: str = string()
    entity_name: str | None = string(null="0+")


class ClientQuotaRecord(MetadataRecord, key=14, versions="0", flexible="0+"):
    """One quota of one entity was set or removed."""

    entity: list[EntityData] = array(EntityData)
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class AccessControlEntryRecord(MetadataRecord, key=18, versions="0", flexible="0+"):
    """An access control entry was added."""

    id: UUID = uuid()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8()
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class RemoveAccessControlEntryRecord(MetadataRecord, key=19, versions="0", flexible="0+"):
    """An access control entry was removed."""

    id: UUID = uuid()


class UserScramCredentialRecord(MetadataRecord, key=11, versions="0", flexible="0+"):
    """A SCRAM credential was set."""

    name: str = string()
    mechanism: int = int8()
    salt: bytes = binary(sensitive=True)
    stored_key: bytes = binary(sensitive=True)
    server_key: bytes = binary(sensitive=True)
    iterations: int = int32()


class RemoveUserScramCredentialRecord(MetadataRecord, key=22, versions="0", flexible="0+"):
    """A SCRAM credential was removed."""

    name: str = string()
    mechanism: int = int8()


class DelegationTokenRecord(MetadataRecord, key=10, versions="0", flexible="0+"):
    """A delegation token was created or changed."""

    owner: str = string()
    requester: str = string()
    renewers: list[str] = array(string)
    issue_timestamp: int = int64()
    max_timestamp: int = int64()
    expiration_timestamp: int = int64()
    token_id: str = string()


class RemoveDelegationTokenRecord(MetadataRecord, key=26, versions="0", flexible="0+"):
    """A delegation token was removed."""

    token_id: str = string()


class NoOpRecord(MetadataRecord, key=20, versions="0", flexible="0+"):
    """No change. A new active controller writes this record, because all earlier records are committed with it. Apache
    Kafka's controller also writes it periodically."""


class ZkMigrationStateRecord(MetadataRecord, key=21, versions="0", flexible="0+"):
    """The state of a migration from ZooKeeper (0: none)."""

    zk_migration_state: int = int8()


class BeginTransactionRecord(MetadataRecord, key=23, versions="0", flexible="0+"):
    """The records from here to EndTransactionRecord take effect together (KIP-868)."""

    name: str | None = string(null="0+", default=None, tag=0)


class EndTransactionRecord(MetadataRecord, key=24, versions="0", flexible="0+"):
    """The records since BeginTransactionRecord take effect now."""


class AbortTransactionRecord(MetadataRecord, key=25, versions="0", flexible="0+"):
    """The records since BeginTransactionRecord are discarded."""

    reason: str | None = string(null="0+", default=None, tag=0)
