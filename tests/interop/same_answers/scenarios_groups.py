"""Table: scenarios about consumer groups and their offsets. Each is played to both brokers."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from barnabas.core.ids import uuid_to_text
from barnabas.protocol.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.protocol.wire.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.wire.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.wire.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.wire.messages.list_groups import ListGroupsRequest
from barnabas.protocol.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.protocol.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.interop.same_answers.talk import Talk

NOWHERE = UUID(int=0xDEAD)


def subscription(*topics: str) -> bytes:
    """ConsumerProtocolSubscription v0."""
    named = b"".join(len(t).to_bytes(2, "big") + t.encode() for t in topics)
    return b"\x00\x00" + len(topics).to_bytes(4, "big") + named + b"\xff\xff\xff\xff"


def join(group: str, member: str = "", **changes: Any) -> JoinGroupRequest:
    protocols = changes.pop("protocols", ("range",))
    values: dict[str, Any] = {
        "group_id": group,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 5_000,
        "member_id": member,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name=n, metadata=subscription("t")) for n in protocols],
    }
    return JoinGroupRequest(**{**values, **changes})


def member_of(talk: Talk, group: str, word: str = "member", **changes: Any) -> tuple[str, int]:
    """Join a group alone, hand in an assignment; (member id, generation)."""
    first = talk.quietly(join(group, **changes), 9)
    member: str = first.member_id
    talk.call_it(member, word)
    second = talk.quietly(join(group, member, **changes), 9) if first.error_code else first
    assert second.error_code == 0, second
    generation: int = second.generation_id
    given = [SyncGroupRequestAssignment(member_id=member, assignment=b"\x01\x02")]
    synced = SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member,
        group_instance_id=changes.get("group_instance_id"),
        protocol_type="consumer",
        protocol_name="range",
        assignments=given,
    )
    assert talk.quietly(synced, 5).error_code == 0
    return member, generation


def find_coordinator(talk: Talk) -> None:
    talk.group("warm")
    talk.transactions()
    for kind in (0, 1, 2, 3, -1):
        for version in (1, 2, 3):
            talk.ask(f"type {kind}", FindCoordinatorRequest(key=talk.name("k"), key_type=kind), version)
        for version in (4, 5, 6):
            request = FindCoordinatorRequest(coordinator_keys=[talk.name("k"), talk.name("l")], key_type=kind)
            talk.ask(f"type {kind}", request, version)
    talk.each("v0", FindCoordinatorRequest(key=talk.name("k")), (0,))
    talk.each("empty key", FindCoordinatorRequest(key=""), (0, 1, 3))
    talk.each("no keys", FindCoordinatorRequest(coordinator_keys=[]), (4, 6))
    talk.each("a key twice", FindCoordinatorRequest(coordinator_keys=["a", "a"]), (4,))


def joining(talk: Talk) -> None:
    def ask(label: str, group: str, versions: tuple[int, ...] = (3, 5, 9), **changes: Any) -> None:
        for version in versions:
            request = join(group, **changes)
            response = talk.quietly(request, version)
            talk.call_it(response.member_id, "new member")
            talk.note(f"{label} [v{version}]", talk.plain(response))

    g = talk.group("g")
    ask("empty group id", "")
    ask("short session", g, session_timeout_ms=10)
    ask("long session", g, session_timeout_ms=1 << 30)
    ask("negative session", g, session_timeout_ms=-1)
    ask("unknown member", g, member_id="nobody")
    ask("unknown member of an unknown group", talk.name("other"), member_id="nobody")
    ask("no protocols", g, protocols=())
    ask("no protocol type", g, protocol_type="")
    ask("id required", talk.name("fresh"), (4, 5, 6, 9))
    for version in range(4):
        ask(f"alone, v{version}", talk.name(f"alone{version}"), (version,))
    member, generation = member_of(talk, g)
    talk.note("generation", generation)
    ask("another protocol", g, (9, 5, 3), protocols=("sticky",))
    ask("another protocol type", g, (9, 5, 3), protocol_type="connect")
    ask("wrong member", g, (9, 5, 3), member_id="nobody")
    ask("static, empty", talk.name("s"), (5, 9), group_instance_id="")
    ask("static, long", talk.name("s"), (5, 9), group_instance_id="x" * 250)
    ask("static, bad", talk.name("s"), (5, 9), group_instance_id="a b")
    s = talk.group("static")
    member, generation = member_of(talk, s, "static member", group_instance_id="i")
    ask("same instance, other member", s, (9,), group_instance_id="i", member_id="nobody")
    ask("unknown instance with a member", s, (9,), group_instance_id="j", member_id=member)
    ask("same instance again", s, (9,), group_instance_id="i")
    talk.ask("old one's heartbeat", heartbeat(s, generation, member, "i"), 4)


def heartbeat(group: str, generation: int, member: str, instance: str | None = None) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group, generation_id=generation, member_id=member, group_instance_id=instance)


def living(talk: Talk) -> None:
    g = talk.group("g")
    member, generation = member_of(talk, g)

    def sync(group: str, gen: int, who: str, **changes: Any) -> SyncGroupRequest:
        return SyncGroupRequest(group_id=group, generation_id=gen, member_id=who, **changes)

    def leave(group: str, who: str) -> LeaveGroupRequest:
        return LeaveGroupRequest(group_id=group, member_id=who)

    for version in (0, 3, 4):
        talk.ask("heartbeat", heartbeat(g, generation, member), version)
        talk.ask("old generation", heartbeat(g, generation - 1, member), version)
        talk.ask("new generation", heartbeat(g, generation + 1, member), version)
        talk.ask("unknown member", heartbeat(g, generation, "nobody"), version)
        talk.ask("no member", heartbeat(g, generation, ""), version)
        talk.ask("unknown group", heartbeat(talk.name("h"), 1, "nobody"), version)
        talk.ask("empty group", heartbeat("", 1, "nobody"), version)
    talk.ask("unknown instance", heartbeat(g, generation, member, "inst"), 4)
    for version in (0, 3, 5):
        talk.ask("sync again", sync(g, generation, member), version)
        talk.ask("sync old generation", sync(g, generation - 1, member), version)
        talk.ask("sync unknown member", sync(g, generation, "nobody"), version)
        talk.ask("sync unknown group", sync(talk.name("h"), 1, "nobody"), version)
        talk.ask("sync empty group", sync("", 1, "nobody"), version)
    talk.ask("sync wrong type", sync(g, generation, member, protocol_type="connect", protocol_name="range"), 5)
    talk.ask("sync wrong name", sync(g, generation, member, protocol_type="consumer", protocol_name="x"), 5)
    talk.ask("sync right", sync(g, generation, member, protocol_type="consumer", protocol_name="range"), 5)
    for version in (0, 1, 2):
        talk.ask("leave unknown member", leave(g, "nobody"), version)
        talk.ask("leave unknown group", leave(talk.name("h"), "nobody"), version)
        talk.ask("leave empty group", leave("", "nobody"), version)
    for version in (3, 4, 5):
        several = [
            MemberIdentity(member_id="nobody"),
            MemberIdentity(member_id="", group_instance_id="inst"),
            MemberIdentity(member_id=member, group_instance_id="inst"),
        ]
        talk.ask("leave several", LeaveGroupRequest(group_id=g, members=several), version)
        talk.ask("leave nobody", LeaveGroupRequest(group_id=g, members=[]), version)
        several = [MemberIdentity(member_id="nobody")]
        talk.ask("leave unknown", LeaveGroupRequest(group_id=talk.name("h"), members=several), version)
        talk.ask("leave empty", LeaveGroupRequest(group_id="", members=several), version)
    for version in (0, 3, 5, 6):
        describe = DescribeGroupsRequest(groups=[g, talk.name("h"), ""])
        described = talk.quietly(describe, version)
        for group in described.groups:
            for one in group.members:
                one.client_host = "(its own)"
        talk.note(f"described [v{version}]", talk.plain(described))
    talk.each("delete while alive", DeleteGroupsRequest(groups_names=[g]), (0, 1, 2))
    talk.ask("leave", LeaveGroupRequest(group_id=g, members=[MemberIdentity(member_id=member)]), 5)
    talk.ask("leave again", LeaveGroupRequest(group_id=g, members=[MemberIdentity(member_id=member)]), 5)
    talk.ask("heartbeat after", heartbeat(g, generation, member), 4)
    talk.each("described when empty", DescribeGroupsRequest(groups=[g]), (0, 5, 6))
    listed = DescribeGroupsRequest(groups=[g], include_authorized_operations=True)
    talk.each("operations", listed, (3, 6))
    everything = DeleteGroupsRequest(groups_names=[g, talk.name("h"), "", g])
    talk.each("delete", everything, (2, 1))
    talk.each("described when deleted", DescribeGroupsRequest(groups=[g]), (0, 5, 6))


def listing(talk: Talk) -> None:
    g, h = talk.group("g"), talk.group("h")
    member_of(talk, g)
    commit(talk, h, [("t", 0, 5)], 8, quiet=True)
    for states in ([], ["Stable"], ["Empty"], ["stable"], ["Dead"], ["rubbish"], ["Stable", "Empty"]):
        for types in ([], ["classic"], ["consumer"], ["Classic"], ["rubbish"]):
            for version in (0, 3, 4, 5):
                if (states and version < 4) or (types and version < 5):
                    continue
                response = talk.quietly(ListGroupsRequest(states_filter=states, types_filter=types), version)
                mine = [group for group in response.groups if group.group_id in (g, h)]
                talk.note(f"{states} {types} [v{version}]", (response.error_code, talk.plain(mine)))


def commit(
    talk: Talk,
    group: str,
    offsets: list[tuple[str | UUID, int, int]],
    version: int,
    *,
    label: str = "",
    quiet: bool = False,
    metadata: str | None = "m",
    **changes: Any,
) -> None:
    topics = []
    for topic, partition, offset in offsets:
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=metadata
            )
        ]
        topics.append(
            OffsetCommitRequestTopic(topic_id=topic, partitions=partitions)
            if isinstance(topic, UUID)
            else OffsetCommitRequestTopic(name=topic, partitions=partitions)
        )
    request = OffsetCommitRequest(group_id=group, topics=topics, **changes)
    if quiet:
        talk.quietly(request, version)
    else:
        talk.ask(label, request, version)


def offsets(talk: Talk) -> None:
    here = talk.topic("here", 3)
    here_id = talk.topic_id(here)
    g = talk.group("g")
    member, generation = member_of(talk, g)
    alone = talk.group("alone")
    asked = OffsetFetchRequestTopic(name=here, partition_indexes=[0, 1])
    talk.each("fetch of nothing", OffsetFetchRequest(group_id=alone, topics=[asked]), (1, 2, 5, 7))
    for version in (2, 3, 5, 6, 7, 8, 9):
        who: dict[str, Any] = {"generation_id_or_member_epoch": generation, "member_id": member}
        commit(talk, g, [(here, 0, version), (here, 1, 7)], version, label="commit", **who)
        commit(talk, g, [(here, 0, -1)], version, label="negative", **who)
        commit(talk, g, [(here, 9, 5)], version, label="unknown partition", **who)
        commit(talk, g, [(talk.name("missing"), 0, 5)], version, label="unknown topic", **who)
        commit(talk, g, [(here, 0, 5)], version, label="old generation", **{**who, "generation_id_or_member_epoch": 0})
        commit(talk, g, [(here, 0, 5)], version, label="no generation", **{**who, "generation_id_or_member_epoch": -1})
        commit(talk, g, [(here, 0, 5)], version, label="unknown member", **{**who, "member_id": "nobody"})
        commit(talk, g, [(here, 0, 5)], version, label="no member")
        commit(talk, alone, [(here, 0, 5)], version, label="alone")
        commit(talk, talk.name("nogroup"), [(here, 0, 5)], version, label="unknown group", **who)
        commit(talk, "", [(here, 0, 5)], version, label="empty group")
        commit(talk, alone, [(here, 0, 6)], version, label="long metadata", metadata="x" * 5000)
        commit(talk, alone, [(here, 0, 6)], version, label="null metadata", metadata=None)
        commit(talk, alone, [], version, label="no topics")
        commit(talk, alone, [("a b", 0, 6)], version, label="bad topic")
    commit(talk, alone, [(here_id, 0, 6)], 10, label="by id")
    commit(talk, alone, [(NOWHERE, 0, 6), (here_id, 1, 3)], 10, label="unknown id")
    commit(
        talk,
        g,
        [(here, 0, 6)],
        8,
        label="instance",
        group_instance_id="inst",
        generation_id_or_member_epoch=generation,
        member_id=member,
    )
    commit(talk, g, [(here, 2, 12)], 8, label="epoch", generation_id_or_member_epoch=generation, member_id=member)
    for version in (1, 2, 3, 4, 5, 6, 7):
        for label, name, indexes in (
            ("fetch", here, [0, 1, 2]),
            ("fetch unknown partition", here, [9]),
            ("fetch unknown topic", talk.name("missing"), [0]),
            ("fetch no partitions", here, []),
        ):
            asked = OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
            talk.ask(label, OffsetFetchRequest(group_id=g, topics=[asked]), version)
            talk.ask(f"{label}, alone", OffsetFetchRequest(group_id=alone, topics=[asked]), version)
            talk.ask(f"{label}, no group", OffsetFetchRequest(group_id=talk.name("nogroup"), topics=[asked]), version)
        talk.ask("fetch, empty group", OffsetFetchRequest(group_id="", topics=[asked]), version)
        talk.ask("fetch nothing", OffsetFetchRequest(group_id=g, topics=[]), version)
        if version >= 2:
            talk.ask("fetch all", OffsetFetchRequest(group_id=g, topics=None), version)
            talk.ask("fetch all, no group", OffsetFetchRequest(group_id=talk.name("nogroup"), topics=None), version)
    for version in (8, 9, 10):
        named: dict[str, Any] = {"topic_id": here_id} if version >= 10 else {"name": here}
        lost: dict[str, Any] = {"topic_id": NOWHERE} if version >= 10 else {"name": talk.name("missing")}
        some = [
            OffsetFetchRequestTopics(partition_indexes=[0, 9], **named),
            OffsetFetchRequestTopics(partition_indexes=[0], **lost),
        ]
        groups = [
            OffsetFetchRequestGroup(group_id=g, topics=some),
            OffsetFetchRequestGroup(group_id=alone, topics=None),
            OffsetFetchRequestGroup(group_id=talk.name("nogroup"), topics=some),
            OffsetFetchRequestGroup(group_id="", topics=None),
        ]
        talk.ask("several groups", OffsetFetchRequest(groups=groups, require_stable=True), version)
        talk.ask("no groups", OffsetFetchRequest(groups=[]), version)
        if version >= 9:
            for epoch in (-1, 0, generation, 99):
                one = OffsetFetchRequestGroup(group_id=g, topics=None, member_id=member, member_epoch=epoch)
                talk.ask(f"member epoch {epoch}", OffsetFetchRequest(groups=[one]), version)
            one = OffsetFetchRequestGroup(group_id=g, topics=None, member_id="nobody", member_epoch=1)
            talk.ask("unknown member's epoch", OffsetFetchRequest(groups=[one]), version)

    def delete(label: str, group: str, *topics: tuple[str, list[int]]) -> None:
        wanted = [
            OffsetDeleteRequestTopic(
                name=t, partitions=[OffsetDeleteRequestPartition(partition_index=p) for p in partitions]
            )
            for t, partitions in topics
        ]
        talk.ask(label, OffsetDeleteRequest(group_id=group, topics=wanted), 0)

    delete("delete, alone", alone, (here, [0, 1, 9]), (talk.name("missing"), [0]))
    delete("delete, alive", g, (here, [0]))
    delete("delete, no group", talk.name("nogroup"), (here, [0]))
    delete("delete, empty group", "", (here, [0]))
    delete("delete nothing", alone)
    talk.ask("after deleting", OffsetFetchRequest(group_id=alone, topics=None), 7)


def expressions(talk: Talk) -> None:
    """KIP-848: which assignments come at once, and which with a later heartbeat. (Member epochs are opaque.)"""
    topics = {talk.topic_id(talk.topic(short)): short for short in ("ra", "rb", "rc")}
    names = {short: talk.name(short) for short in topics.values()}
    epochs: dict[str, int] = {}

    def beat(label: str, group: str, member: int, **wanted: Any) -> set[str] | None:
        """One heartbeat. Returns the topics of the assignment; None if the response has none."""
        member_id = uuid_to_text(UUID(int=member))
        joining = member_id not in epochs
        if joining:
            wanted = {"subscribed_topic_names": [], "topic_partitions": [], "rebalance_timeout_ms": 30_000, **wanted}
        response: ConsumerGroupHeartbeatResponse = talk.quietly(
            ConsumerGroupHeartbeatRequest(
                group_id=group, member_id=member_id, member_epoch=epochs.get(member_id, 0), **wanted
            ),
            1,
        )
        epochs[member_id] = response.member_epoch
        given = response.assignment
        found = None if given is None else {topics[t.topic_id] for t in given.topic_partitions}
        if label:
            talk.note(label, [response.error_code, None if found is None else sorted(found)])
        return found

    def later(label: str, group: str, member: int) -> None:
        """Send heartbeats until an assignment comes."""
        found: list[str] = []
        talk.until(lambda: bool(found.extend(beat("", group, member) or ()) or found), label)
        talk.note(label, sorted(found))

    one = talk.group("expression")
    beat("a new expression in a new group", one, 1, subscribed_topic_regex="ra.*")
    later("what it matches", one, 1)
    beat("a changed expression", one, 1, subscribed_topic_regex="rb.*")
    two = talk.group("both")
    beat("a name and a new expression", two, 2, subscribed_topic_names=[names["rc"]], subscribed_topic_regex="ra.*")
    later("what it matches, too", two, 2)
    beat("without the expression", two, 2, subscribed_topic_regex="")
    beat("nothing at all", talk.group("nothing"), 3)


SCENARIOS = (find_coordinator, joining, living, listing, offsets, expressions)
