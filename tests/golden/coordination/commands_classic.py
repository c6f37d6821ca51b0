"""Script commands of members that use the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""

from __future__ import annotations

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages import (
    heartbeat,
    join_group,
    leave_group,
    sync_group,
)
from barnabas.protocol.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from barnabas.server.coordination.group.classic import consumer_protocol
from tests.golden.coordination.show import make_assignment, show_assignment
from tests.golden.coordination.stage import Stage
from tests.unit.server.coordination.kit import Context


async def join(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    coordinator = await stage.start()
    name = words[0]
    version = int(options.get("v", 9))
    names = [protocol for protocol in options.get("protocols", "range").split(",") if protocol]
    subscription = consumer_protocol.build_subscription(
        ConsumerProtocolSubscription(topics=options.get("topics", "t").split(",")), 3 if version >= 5 else 0
    )
    request = join_group.JoinGroupRequest(
        group_id=options.get("group", "g"),
        session_timeout_ms=int(options.get("session", 10_000)),
        rebalance_timeout_ms=int(options.get("rebalance", 30_000)) if version else -1,
        member_id=stage.member(options.get("member", f"@{name}")),
        group_instance_id=options.get("instance"),
        protocol_type=options.get("type", "consumer"),
        protocols=[join_group.JoinGroupRequestProtocol(name=p, metadata=subscription) for p in names],
        reason=options.get("reason"),
    )

    def show(r: join_group.JoinGroupResponse) -> str:
        if r.error_code in (0, ErrorCode.MEMBER_ID_REQUIRED):
            stage.members[name] = r.member_id
            stage.generations[name] = r.generation_id
        text = ErrorCode(r.error_code).name
        if r.error_code:
            return text + (f" member={r.member_id}" if r.member_id else "")
        members = " ".join(m.member_id for m in r.members)
        skip = " skip_assignment" if r.skip_assignment else ""
        return (
            f"{text} generation={r.generation_id} protocol={r.protocol_name} leader={r.leader}"
            f" member={r.member_id} members=[{members}]{skip}"
        )

    stage.call(name, coordinator.join_group(Context(version, options.get("client", name)), request), show)


async def sync(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    coordinator = await stage.start()
    name = words[0]
    version = int(options.get("v", 5))
    assignments = [
        sync_group.SyncGroupRequestAssignment(member_id=stage.member(f"@{who}"), assignment=make_assignment(text))
        for who, text in (item.split(":", 1) for item in options.get("assign", "").split(",") if item)
    ]
    request = sync_group.SyncGroupRequest(
        group_id=options.get("group", "g"),
        generation_id=int(options.get("generation", stage.generations.get(name, -1))),
        member_id=stage.member(options.get("member", f"@{name}")),
        group_instance_id=options.get("instance"),
        protocol_type=options.get("type", "consumer") if version >= 5 else None,
        protocol_name=options.get("protocol", "range") if version >= 5 else None,
        assignments=assignments,
    )

    def show(r: sync_group.SyncGroupResponse) -> str:
        if r.error_code:
            return ErrorCode(r.error_code).name
        return f"NONE protocol={r.protocol_name} assignment={show_assignment(r.assignment)}"

    stage.call(name, coordinator.sync_group(Context(version), request), show)


async def beat(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    coordinator = await stage.start()
    name = words[0]
    request = heartbeat.HeartbeatRequest(
        group_id=options.get("group", "g"),
        generation_id=int(options.get("generation", stage.generations.get(name, -1))),
        member_id=stage.member(options.get("member", f"@{name}")),
        group_instance_id=options.get("instance"),
    )
    stage.call(name, coordinator.heartbeat(Context(4), request), lambda r: ErrorCode(r.error_code).name)


async def leave(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    coordinator = await stage.start()
    version = int(options.get("v", 5))
    request = leave_group.LeaveGroupRequest(group_id=options.get("group", "g"))
    if version < 3:
        request.member_id = stage.member(f"@{words[0]}")
    for who in words:
        instance, _, member = who.partition("/")
        if member or who.endswith("/"):  # instance/ or instance/member
            identity = leave_group.MemberIdentity(
                member_id=stage.member(f"@{member}") if member else "", group_instance_id=instance
            )
        else:
            identity = leave_group.MemberIdentity(member_id=stage.member(f"@{who}"))
        request.members.append(identity)

    def show(r: leave_group.LeaveGroupResponse) -> str:
        each = "".join(f" {m.group_instance_id or m.member_id}:{ErrorCode(m.error_code).name}" for m in r.members)
        return ErrorCode(r.error_code).name + each

    stage.call(words[0], coordinator.leave_group(Context(version), request), show)
