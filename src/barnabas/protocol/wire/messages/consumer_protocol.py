"""Table: the subscriptions and assignments of classic consumer groups, opaque bytes in JoinGroup and SyncGroup."""

from __future__ import annotations

from barnabas.protocol.wire.schema import Message, MessageStruct, array, binary, int32, string


class ConsumerProtocolTopicPartition(MessageStruct):
    topic: str = string()
    partitions: list[int] = array(int32)


class ConsumerProtocolSubscription(Message, versions="0-3"):
    topics: list[str] = array(string)
    user_data: bytes | None = binary(null="0+", default=None)
    owned_partitions: list[ConsumerProtocolTopicPartition] = array(ConsumerProtocolTopicPartition, "1+", ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", null="3+", default=None, ignorable=True)


class ConsumerProtocolAssignment(Message, versions="0-3"):
    assigned_partitions: list[ConsumerProtocolTopicPartition] = array(ConsumerProtocolTopicPartition)
    user_data: bytes | None = binary(null="0+", default=None)
