"""Runs a scripted conversation with the coordinators of share groups, and returns the script with the actual output.

The production group coordinator and share coordinator each use one partition in memory, with the production persister
in between. Scripts have the format of `tests/golden/coordination`. Log lines of the share coordinator name its topic. A
script may begin with the comment `# group.share.assignment.interval.ms=N`; without it, the interval is 0.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import CONSUMER_OFFSETS_TOPIC, SHARE_STATE_TOPIC, TopicPartition
from barnabas.protocol.wire.messages import alter_share_group_offsets as alter
from barnabas.protocol.wire.messages import delete_share_group_offsets as forget
from barnabas.protocol.wire.messages import describe_share_group_offsets as offsets
from barnabas.protocol.wire.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.wire.messages.list_groups import ListGroupsRequest
from barnabas.protocol.wire.messages.share_group_describe import ShareGroupDescribeRequest
from barnabas.protocol.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.protocol.wire.schema import Request
from barnabas.server.coordination.group.service import GroupCoordinator
from barnabas.server.coordination.group.shard import FORMAT as GROUP_FORMAT
from barnabas.server.coordination.group.share.service import ShareGroupService
from barnabas.server.coordination.share.persister import Persister
from barnabas.server.coordination.share.records import FORMAT as SHARE_FORMAT
from barnabas.server.coordination.share.service import ShareCoordinator
from tests.configs import group_coordinator_config, share_coordinator_config
from tests.golden.coordination.show import show_record
from tests.golden.coordination.stage import settle
from tests.unit.server.coordination.kit import (
    Catalog,
    Context,
    LoopClock,
    MemoryWriter,
    check_committed_views,
    run_virtual,
    seeded,
)

GROUPS = TopicPartition(CONSUMER_OFFSETS_TOPIC, 0)
STATE = TopicPartition(SHARE_STATE_TOPIC, 0)
ENDS = 100


def replay_script(text: str) -> str:
    """The script with its actual output."""
    return run_virtual(_run(text))


async def _run(text: str) -> str:
    async with asyncio.TaskGroup() as tasks:
        found = re.match(r"# group\.share\.assignment\.interval\.ms=(\d+)", text)
        stage = Stage(int(found[1]) if found else 0)
        running = [tasks.create_task(stage.groups.run()), tasks.create_task(stage.states.run())]
        await settle()
        stage.elect()
        await settle()
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
        for task in running:
            task.cancel()
    return "\n\n".join(part.rstrip("\n") for part in out) + "\n"


class Stage:
    """Both coordinators, the channel between them, and the end offsets of partitions."""

    def __init__(self, interval_ms: int) -> None:
        self.catalog = Catalog(t=2, u=1)
        self.writer = MemoryWriter()
        clock, rng = LoopClock(), seeded()
        config = group_coordinator_config(group_share_assignment_interval_ms=interval_ms)
        self.groups = GroupCoordinator(config, self.writer, self.catalog, clock, rng)
        self.states = ShareCoordinator(
            share_coordinator_config(share_coordinator_snapshot_update_records_per_snapshot=2),
            self.writer,
            self,
            self.catalog,
            clock,
            rng,
        )
        self.persister = Persister(self, rng)
        self.shares = ShareGroupService(self.groups, self.persister, self)
        self.epochs: dict[str, int] = {}
        self.events: list[str] = []
        self.seen = {GROUPS: 0, STATE: 0}
        self.epoch = 0
        self.deaf = False

    def elect(self) -> None:
        self.epoch += 1
        for coordinator in (self.groups, self.states):
            coordinator.on_partition_count(1)
            coordinator.on_elected(0, self.epoch)

    async def perform(self, line: str) -> None:
        verb, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        await COMMANDS[verb](self, [word for word in words if "=" not in word], options)
        await settle()

    def take_events(self) -> list[str]:
        for coordinator in (self.groups, self.states):
            check_committed_views(self.writer, coordinator._runtime)
        taken, self.events = self.events, []
        for tp, log_format, prefix in ((GROUPS, GROUP_FORMAT, "log"), (STATE, SHARE_FORMAT, "state log")):
            for record in self.writer.records(tp, self.seen[tp]):
                taken.append(f"{prefix}: {self.named(show_record(log_format.decode(record)))}")
            self.seen[tp] = self.writer[tp].end
        return taken

    def named(self, text: str) -> str:
        for name, view in self.catalog.views.items():
            text = text.replace(str(view.topic_id), f"<{name}>")
        return text

    # -- ports

    async def send(self, coordinator_key: str, request: Request) -> Any:
        if self.deaf:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        name = type(request).__name__.removesuffix("Request")
        method = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
        return await getattr(self.states, method)(request)

    async def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, ENDS)

    async def delete_before(self, tp: TopicPartition, offset: int) -> None:
        self.events.append(f"pruned {tp.topic} before {offset}")


def _partitions(stage: Stage, entries: Any) -> str:
    names = {view.topic_id: name for name, view in stage.catalog.views.items()}
    shown = [f"{names[e.topic_id]}:{','.join(map(str, sorted(e.partitions)))}" for e in entries]
    return " ".join(sorted(shown)) or "nothing"


def _place(stage: Stage, text: str) -> tuple[Any, int]:
    topic, _, partition = text.rpartition("-")
    view = stage.catalog.by_name(topic)
    assert view is not None
    return view.topic_id, int(partition)


# -- commands ----------------------------------------------------------------------------------------------------------


async def poll(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """A heartbeat: poll NAME [topics=t,u] [epoch=N]"""
    name = words[0]
    epoch = int(options.get("epoch", stage.epochs.get(name, 0)))
    names = options["topics"].split(",") if "topics" in options else None
    request = ShareGroupHeartbeatRequest(
        group_id=options.get("group", "g"), member_id=name, member_epoch=epoch, subscribed_topic_names=names
    )
    r = await stage.shares.share_group_heartbeat(Context(1, name), request)
    if r.error_code:
        stage.events.append(f"{name}: {ErrorCode(r.error_code).name} {r.error_message}")
        return
    stage.epochs[name] = max(r.member_epoch, 0)
    told = "" if r.assignment is None else f" assignment={_partitions(stage, r.assignment.topic_partitions)}"
    stage.events.append(f"{name}: NONE epoch={r.member_epoch}{told}")


async def describe(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    r = await stage.shares.share_group_describe(Context(1), ShareGroupDescribeRequest(group_ids=words or ["g"]))
    for g in r.groups:
        if g.error_code:
            stage.events.append(f"{g.group_id}: {ErrorCode(g.error_code).name}")
            continue
        members = " ".join(
            f"{m.member_id}@{m.member_epoch}({_partitions(stage, m.assignment.topic_partitions)})" for m in g.members
        )
        stage.events.append(
            f"{g.group_id}: {g.group_state} epoch={g.group_epoch} assigned={g.assignment_epoch} "
            f"{g.assignor_name} [{members}]"
        )


async def list_all(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    r = await stage.groups.list_groups(Context(5), ListGroupsRequest(types_filter=words))
    for g in r.groups:
        stage.events.append(f"listed: {g.group_id} {g.group_type.lower()} {g.protocol_type} {g.group_state}")


async def show_offsets(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """offsets [group=g] [t-0 u-0]: all share partitions of the group, or these"""
    topics = [
        offsets.DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[int(partition)])
        for topic, _, partition in (word.rpartition("-") for word in words)
    ]
    group = offsets.DescribeShareGroupOffsetsRequestGroup(group_id=options.get("group", "g"), topics=topics or None)
    request = offsets.DescribeShareGroupOffsetsRequest(groups=[group])
    (r,) = (await stage.shares.describe_share_group_offsets(Context(1), request)).groups
    if r.error_code:
        stage.events.append(f"offsets: {ErrorCode(r.error_code).name}")
    for t in sorted(r.topics, key=lambda topic: topic.topic_name):
        for p in t.partitions:
            stage.events.append(
                f"offsets: {t.topic_name}-{p.partition_index} {ErrorCode(p.error_code).name} "
                f"start={p.start_offset} leader_epoch={p.leader_epoch} lag={p.lag}"
            )


async def move(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """move t-0=5"""
    group_id = options.pop("group", "g")
    request = alter.AlterShareGroupOffsetsRequest(group_id=group_id)
    for place, offset in options.items():
        topic, _, partition = place.rpartition("-")
        part = alter.AlterShareGroupOffsetsRequestPartition(partition_index=int(partition), start_offset=int(offset))
        request.topics.append(alter.AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[part]))
    r = await stage.shares.alter_share_group_offsets(Context(0), request)
    each = " ".join(
        f"{t.topic_name}-{p.partition_index}:{ErrorCode(p.error_code).name}" for t in r.responses for p in t.partitions
    )
    stage.events.append(f"moved: {ErrorCode(r.error_code).name} {each}".rstrip())


async def on_topics_deleted(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    topics = [forget.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in words]
    request = forget.DeleteShareGroupOffsetsRequest(group_id=options.get("group", "g"), topics=topics)
    r = await stage.shares.delete_share_group_offsets(Context(0), request)
    each = " ".join(f"{t.topic_name}:{ErrorCode(t.error_code).name}" for t in r.responses)
    stage.events.append(f"forgotten: {ErrorCode(r.error_code).name} {each}".rstrip())


async def delete(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    request = DeleteGroupsRequest(groups_names=words)
    r = await stage.shares.delete_groups(Context(2), request, stage.groups.delete_groups)
    stage.events += [f"deleted: {g.group_id} {ErrorCode(g.error_code).name}" for g in r.results]


async def read(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """A new partition leader reads the state: read t-0 leader=1"""
    topic_id, partition = _place(stage, words[0])
    try:
        epoch, start, batches = await stage.persister.read("g", topic_id, partition, int(options["leader"]))
    except KafkaError as error:
        stage.events.append(f"read: {error.code.name}")
        return
    shown = " ".join(f"{first}-{last}:{state}x{count}" for first, last, state, count in batches)
    stage.events.append(f"read: state_epoch={epoch} start={start} [{shown}]")


async def write(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """write t-0 leader=1 state=2 start=0 done=5 0-4:2x1 ...      (states: 0 available, 2 acknowledged, 4 archived)"""
    topic_id, partition = _place(stage, words[0])
    batches = [tuple(map(int, re.split(r"[-:x]", word))) for word in words[1:]]
    try:
        await stage.persister.write(
            "g",
            topic_id,
            partition,
            state_epoch=int(options["state"]),
            leader_epoch=int(options["leader"]),
            start_offset=int(options["start"]),
            complete_count=int(options.get("done", 0)),
            batches=batches,  # type: ignore[arg-type]
        )
        stage.events.append("written")
    except KafkaError as error:
        stage.events.append(f"write: {error.code.name}")


async def wait(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    await asyncio.sleep(float(words[0].removesuffix("s")))


async def fail(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    stage.writer.refusals.append(ErrorCode[words[0]])


async def hold(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """The followers stop fetching: no record is committed until `release`."""
    stage.writer.hold = True


async def release(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    stage.writer.hold = False
    for tp in (GROUPS, STATE):
        stage.writer.commit(tp)


async def deaf(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """The share coordinator cannot be reached until `heard`."""
    stage.deaf = True


async def heard(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    stage.deaf = False


async def restart(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """Both partitions are unloaded and loaded again."""
    for coordinator in (stage.groups, stage.states):
        coordinator.on_resigned(0)
    await settle()
    stage.elect()


async def topics(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """Set the topics (name=partitions)."""
    views = dict(stage.catalog.views)
    stage.catalog = Catalog(**{name: int(count) for name, count in options.items()})
    for name, view in list(stage.catalog.views.items()):
        if name in views:
            stage.catalog.views[name] = type(view)(name, views[name].topic_id, view.partitions)
    gone = frozenset(views) - frozenset(options)
    stage.groups.on_topics_changed(stage.catalog, gone)
    stage.states.on_topics_changed(stage.catalog, frozenset(views[name].topic_id for name in gone))


COMMANDS: dict[str, Callable[[Stage, list[str], dict[str, str]], Awaitable[None]]] = {
    "deaf": deaf,
    "delete": delete,
    "describe": describe,
    "fail": fail,
    "forget": on_topics_deleted,
    "heard": heard,
    "hold": hold,
    "list": list_all,
    "move": move,
    "offsets": show_offsets,
    "poll": poll,
    "read": read,
    "release": release,
    "restart": restart,
    "topics": topics,
    "wait": wait,
    "write": write,
}
