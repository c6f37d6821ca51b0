"""Codec: records of internal topics as text, in the JSON format that kafka-dump-log prints."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from barnabas.core.errors import BarnabasError
from barnabas.core.ids import uuid_to_text
from barnabas.protocol.records.batch import Record

if TYPE_CHECKING:
    from barnabas.protocol.wire.schema import MessageField, MessageStruct
    from barnabas.server.coordination.log_format import LogFormat

_CONSUMER_PROTOCOL_VERSION_MAX: Final = 3

Decoder = Callable[[Record], str]


def metadata_record(record: Record) -> str:
    """A record of `__cluster_metadata` as JSON."""
    from barnabas.server.metadata.records.codec import decode_record

    return _payload(record, decode_record, lambda value: value[2])


def offsets_record(record: Record) -> str:
    """A record of `__consumer_offsets` as text."""
    from barnabas.server.coordination.group.shard import FORMAT

    return _coordinator_record(FORMAT, record)


def transaction_record(record: Record) -> str:
    """A record of `__transaction_state` as text."""
    from barnabas.server.coordination.transaction.records import FORMAT

    return _coordinator_record(FORMAT, record)


def share_state_record(record: Record) -> str:
    """A record of `__share_group_state` as text."""
    from barnabas.server.coordination.share.records import FORMAT

    return _coordinator_record(FORMAT, record)


def remote_log_record(record: Record) -> str:
    """A record of `__remote_log_metadata` as JSON; Kafka's tool prints the `toString` of a Java class."""
    from barnabas.protocol.wire.remote_log_metadata import decode_metadata

    return _payload(record, decode_metadata, lambda _: 0)


def _payload(record: Record, decode: Callable[[Any], Any], version_of: Callable[[Any], int]) -> str:
    """The message in the value of a record as JSON; nothing if the record has no value."""
    if record.value is None:
        return ""
    try:
        message = decode(record.value)
    except BarnabasError as error:
        return f" (not readable: {error})"
    version = version_of(record.value)
    return " payload: " + _json(
        {"type": _constant(_name(message)), "version": version, "data": as_json(message, version)}
    )


DECODERS: Final[Mapping[str, Decoder]] = {
    "__cluster_metadata": metadata_record,
    "__consumer_offsets": offsets_record,
    "__transaction_state": transaction_record,
    "__share_group_state": share_state_record,
    "__remote_log_metadata": remote_log_record,
}
"""The decoder of each internal topic, by the topic's name."""


def _coordinator_record(form: LogFormat, record: Record) -> str:
    from barnabas.server.coordination.ports import LogRecord

    if record.key is None:
        return " (no key)"
    try:
        decoded = form.decode(LogRecord(record.key, record.value))
    except BarnabasError as error:
        return f" (not readable: {error})"
    if decoded is None:
        return " (of a kind that this version does not know)"
    kind = int.from_bytes(record.key[:2], "big")
    key = _json({"type": str(kind), "data": as_json(decoded.key, 0)})
    if decoded.value is None:
        return f" key: {key} payload: <DELETE>"
    version = decoded.version or 0
    data = as_json(decoded.value, version)
    if data.get("protocolType") == "consumer":
        for member in data["members"]:
            _open_member(member)
    return f" key: {key} payload: " + _json({"version": str(version), "data": data})


def _open_member(member: dict[str, Any]) -> None:
    """Decode in place the subscription and the assignment of a classic group member, which are messages inside bytes
    fields.
    """
    from barnabas.protocol.wire.codec import decode
    from barnabas.protocol.wire.messages.consumer_protocol import (
        ConsumerProtocolAssignment,
        ConsumerProtocolSubscription,
    )

    kinds: dict[str, type[MessageStruct]] = {
        "subscription": ConsumerProtocolSubscription,
        "assignment": ConsumerProtocolAssignment,
    }
    for name, kind in kinds.items():
        data = base64.b64decode(member[name])
        if len(data) < 2:
            continue
        version = min(int.from_bytes(data[:2], "big"), _CONSUMER_PROTOCOL_VERSION_MAX)
        with suppress(BarnabasError):  # another client's own format: the bytes stay undecoded
            member[name] = as_json(decode(kind, version, data, 2), version)


def as_json(message: MessageStruct, version: int) -> dict[str, Any]:
    """A message as Kafka's generated JSON converters write it: field names of the spec, tagged fields only if they are
    set.
    """
    from barnabas.protocol.wire.schema import schema_of

    shown = {}
    for field in schema_of(message).fields:
        value = getattr(message, field.name)
        if version in field.tagged:
            if value == field.new_default():
                continue
        elif version not in field.versions:
            continue
        shown[_camel(field.name)] = _value(field, value, version)
    return shown


def _value(field: MessageField, value: Any, version: int) -> Any:
    if value is None:
        return None
    if field.kind == "struct":
        return as_json(value, version)
    if field.kind == "array":
        return [_scalar(v) if isinstance(field.element, str) else as_json(v, version) for v in value]
    return _scalar(value)


def _scalar(value: Any) -> Any:
    if isinstance(value, UUID):
        return uuid_to_text(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(bytes(value)).decode()
    return value


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _name(message: MessageStruct) -> str:
    from barnabas.protocol.wire.schema import schema_of

    return schema_of(message).name


def _constant(name: str) -> str:
    """Convert the name of a message: RegisterBrokerRecord becomes REGISTER_BROKER_RECORD."""
    return "".join("_" + c if c.isupper() and i else c for i, c in enumerate(name)).upper()


def _camel(name: str) -> str:
    first, *rest = name.rstrip("_").split("_")
    return first + "".join(part.capitalize() for part in rest)
