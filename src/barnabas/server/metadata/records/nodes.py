"""Table: records about brokers and controllers. Names, keys, fields and versions are those of Kafka 4.3."""

from __future__ import annotations

from uuid import UUID

from barnabas.protocol.wire.schema import MessageStruct, array, boolean, int8, int16, int32, int64, string, uint16, uuid
from barnabas.server.metadata.records.base import MetadataRecord


class BrokerEndpoint(MessageStruct):
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class BrokerFeature(MessageStruct):
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class RegisterBrokerRecord(MetadataRecord, key=0, versions="0-4", flexible="0+"):
    """A broker has registered with a new epoch (an offset of the metadata log)."""

    broker_id: int = int32()
    is_migrating_zk_broker: bool = boolean("2+")
    incarnation_id: UUID = uuid()
    broker_epoch: int = int64()
    end_points: list[BrokerEndpoint] = array(BrokerEndpoint)
    features: list[BrokerFeature] = array(BrokerFeature)
    rack: str | None = string(null="0+")
    fenced: bool = boolean(default=True)
    in_controlled_shutdown: bool = boolean("1+")
    log_dirs: list[UUID] = array(uuid, "3+", tag=0)
    cordoned_log_dirs: list[UUID] | None = array(uuid, "4+", null="4+", default=None, tag=1)


class UnregisterBrokerRecord(MetadataRecord, key=1, versions="0", flexible="0+"):
    """A broker was unregistered."""

    broker_id: int = int32()
    broker_epoch: int = int64()


class FenceBrokerRecord(MetadataRecord, key=7, versions="0", flexible="0+"):
    """A broker may no longer lead (written by Kafka before 3.3)."""

    id: int = int32()
    epoch: int = int64()


class UnfenceBrokerRecord(MetadataRecord, key=8, versions="0", flexible="0+"):
    """A broker may lead again (written by Kafka before 3.3)."""

    id: int = int32()
    epoch: int = int64()


class BrokerRegistrationChangeRecord(MetadataRecord, key=17, versions="0-3", flexible="0+"):
    """A change of a broker's state: -1 and 1 mean no and yes, 0 means no change."""

    broker_id: int = int32()
    broker_epoch: int = int64()
    fenced: int = int8(tag=0)
    in_controlled_shutdown: int = int8("1+", tag=1)
    log_dirs: list[UUID] = array(uuid, "2+", tag=2)
    cordoned_log_dirs: list[UUID] | None = array(uuid, "3+", null="3+", default=None, tag=3)


class ControllerEndpoint(MessageStruct):
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class ControllerFeature(MessageStruct):
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class RegisterControllerRecord(MetadataRecord, key=27, versions="0", flexible="0+"):
    """A controller has registered (KIP-919)."""

    controller_id: int = int32()
    incarnation_id: UUID = uuid()
    zk_migration_ready: bool = boolean()
    end_points: list[ControllerEndpoint] = array(ControllerEndpoint)
    features: list[ControllerFeature] = array(ControllerFeature)
