"""Shell: changes of groups, share groups and transactions."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from barnabas.client.admin.share_groups import alter_share_group_offsets, list_share_group_offsets
from barnabas.client.values import EARLIEST, LATEST
from barnabas.console.access.users import Role
from barnabas.console.changes.change import OFFSET_MAX, Change, Outcome, confirmed, number, raise_first, required
from barnabas.console.documents.groups import plan_of
from barnabas.console.errors import BadInputError, NotFoundError
from barnabas.console.sources import Call
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition

_TIMEOUT_MS: Final = 10_000


def group_link(name: str, noun: str = "groups") -> str:
    return f"/{noun}/{quote(name, safe='')}"


async def reset_offsets(call: Call) -> Outcome:
    """Commit the planned offsets. The group must have no members."""
    name = call.path["group"]
    plan = await plan_of(call, name, call.query.get("topics", "").split(), required(call, "to"))
    offsets = {row.partition: row.new for row in plan if row.old != row.new}
    if offsets:
        raise_first(await call.admin.alter_group_offsets(name, offsets))
    return Outcome(f"{len(offsets)} offsets of {name} were reset.", group_link(name), {"reset": len(offsets)})


async def delete_group(call: Call) -> Outcome:
    name = call.path["group"]
    confirmed(call, name)
    raise_first(await call.admin.delete_groups([name]))
    return Outcome(f"The group {name} was deleted.", "/groups")


async def reset_share_group(call: Call) -> Outcome:
    """Set the start offsets of a share group without members to the earliest or latest records."""
    name, to = call.path["group"], required(call, "to")
    if to not in ("earliest", "latest"):
        raise BadInputError("A share group is reset to earliest or latest.")
    deadline = call.admin.cluster.deadline(_TIMEOUT_MS)
    known = await list_share_group_offsets(call.admin.cluster, name, deadline=deadline)
    found = await call.admin.list_offsets(dict.fromkeys(known, EARLIEST if to == "earliest" else LATEST))
    raise_first(found)
    offsets = {p: answer.offset for p, answer in found.items() if not isinstance(answer, KafkaError)}
    raise_first(await alter_share_group_offsets(call.admin.cluster, name, offsets, deadline=deadline))
    return Outcome(f"{len(offsets)} offsets of {name} were reset.", group_link(name, "share-groups"))


async def fence_producer(call: Call) -> Outcome:
    """Abort the open transaction of an id, and fence its producer."""
    name = call.path["id"]
    await call.admin.fence_producer(name)
    return Outcome(f"The producer of {name} is fenced.", f"/transactions/{quote(name, safe='')}")


async def abort_hanging(call: Call) -> Outcome:
    """Abort a hanging transaction in one partition."""
    partition = TopicPartition(required(call, "topic"), number(call, "partition"))
    since = number(call, "open_since", most=OFFSET_MAX)
    producers = (await call.admin.describe_producers([partition]))[partition]
    if isinstance(producers, KafkaError):
        raise producers
    found = next((p for p in producers if p.open_since == since), None)
    if found is None:
        raise NotFoundError(f"No transaction is open in {partition} since offset {since} any more.")
    await call.admin.abort_transaction(partition, found)
    return Outcome(f"The transaction of producer {found.producer_id} in {partition} was aborted.", "/transactions")


GROUP_CHANGES: Final = (
    Change("/groups/{group:path}/reset", "reset offsets", Role.EDITOR, reset_offsets, ("to", "topics")),
    Change("/groups/{group:path}/delete", "delete group", Role.ADMIN, delete_group),
    Change("/share-groups/{group:path}/reset", "reset share group", Role.EDITOR, reset_share_group, ("to",)),
    Change("/transactions/{id:path}/fence", "fence producer", Role.ADMIN, fence_producer),
    Change("/transactions/abort", "abort transaction", Role.ADMIN, abort_hanging, ("topic", "partition", "open_since")),
)
