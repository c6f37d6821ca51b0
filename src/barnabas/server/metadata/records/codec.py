"""Codec: metadata records <-> the values of records in `__cluster_metadata`, in Kafka's framing.

    value := frame version (unsigned varint, 1)  api key (unsigned varint)  version (unsigned varint)  message

The record's key is null. The layout is `MetadataRecordSerde` / `AbstractApiMessageSerde` of Kafka. The version in which
a record is written depends on the cluster's `metadata.version`, so that older nodes can read the record
(`record_version`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.core.buffers import Buffer
from barnabas.protocol.wire.codec import decode, encode
from barnabas.protocol.wire.errors import WireError
from barnabas.protocol.wire.schema import schema_of
from barnabas.server.metadata.errors import MetadataRecordError
from barnabas.server.metadata.records import nodes as nodes_records
from barnabas.server.metadata.records import other as other_records
from barnabas.server.metadata.records import topics as topics_records
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
    EntityData,
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

__all__ = [
    "FRAME_VERSION",
    "LATEST_METADATA_VERSION",
    "MIN_METADATA_VERSION",
    "RECORDS",
    "AbortTransactionRecord",
    "AccessControlEntryRecord",
    "BeginTransactionRecord",
    "BrokerEndpoint",
    "BrokerFeature",
    "BrokerRegistrationChangeRecord",
    "ClearElrRecord",
    "ClientQuotaRecord",
    "ConfigRecord",
    "ControllerEndpoint",
    "ControllerFeature",
    "DelegationTokenRecord",
    "EndTransactionRecord",
    "EntityData",
    "FeatureLevelRecord",
    "FenceBrokerRecord",
    "MetadataRecord",
    "NoOpRecord",
    "PartitionChangeRecord",
    "PartitionRecord",
    "ProducerIdsRecord",
    "RegisterBrokerRecord",
    "RegisterControllerRecord",
    "RemoveAccessControlEntryRecord",
    "RemoveDelegationTokenRecord",
    "RemoveTopicRecord",
    "RemoveUserScramCredentialRecord",
    "TopicRecord",
    "UnfenceBrokerRecord",
    "UnregisterBrokerRecord",
    "UserScramCredentialRecord",
    "ZkMigrationStateRecord",
    "decode_record",
    "encode_record",
    "record_version",
]

FRAME_VERSION: Final = 1

MIN_METADATA_VERSION: Final = 7
"""3.3-IV3, the oldest level that Kafka 4 can read."""
LATEST_METADATA_VERSION: Final = 30
"""4.3-IV0, the newest production level of Kafka 4.3."""

RECORDS: Final[Mapping[int, type[MetadataRecord]]] = {
    schema_of(cls).key: cls
    for module in (topics_records, nodes_records, other_records)
    for cls in vars(module).values()
    if isinstance(cls, type) and issubclass(cls, MetadataRecord) and cls is not MetadataRecord
}

# (metadata.version, the record version that this level introduced), newest first; MetadataVersion.java
_VERSIONS: Final[Mapping[type[MetadataRecord], tuple[tuple[int, int], ...]]] = {
    nodes_records.RegisterBrokerRecord: ((30, 4), (17, 3), (8, 2), (7, 1)),
    nodes_records.BrokerRegistrationChangeRecord: ((30, 3), (17, 2), (7, 1)),
    topics_records.PartitionRecord: ((23, 2), (17, 1)),
    topics_records.PartitionChangeRecord: ((23, 2), (17, 1)),
}


def record_version(kind: type[MetadataRecord], metadata_version: int = LATEST_METADATA_VERSION) -> int:
    """The version in which a cluster at `metadata_version` writes records of this kind."""
    for since, version in _VERSIONS.get(kind, ()):
        if metadata_version >= since:
            return version
    return 0


def encode_record(record: MetadataRecord, metadata_version: int = LATEST_METADATA_VERSION) -> bytes:
    """The value of a record in `__cluster_metadata`. Raises WireError if the level's version lacks a field that is
    set."""
    version = record_version(type(record), metadata_version)
    return bytes((FRAME_VERSION, schema_of(record).key, version)) + encode(record, version)


def decode_record(value: Buffer) -> MetadataRecord:
    """Decode a record value. Raises MetadataRecordError if the value is not a metadata record."""
    if len(value) < 3:
        raise MetadataRecordError(f"A metadata record of {len(value)} bytes is too short to hold a frame.")
    frame, key, version = value[0], value[1], value[2]
    if frame != FRAME_VERSION:
        raise MetadataRecordError(
            f"Metadata record frame version {frame} is unknown, only {FRAME_VERSION} can be read: "
            "the log was written by a newer program or is damaged."
        )
    kind = RECORDS.get(key)  # keys and versions below 128 are varints of one byte
    if kind is None or key >= 128 or version not in schema_of(kind).versions:
        raise MetadataRecordError(
            f"Metadata record type {key} version {version} is unknown: the log was written by a newer program. Run a "
            "version of Barnabas that knows the metadata.version of the cluster."
        )
    try:
        return decode(kind, version, value, 3)
    except WireError as error:
        raise MetadataRecordError(f"A {kind.__name__} version {version} cannot be read: {error}") from error
