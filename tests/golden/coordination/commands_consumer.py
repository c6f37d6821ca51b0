"""Script commands of members that use the consumer protocol (KIP-848)."""

from __future__ import annotations

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages import (
    consumer_group_describe as cgd,
)
from barnabas.protocol.wire.messages import (
    consumer_group_heartbeat as cgh,
)
from tests.golden.coordination.show import show_ids
from tests.golden.coordination.stage import Stage
from tests.unit.server.coordination.kit import Context


async def poll(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """ConsumerGroupHeartbeat: poll NAME [epoch=] [topics=|topics=null] [regex=] [owned=t:0,1;u:0]"""
    coordinator = await stage.start()
    name = words[0]
    epoch = int(options.get("epoch", stage.epochs.get(name, 0)))
    joining = epoch == 0
    version = int(options.get("v", 1))
    owned = None
    if "owned" in options or joining:
        owned = []
        for item in filter(None, options.get("owned", "").split(";")):
            topic, partitions = item.split(":")
            view = stage.catalog.by_name(topic)
            assert view is not None
            owned.append(
                cgh.TopicPartitions(topic_id=view.topic_id, partitions=[int(p) for p in partitions.split(",")])
            )
    member_id = stage.members.setdefault(name, f"member-{name}") if version else stage.members.get(name, "")
    request = cgh.ConsumerGroupHeartbeatRequest(
        group_id=options.get("group", "g"),
        member_id=options.get("member", member_id),
        member_epoch=epoch,
        instance_id=options.get("instance"),
        rack_id=options.get("rack"),
        rebalance_timeout_ms=int(options.get("rebalance", 30_000 if joining else -1)),
        subscribed_topic_names=_topic_names(options.get("topics"), joining=joining),
        subscribed_topic_regex=options.get("regex"),
        server_assignor=options.get("assignor"),
        topic_partitions=owned,
    )

    def show(r: cgh.ConsumerGroupHeartbeatResponse) -> str:
        if r.error_code:
            return ErrorCode(r.error_code).name
        stage.members[name] = r.member_id or stage.members[name]
        stage.epochs[name] = r.member_epoch
        if r.assignment is None:
            return f"NONE epoch={r.member_epoch}"
        return f"NONE epoch={r.member_epoch} assignment={show_ids(stage.catalog, r.assignment.topic_partitions)}"

    stage.call(name, coordinator.consumer_group_heartbeat(Context(version, name), request), show)


def _topic_names(option: str | None, *, joining: bool) -> list[str] | None:
    if option is None:
        return [] if joining else None
    return None if option == "null" else option.split(",")


async def describe_consumer(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    coordinator = await stage.start()
    request = cgd.ConsumerGroupDescribeRequest(group_ids=words or ["g"])

    def show(r: cgd.ConsumerGroupDescribeResponse) -> str:
        each = []
        for g in r.groups:
            if g.error_code:
                each.append(f"{g.group_id} {ErrorCode(g.error_code).name}")
                continue
            members = " ".join(
                f"{m.member_id}@{m.member_epoch}({show_ids(stage.catalog, m.assignment.topic_partitions)}"
                f"->{show_ids(stage.catalog, m.target_assignment.topic_partitions)})"
                for m in g.members
            )
            each.append(
                f"{g.group_id} {g.group_state} epoch={g.group_epoch} assigned={g.assignment_epoch}"
                f" {g.assignor_name} [{members}]"
            )
        return "; ".join(each)

    stage.call("admin", coordinator.consumer_group_describe(Context(1), request), show)
