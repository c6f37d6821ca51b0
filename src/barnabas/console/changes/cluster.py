"""Shell: changes of brokers, moves, schemas and connectors."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from barnabas.client.admin.elections import ElectionType
from barnabas.client.values import ConfigResource
from barnabas.console.access.users import Role
from barnabas.console.changes.change import Change, Outcome, confirmed, number, raise_first, required
from barnabas.console.changes.topics import alter_config
from barnabas.console.errors import BadInputError
from barnabas.console.sources import Call
from barnabas.core.errors import ErrorCode
from barnabas.core.ids import TopicPartition
from barnabas.registry.values import Schema, SchemaType


async def set_broker_config(call: Call) -> Outcome:
    broker_id = call.path["broker"]
    if not broker_id.isdecimal():
        raise BadInputError(f"A broker's id is a number, not {broker_id!r}.")
    return await alter_config(call, ConfigResource.broker(int(broker_id)), f"/brokers/{broker_id}")


async def elect_preferred(call: Call) -> Outcome:
    """Elect the preferred replicas of all partitions as leaders."""
    results = await call.admin.elect_leaders(None, ElectionType.PREFERRED)
    failed = {p: e for p, e in results.items() if e is not None and e.code is not ErrorCode.ELECTION_NOT_NEEDED}
    raise_first(failed)
    return Outcome(f"{sum(e is None for e in results.values())} partitions have another leader now.", "/brokers")


async def cancel_move(call: Call) -> Outcome:
    partition = TopicPartition(required(call, "topic"), number(call, "partition"))
    raise_first(await call.admin.alter_partition_reassignments({partition: None}))
    return Outcome(f"The move of {partition} is cancelled.", "/moves")


async def move_partition(call: Call) -> Outcome:
    """Move the replicas of a partition to other brokers."""
    partition = TopicPartition(required(call, "topic"), number(call, "partition"))
    text = required(call, "replicas")
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) < 10 for part in parts):
        raise BadInputError(f"replicas are broker ids with commas between them, the leader first, not {text!r}.")
    raise_first(await call.admin.alter_partition_reassignments({partition: [int(part) for part in parts]}))
    return Outcome(f"{partition} moves to brokers {', '.join(parts)}.", "/moves")


# -- schemas -----------------------------------------------------------------------------------------------------------


def _schema(call: Call) -> Schema:
    kind = call.query.get("type") or "AVRO"
    if kind not in tuple(SchemaType):
        raise BadInputError(f"type is AVRO, JSON or PROTOBUF, not {kind!r}.")
    return Schema(required(call, "schema"), SchemaType(kind))


async def check_schema(call: Call) -> Outcome:
    """Check whether a schema could be the next version of its subject. Changes nothing."""
    name = call.path["subject"]
    problems = await call.sources.registry.problems(name, _schema(call))
    link = f"/schemas/{quote(name, safe='')}"
    document = {"compatible": not problems, "problems": problems}
    if problems:
        return Outcome("The schema is not compatible: " + "; ".join(problems[:10]), link, document)
    return Outcome("The schema is compatible.", link, document)


async def register_schema(call: Call) -> Outcome:
    name = call.path.get("subject") or required(call, "subject")
    registered = await call.sources.registry.register(name, _schema(call))
    return Outcome(
        f"{name} has version {registered.version}, with the id {registered.id}.",
        f"/schemas/{quote(name, safe='')}",
        {"version": registered.version, "id": registered.id},
    )


async def set_compatibility(call: Call) -> Outcome:
    name, level = call.path["subject"], required(call, "level")
    await call.sources.registry.set_compatibility(level, name)
    return Outcome(f"The compatibility of {name} is {level} now.", f"/schemas/{quote(name, safe='')}")


async def delete_subject(call: Call) -> Outcome:
    name = call.path["subject"]
    confirmed(call, name)
    versions = await call.sources.registry.delete_subject(name)
    return Outcome(f"{len(versions)} versions of {name} were deleted (soft).", "/schemas")


# -- connectors --------------------------------------------------------------------------------------------------------


async def act_on_connector(call: Call) -> Outcome:
    """Pause, resume, stop or restart a connector."""
    name, action = call.path["connector"], required(call, "action")
    path = f"/connectors/{quote(name, safe='')}"
    match action:
        case "pause" | "resume" | "stop":
            await call.sources.connect("PUT", f"{path}/{action}")
        case "restart":
            await call.sources.connect("POST", f"{path}/restart?includeTasks=true&onlyFailed=false")
        case _:
            raise BadInputError(f"action is pause, resume, stop or restart, not {action!r}.")
    return Outcome(f"{name}: {action} was requested.", path)


CLUSTER_CHANGES: Final = (
    Change(
        "/brokers/{broker}/config",
        "alter broker config",
        Role.ADMIN,
        set_broker_config,
        ("config", "value", "operation"),
    ),
    Change("/brokers/elect", "elect preferred leaders", Role.ADMIN, elect_preferred),
    Change("/moves/cancel", "cancel move", Role.ADMIN, cancel_move, ("topic", "partition")),
    Change("/moves/start", "move partition", Role.ADMIN, move_partition, ("topic", "partition", "replicas")),
    Change("/schemas/register", "register schema", Role.EDITOR, register_schema, ("subject", "type")),
    Change("/schemas/{subject:path}/check", "check schema", Role.VIEWER, check_schema, ("type",), is_check=True),
    Change("/schemas/{subject:path}/register", "register schema", Role.EDITOR, register_schema, ("type",)),
    Change("/schemas/{subject:path}/compatibility", "set compatibility", Role.EDITOR, set_compatibility, ("level",)),
    Change("/schemas/{subject:path}/delete", "delete subject", Role.ADMIN, delete_subject),
    Change("/connectors/{connector:path}/act", "act on connector", Role.EDITOR, act_on_connector, ("action",)),
)
