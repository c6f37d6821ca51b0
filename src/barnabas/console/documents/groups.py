"""Shell: the lists of groups and share groups, one group with its lag, plans of resets, explanations."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from barnabas.client.admin.offset_resets import ResetTarget, describe_lag, plan_reset
from barnabas.client.admin.share_groups import list_share_group_offsets
from barnabas.client.explanations import group as explained
from barnabas.client.values import GroupDescription
from barnabas.console.documents.lists import page_of
from barnabas.console.errors import BadInputError, NotFoundError
from barnabas.console.sampling.charts import draw
from barnabas.console.sources import Call
from barnabas.console.units import count_text
from barnabas.core.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.core.known_sums import sum_of_known

_TIMEOUT_MS: Final = 10_000


async def group_list(call: Call) -> dict[str, Any]:
    """All groups but share groups, with their lag at the last sample."""
    sampler = call.sources.sampler
    rows = [
        {
            "group": group.group_id,
            "state": group.state.value,
            "type": group.type or group.protocol_type,
            "lag": sampler.sample.lags.get(group.group_id),
        }
        for group in await call.admin.list_groups()
        if group.type != "share"
    ]
    sorts = {
        "group": lambda row: row["group"],
        "state": lambda row: row["state"],
        "type": lambda row: row["type"],
        "lag": lambda row: -1 if row["lag"] is None else row["lag"],
    }
    return page_of(rows, call.query, name="group", sorts=sorts)


async def describe(call: Call, kind: str | None = None) -> GroupDescription:
    """The group in the path. Raises NotFoundError, also for a group of another kind than `kind`."""
    name = call.path["group"]
    found = (await call.admin.describe_groups([name]))[name]
    if isinstance(found, KafkaError):
        if found.code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INVALID_GROUP_ID):
            raise NotFoundError(f"The group {name!r} does not exist.")
        raise found
    if kind is not None and found.type != kind:
        raise NotFoundError(f"{name!r} is a {found.type} group, not a {kind} group.")
    if found.state.value == "Dead" and not found.members:
        raise NotFoundError(f"The group {name!r} does not exist.")
    return found


async def group(call: Call) -> dict[str, Any]:
    """One group: members, and the lag of each partition, now and over the last hour."""
    found = await describe(call)
    lag = await describe_lag(call.admin, found)
    for row in lag:
        row["host"] = (row["host"] or "").removeprefix("/")
    ring = call.sources.sampler.ring
    name = ("group", found.group_id, "lag")
    return {
        **_head(found),
        "members": [_member(m) for m in found.members],
        "lag": lag,
        "total_lag": sum_of_known(row["lag"] for row in lag),
        "charts": [draw("Lag", [("records", ring.points(name))], count_text)],
    }


def _head(found: GroupDescription) -> dict[str, Any]:
    return {
        "group": found.group_id,
        "state": found.state.value,
        "type": found.type,
        "assignor": found.assignor,
        "coordinator": found.coordinator,
        "epoch": found.group_epoch,
    }


def _member(member: Any) -> dict[str, Any]:
    by_topic: dict[str, list[int]] = {}
    for partition in sorted(member.assignment):
        by_topic.setdefault(partition.topic, []).append(partition.partition)
    return {
        "member": member.member_id,
        "client": member.client_id,
        "host": member.client_host.removeprefix("/"),
        "instance": member.group_instance_id,
        "rack": member.rack,
        "assignment": by_topic,
        "partitions": len(member.assignment),
    }


async def reset_plan(call: Call) -> dict[str, Any]:
    """What a reset of the group's offsets would do: the form, and with `to` the plan. Changes nothing."""
    found = await describe(call)
    to = call.query.get("to", "").strip()
    topics = [part.strip() for part in call.query.get("topics", "").split() if part.strip()]
    document: dict[str, Any] = {**_head(found), "to": to, "topics": " ".join(topics), "plan": None, "moves": 0}
    document["can_reset"] = not found.members
    if to:
        plan = await plan_of(call, found.group_id, topics, to)
        document["plan"] = [
            {
                "topic": row.partition.topic,
                "partition": row.partition.partition,
                "old": row.old,
                "new": row.new,
                "moved": None if row.old is None else row.new - row.old,
            }
            for row in plan
        ]
        document["moves"] = sum(row.old != row.new for row in plan)
    return document


async def plan_of(call: Call, group_id: str, topics: list[str], to: str) -> list[Any]:
    """The rows of a reset. Raises BadInputError for a target that is no position."""
    try:
        target = ResetTarget.parse(to)
    except ValueError as error:
        raise BadInputError(f"{error}.") from None
    return await plan_reset(call.admin, group_id, topics, target)


async def why(call: Call) -> dict[str, Any]:
    """What the group waits for, for which members, and when its offsets expire."""
    found = await describe(call)
    try:
        facts = (await call.admin.explain_groups([found.group_id]))[found.group_id]
    except BarnabasError as error:
        return {
            **_head(found),
            "answers": {},
            "facts": None,
            "problem": f"Explanations need a Barnabas broker: {error}",
        }
    if isinstance(facts, KafkaError):
        raise facts
    return {**_head(found), "answers": explained.answers(facts), "facts": asdict(facts), "problem": ""}


# -- share groups ------------------------------------------------------------------------------------------------------


async def share_group_list(call: Call) -> dict[str, Any]:
    rows = [
        {"group": group.group_id, "state": group.state.value} for group in await call.admin.list_groups(types=["share"])
    ]
    return page_of(rows, call.query, name="group", sorts={"group": lambda r: r["group"], "state": lambda r: r["state"]})


async def share_group(call: Call) -> dict[str, Any]:
    """One share group: members, and the start offset and lag of each partition."""
    found = await describe(call, "share")
    deadline = call.admin.cluster.deadline(_TIMEOUT_MS)
    offsets = await list_share_group_offsets(call.admin.cluster, found.group_id, deadline=deadline)
    rows = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "start": None if isinstance(offset, KafkaError) else offset.start_offset,
            "lag": None if isinstance(offset, KafkaError) else offset.lag,
            "error": str(offset) if isinstance(offset, KafkaError) else "",
        }
        for partition, offset in sorted(offsets.items())
    ]
    return {**_head(found), "members": [_member(m) for m in found.members], "offsets": rows}
