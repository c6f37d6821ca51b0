"""Reads a scripted conversation with a group coordinator, and says what came out of it.

A script is a list of steps, each a command, a line of dashes, and what happened:

    join a client=c1 protocols=range
    ----
    a: MEMBER_ID_REQUIRED member=@a

`a` names a client; `@a` stands for the member id it was given last. Commands are listed in `COMMANDS`; options are
`name=value`. What happened is, in order: responses as they arrived, then the records that were appended. Time is
virtual and moves with `wait` only. The coordinator is the production one, on a partition in memory.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from barnabas.cli import why_group
from barnabas.client.admin.upkeep import group_facts
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import CONSUMER_OFFSETS_TOPIC, TopicPartition
from barnabas.protocol.wire.errors import WireError
from barnabas.protocol.wire.messages import (
    consumer_group_describe as cgd,
)
from barnabas.protocol.wire.messages import (
    consumer_group_heartbeat as cgh,
)
from barnabas.protocol.wire.messages import (
    delete_groups,
    describe_groups,
    explain_group,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
    txn_offset_commit,
)
from barnabas.protocol.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from barnabas.server.coordination.group.classic import consumer_protocol
from barnabas.server.coordination.group.config import GroupCoordinatorConfig
from barnabas.server.coordination.group.service import GroupCoordinator
from barnabas.server.coordination.group.shard import FORMAT
from tests.unit.server.coordination.kit import Catalog, Context, LoopClock, MemoryWriter, run_virtual, seeded

TP = TopicPartition(CONSUMER_OFFSETS_TOPIC, 0)
UUID_TEXT = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


def replay_script(text: str) -> str:
    """The script again, with what happens now in place of what was written."""
    return run_virtual(_run(text))


async def _run(text: str) -> str:
    async with Stage() as stage:
        out = []
        for block in re.split(r"\n\n+", text.strip()):
            lines = block.splitlines()
            comments = [line for line in lines if line.startswith("#")]
            commands = [line for line in lines[: lines.index("----") if "----" in lines else None] if line[:1] != "#"]
            out.append("\n".join(comments + commands))
            if commands:
                for command in commands:
                    await stage.perform(command)
                out[-1] += "\n----\n" + "\n".join(stage.take_events())
        return "\n\n".join(part.rstrip("\n") for part in out) + "\n"


class Stage:
    """A coordinator, and the clients that talk to it."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {
            "group_initial_rebalance_delay_ms": 0,
            "group_consumer_assignment_interval_ms": 0,
        }
        self.catalog = Catalog(t=4, u=2, v=1)
        self.writer = MemoryWriter()
        self.rng = seeded()
        self.epoch = 0
        self.seen = 0
        self.members: dict[str, str] = {}
        self.epochs: dict[str, int] = {}
        self.generations: dict[str, int] = {}
        self.events: list[str] = []
        self.calls: set[asyncio.Task[None]] = set()
        self.coordinator: GroupCoordinator | None = None
        self.owner: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Stage:
        return self

    async def __aexit__(self, *exc: object) -> None:
        for task in (*self.calls, *([self.owner] if self.owner else [])):
            task.cancel()
        await asyncio.gather(*self.calls, *([self.owner] if self.owner else []), return_exceptions=True)

    async def start(self) -> GroupCoordinator:
        if self.coordinator is None:
            config = GroupCoordinatorConfig(**self.settings)
            self.coordinator = GroupCoordinator(config, self.writer, self.catalog, LoopClock(), self.rng)
            self.coordinator.on_partition_count(1)
            self.owner = asyncio.get_running_loop().create_task(self.coordinator.run())
            await settle()
            self.elect()
            await settle()
        return self.coordinator

    def elect(self) -> None:
        assert self.coordinator is not None
        self.writer[TP].leader = True
        self.coordinator.on_elected(0, self.epoch)
        self.epoch += 1

    async def perform(self, line: str) -> None:
        verb, *words = line.split()
        positional = [word for word in words if "=" not in word]
        options = dict(word.split("=", 1) for word in words if "=" in word)
        await COMMANDS[verb](self, positional, options)
        await settle()

    def take_events(self) -> list[str]:
        """Responses, then records."""
        for record in self.writer.records(TP, self.seen):
            self.events.append("log: " + show_record(FORMAT.decode(record)))
        self.seen = self.writer[TP].end
        taken, self.events = [self.rename(event) for event in self.events], []
        return taken

    def rename(self, text: str) -> str:
        for name, member_id in sorted(self.members.items(), key=lambda item: -len(item[1])):
            if member_id:
                text = text.replace(member_id, f"@{name}")
        return UUID_TEXT.sub("<uuid>", text)

    def member(self, name: str) -> str:
        return self.members.get(name[1:], "") if name.startswith("@") else name

    def call(self, name: str, awaitable: Awaitable[Any], show: Callable[[Any], str]) -> None:
        async def answered() -> None:
            try:
                response = await awaitable
                self.events.append(self.rename(f"{name}: {show(response)}"))
            except KafkaError as error:
                self.events.append(f"{name}: raised {error.code.name}")

        task = asyncio.get_running_loop().create_task(answered())
        self.calls.add(task)
        task.add_done_callback(self.calls.discard)


