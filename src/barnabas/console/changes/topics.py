"""Shell: changes of topics: create, delete, partitions, configs, records."""

from __future__ import annotations

import base64
import binascii
from typing import Final
from urllib.parse import quote

from barnabas.client.values import AlterOp, ConfigChange, ConfigResource
from barnabas.console.access.users import Role
from barnabas.console.changes.change import (
    OFFSET_MAX,
    Change,
    Outcome,
    assignments,
    confirmed,
    number,
    raise_first,
    required,
)
from barnabas.console.errors import BadInputError
from barnabas.console.sources import Call
from barnabas.core.ids import TopicPartition
from barnabas.core.secret_names import HIDDEN, is_secret_name

VALUE_BYTES_MAX: Final = 1024 * 1024
_REPLICAS_MAX: Final = 32_767
"""The largest replication factor that a CreateTopics request can have."""


def topic_link(name: str, tab: str = "") -> str:
    return f"/topics/{quote(name, safe='')}{tab}"


async def create_topic(call: Call) -> Outcome:
    name = required(call, "topic")
    created = await call.admin.create_topic(
        name,
        number(call, "partitions", otherwise=-1, least=-1),
        number(call, "replicas", otherwise=-1, least=-1, most=_REPLICAS_MAX),
        assignments(call.query.get("configs", "")),
    )
    return Outcome(f"The topic {name} was created.", topic_link(name), {"topic_id": str(created.topic_id)})


async def delete_topic(call: Call) -> Outcome:
    name = call.path["topic"]
    confirmed(call, name)
    raise_first(await call.admin.delete_topics([name]))
    return Outcome(f"The topic {name} was deleted.", "/topics")


async def add_partitions(call: Call) -> Outcome:
    name = call.path["topic"]
    total = number(call, "partitions", least=1)
    raise_first(await call.admin.create_partitions({name: total}))
    return Outcome(f"{name} has {total} partitions now.", topic_link(name))


async def set_config(call: Call) -> Outcome:
    """Set one config of a topic, or with `operation=delete` return it to its default."""
    name = call.path["topic"]
    return await alter_config(call, ConfigResource.topic(name), topic_link(name, "/configs"))


async def alter_config(call: Call, resource: ConfigResource, link: str) -> Outcome:
    """Set the config of a topic or broker that the form names, or delete it. A secret value is not in the outcome."""
    config = required(call, "config")
    if call.query.get("operation") == "delete":
        change, text = ConfigChange(config, None, AlterOp.DELETE), f"{config} has its default again."
    else:
        value = call.query.get("value", "")
        shown = HIDDEN if is_secret_name(config) else value
        change, text = ConfigChange(config, value), f"{config} is {shown} now."
    raise_first(await call.admin.incremental_alter_configs({resource: [change]}))
    return Outcome(text, link)


async def delete_records(call: Call) -> Outcome:
    name = call.path["topic"]
    confirmed(call, name)
    partition, before = number(call, "partition"), number(call, "before", least=-1, most=OFFSET_MAX)
    found = await call.admin.delete_records({TopicPartition(name, partition): before})
    raise_first(found)
    return Outcome(f"{name}-{partition} begins at offset {next(iter(found.values()))} now.", topic_link(name))


async def produce(call: Call) -> Outcome:
    """Produce one record. An empty key is no key; `null` as the format of the value makes a tombstone."""
    name = call.path["topic"]
    value = payload(call, "value")
    key = payload(call, "key") if call.query.get("key", "") else None
    partition = call.query.get("partition", "").strip()
    producer = await call.sources.producer()
    sent = await producer.send_and_wait(
        name,
        value,
        key=key,
        partition=number(call, "partition") if partition else None,
        headers=[(header, text.encode()) for header, text in assignments(call.query.get("headers", "")).items()],
    )
    return Outcome(
        f"The record is in {name}-{sent.partition} at offset {sent.offset}.",
        f"{topic_link(name, '/messages')}?start=positions&positions={sent.partition}:{sent.offset}"
        f"&partitions={sent.partition}",
        {"partition": sent.partition, "offset": sent.offset, "timestamp": sent.timestamp},
    )


def payload(call: Call, name: str) -> bytes | None:
    """The bytes of a key or value as the form gives them. Raises BadInputError."""
    text, form = call.query.get(name, ""), call.query.get(f"{name}_format") or "text"
    try:
        match form:
            case "null":
                return None
            case "hex":
                data = bytes.fromhex(text)
            case "base64":
                data = base64.b64decode(text, validate=True)
            case "text":
                data = text.encode()
            case _:
                raise BadInputError(f"{name}_format is text, hex, base64 or null, not {form!r}.")
    except (ValueError, binascii.Error) as error:
        raise BadInputError(f"The {name} is not {form}: {error}") from None
    if len(data) > VALUE_BYTES_MAX:
        raise BadInputError(f"The {name} has {len(data)} bytes; the console sends at most {VALUE_BYTES_MAX}.")
    return data


TOPIC_CHANGES: Final = (
    Change("/topics/create", "create topic", Role.EDITOR, create_topic, ("topic", "partitions", "replicas", "configs")),
    Change("/topics/{topic}/delete", "delete topic", Role.ADMIN, delete_topic),
    Change("/topics/{topic}/partitions", "add partitions", Role.EDITOR, add_partitions, ("partitions",)),
    Change("/topics/{topic}/config", "alter topic config", Role.EDITOR, set_config, ("config", "value", "operation")),
    Change("/topics/{topic}/delete-records", "delete records", Role.ADMIN, delete_records, ("partition", "before")),
    Change("/topics/{topic}/produce", "produce", Role.EDITOR, produce, ("partition",)),
)