async def settle() -> None:
    """Let everything happen that needs no time."""
    for _ in range(20):
        await asyncio.sleep(0)


# -- commands ----------------------------------------------------------------------------------------------------------


async def config(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """Settings, before anything else."""
    assert stage.coordinator is None
    for name, value in options.items():
        stage.settings[name] = tuple(value.split(",")) if name.endswith("assignors") else int(value)


async def wait(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    await stage.start()
    await asyncio.sleep(float(words[0].removesuffix("s")))


async def fail(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """The next append is refused with this code."""
    stage.writer.refusals.append(ErrorCode[words[0]])


async def hold(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """The followers fall silent: nothing is committed until `release`."""
    stage.writer.hold = True


async def release(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    stage.writer.hold = False
    stage.writer.commit(TP)


async def resign(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    coordinator = await stage.start()
    coordinator.on_resigned(0)


async def restart(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """The partition moves away and comes back: everything volatile is lost."""
    coordinator = await stage.start()
    coordinator.on_resigned(0)
    await settle()
    stage.elect()


async def topics(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """The topics are now these (name=partitions)."""
    coordinator = await stage.start()
    before = set(stage.catalog.names())
    ids = {name: view.topic_id for name, view in stage.catalog.views.items()}
    stage.catalog = Catalog(**{name: int(count) for name, count in options.items()})
    for name, view in list(stage.catalog.views.items()):
        topic_id = ids.get(name) or UUID(int=100 + len(ids) + len(name))
        stage.catalog.views[name] = type(view)(name, topic_id, view.partitions)
    coordinator.on_topics_changed(stage.catalog, frozenset(before - set(options)))


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


async def commit(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """commit NAME t-0=5 u-1=7"""
    coordinator = await stage.start()
    name = words[0]
    version = int(options.pop("v", 9))
    request = offset_commit.OffsetCommitRequest(
        group_id=options.pop("group", "g"),
        generation_id_or_member_epoch=int(
            options.pop("generation", stage.generations.get(name, stage.epochs.get(name, -1)))
        ),
        member_id=stage.member(options.pop("member", f"@{name}")),
        group_instance_id=options.pop("instance", None),
        retention_time_ms=int(options.pop("retention", -1)),
    )
    metadata = options.pop("metadata", "")
    for target, offset in options.items():
        topic, partition = target.rsplit("-", 1)
        view = stage.catalog.by_name(topic)
        request.topics.append(
            offset_commit.OffsetCommitRequestTopic(
                name=topic,
                topic_id=view.topic_id if view else UUID(int=0),
                partitions=[
                    offset_commit.OffsetCommitRequestPartition(
                        partition_index=int(partition), committed_offset=int(offset), committed_metadata=metadata
                    )
                ],
            )
        )

    stage.call(name, coordinator.offset_commit(Context(version), request), show_commit)


async def txn_commit(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """txn-commit PRODUCER_ID t-0=5"""
    coordinator = await stage.start()
    request = txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id=options.pop("group", "g"),
        producer_id=int(words[0]),
        generation_id=int(options.pop("generation", -1)),
        member_id=stage.member(options.pop("member", "")),
    )
    for target, offset in options.items():
        topic, partition = target.rsplit("-", 1)
        request.topics.append(
            txn_offset_commit.TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    txn_offset_commit.TxnOffsetCommitRequestPartition(
                        partition_index=int(partition), committed_offset=int(offset), committed_metadata=""
                    )
                ],
            )
        )
    stage.call(f"producer {words[0]}", coordinator.txn_offset_commit(Context(3), request), show_commit)


async def end_txn(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """end-txn PRODUCER_ID commit|abort"""
    coordinator = await stage.start()
    done = coordinator.complete_transaction(0, int(words[0]), 0, 0, committed=words[1] == "commit")
    stage.call(f"producer {words[0]}", done, lambda _: f"{words[1]} marker written")


async def fetch(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """fetch t-0 t-1, or fetch all"""
    coordinator = await stage.start()
    version = int(options.get("v", 9))
    requested = None
    if words != ["all"]:
        requested = []
        for target in words:
            topic, partition = target.rsplit("-", 1)
            view = stage.catalog.by_name(topic)
            topic_id = view.topic_id if view else UUID(int=99)
            requested.append((topic, topic_id, int(partition)))
    group_id = options.get("group", "g")
    stable = options.get("stable") == "yes"
    if version >= 8:
        group = offset_fetch.OffsetFetchRequestGroup(
            group_id=group_id,
            member_id=stage.member(options["member"]) if "member" in options else None,
            member_epoch=int(options.get("epoch", -1)),
            topics=None
            if requested is None
            else [
                offset_fetch.OffsetFetchRequestTopics(name=t, topic_id=i, partition_indexes=[p])
                for t, i, p in requested
            ],
        )
        request = offset_fetch.OffsetFetchRequest(groups=[group], require_stable=stable)
    else:
        request = offset_fetch.OffsetFetchRequest(
            group_id=group_id,
            topics=None
            if requested is None
            else [offset_fetch.OffsetFetchRequestTopic(name=t, partition_indexes=[p]) for t, _, p in requested],
        )

    def show(r: offset_fetch.OffsetFetchResponse) -> str:
        group = r.groups[0] if r.groups else r
        parts = []
        for topic in group.topics:
            for p in topic.partitions:
                code = "" if p.error_code == 0 else f" {ErrorCode(p.error_code).name}"
                note = f" {p.metadata!r}" if p.metadata else ""
                parts.append(f"{topic.name}-{p.partition_index}={p.committed_offset}{note}{code}")
        return " ".join([ErrorCode(group.error_code).name, *parts])

    stage.call("offsets", coordinator.offset_fetch(Context(version), request), show)


async def delete_offsets(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    coordinator = await stage.start()
    request = offset_delete.OffsetDeleteRequest(group_id=options.get("group", "g"))
    for target in words:
        topic, partition = target.rsplit("-", 1)
        request.topics.append(
            offset_delete.OffsetDeleteRequestTopic(
                name=topic, partitions=[offset_delete.OffsetDeleteRequestPartition(partition_index=int(partition))]
            )
        )

    def show(r: offset_delete.OffsetDeleteResponse) -> str:
        each = [f"{t.name}-{p.partition_index}:{ErrorCode(p.error_code).name}" for t in r.topics for p in t.partitions]
        return " ".join([ErrorCode(r.error_code).name, *each])

    stage.call("admin", coordinator.offset_delete(Context(0), request), show)


async def describe(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    coordinator = await stage.start()
    request = describe_groups.DescribeGroupsRequest(groups=words or ["g"])

    def show(r: describe_groups.DescribeGroupsResponse) -> str:
        each = []
        for g in r.groups:
            code = f" {ErrorCode(g.error_code).name}" if g.error_code else ""
            members = " ".join(
                f"{m.member_id}({m.client_id}{m.client_host}"
                f"{' ' + m.group_instance_id if m.group_instance_id else ''}"
                f" {show_assignment(m.member_assignment)})"
                for m in g.members
            )
            each.append(f"{g.group_id} {g.group_state}{code} {g.protocol_type}/{g.protocol_data} [{members}]")
        return "; ".join(each)

    stage.call("admin", coordinator.describe_groups(Context(int(options.get("v", 6))), request), show)


async def list_all(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    coordinator = await stage.start()
    request = list_groups.ListGroupsRequest(
        states_filter=[s for s in options.get("states", "").split(",") if s],
        types_filter=[s for s in options.get("types", "").split(",") if s],
    )

    def show(r: list_groups.ListGroupsResponse) -> str:
        each = "; ".join(f"{g.group_id} {g.group_type} {g.group_state} {g.protocol_type}" for g in r.groups)
        return f"{ErrorCode(r.error_code).name} {each}"

    stage.call("admin", coordinator.list_groups(Context(5), request), show)


async def delete(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    coordinator = await stage.start()
    request = delete_groups.DeleteGroupsRequest(groups_names=words)

    def show(r: delete_groups.DeleteGroupsResponse) -> str:
        return " ".join(f"{g.group_id}:{ErrorCode(g.error_code).name}" for g in r.results)

    stage.call("admin", coordinator.delete_groups(Context(2), request), show)


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
        return f"NONE epoch={r.member_epoch} assignment={show_ids(stage, r.assignment.topic_partitions)}"

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
                f"{m.member_id}@{m.member_epoch}({show_ids(stage, m.assignment.topic_partitions)}"
                f"->{show_ids(stage, m.target_assignment.topic_partitions)})"
                for m in g.members
            )
            each.append(
                f"{g.group_id} {g.group_state} epoch={g.group_epoch} assigned={g.assignment_epoch}"
                f" {g.assignor_name} [{members}]"
            )
        return "; ".join(each)

    stage.call("admin", coordinator.consumer_group_describe(Context(1), request), show)


async def why(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """What `barnabas groups why` would print."""
    coordinator = await stage.start()
    request = explain_group.ExplainGroupRequest(group_ids=[words[0] if words else "g"])

    def show(r: explain_group.ExplainGroupResponse) -> str:
        (group,) = r.groups
        if group.error_code:
            return ErrorCode(group.error_code).name
        found = why_group.answers(group_facts(group))
        return "".join(f"\n  {question}: {sentence}" for question, told in found.items() for sentence in told)

    stage.call("admin", coordinator.explain_group(Context(0), request), show)


COMMANDS: dict[str, Callable[[Stage, list[str], dict[str, str]], Awaitable[None]]] = {
    "beat": beat,
    "commit": commit,
    "config": config,
    "delete": delete,
    "delete-offsets": delete_offsets,
    "describe": describe,
    "describe-consumer": describe_consumer,
    "end-txn": end_txn,
    "fail": fail,
    "fetch": fetch,
    "hold": hold,
    "join": join,
    "leave": leave,
    "list": list_all,
    "poll": poll,
    "release": release,
    "resign": resign,
    "restart": restart,
    "sync": sync,
    "topics": topics,
    "txn-commit": txn_commit,
    "wait": wait,
    "why": why,
}


# -- what is shown ---------------------------------------------------------------------------------------------------


def show_commit(r: Any) -> str:
    return " ".join(
        f"{t.name}-{p.partition_index}:{ErrorCode(p.error_code).name}" for t in r.topics for p in t.partitions
    )


def make_assignment(text: str) -> bytes:
    """`t/0/1` is topic t's partitions 0 and 1 in the consumers' format; other words stand for themselves."""
    topic, *partitions = text.split("/")
    return consumer_protocol.build_assignment({topic: [int(p) for p in partitions]}, 3) if partitions else text.encode()


def show_assignment(data: bytes) -> str:
    """Scripts use plain text; migration produces the consumers' own format."""
    if data[:2] in (b"\x00\x00", b"\x00\x01", b"\x00\x02", b"\x00\x03"):
        try:
            parsed = consumer_protocol.parse_assignment(data)
        except WireError:
            return repr(data)
        return ";".join(f"{topic}:{','.join(map(str, parts))}" for topic, parts in parsed.items()) or "nothing"
    return data.decode() or "''"


def show_ids(stage: Stage, entries: Any) -> str:
    names = {view.topic_id: name for name, view in stage.catalog.views.items()}
    return ";".join(f"{names.get(e.topic_id, '?')}:{','.join(map(str, e.partitions))}" for e in entries) or "nothing"


def show_record(record: Any) -> str:
    key = record.key
    fields = " ".join(str(getattr(key, f.name)) for f in key.__schema__.fields)
    kind = type(key).__name__.removesuffix("Key")
    if record.value is None:
        return f"{kind} {fields} -> nothing"
    return f"{kind} {fields} -> {show_value(record.value)}"


def show_value(value: Any) -> str:
    parts = []
    for field in value.__schema__.fields:
        if field.name.endswith("timestamp") or field.name in ("metadata_hash", "client_host", "subscription"):
            continue
        content = getattr(value, field.name)
        if content in (None, "", -1, b"", []) or content == UUID(int=0):
            continue
        if isinstance(content, list) and content and hasattr(content[0], "__schema__"):
            content = "[" + ", ".join(show_value(item) for item in content) + "]"
        elif isinstance(content, bytes):
            content = f"<{len(content)} bytes>" if field.name == "metadata" else show_assignment(content)
        elif isinstance(content, UUID):
            content = content.int
        elif hasattr(content, "__schema__"):
            content = "(" + show_value(content) + ")"
        parts.append(f"{field.name}={content}")
    return " ".join(parts)
