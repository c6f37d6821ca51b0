"""The classic member: conversations with a coordinator, and what the member makes of them."""

from __future__ import annotations

from barnabas.client.membership.classic import (
    Assigned,
    ClassicMember,
    JoinAgain,
    Lead,
    MembershipConfig,
    MembershipFailed,
    MemberState,
    SendSync,
)
from barnabas.client.membership.subscriptions import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from barnabas.core.errors import ErrorCode
from barnabas.core.ids import TopicPartition
from barnabas.protocol.assign.member import MemberSubscription
from barnabas.protocol.assign.table import CLASSIC_ASSIGNORS
from barnabas.protocol.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from barnabas.protocol.wire.messages.sync_group import SyncGroupResponse

A0, A1, A2 = (TopicPartition("a", index) for index in range(3))


def member(*strategies: str, instance: str | None = None) -> ClassicMember:
    assignors = [CLASSIC_ASSIGNORS[name] for name in strategies or ("range",)]
    made = ClassicMember(MembershipConfig("g", instance), assignors)
    made.on_topics(["a"])
    return made


def joined(
    who: ClassicMember, *, leader: str = "other", generation: int = 1, protocol: str = "range"
) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=generation, protocol_name=protocol, leader=leader, member_id=who.member_id or "me"
    )


def settle(who: ClassicMember, *partitions: TopicPartition, generation: int = 1) -> Assigned:
    """Join and sync as a follower."""
    who.join_request()
    assert isinstance(who.on_join(joined(who, generation=generation, protocol=next(iter(who.assignors)))), SendSync)
    step = who.on_sync(SyncGroupResponse(assignment=encode_assignment(partitions)))
    assert isinstance(step, Assigned)
    return step


def test_a_new_member_is_given_an_id_first() -> None:
    who = member()
    assert who.join_request().member_id == ""
    step = who.on_join(JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="me"))
    assert step == JoinAgain()
    assert who.wants_to_join
    assert who.join_request().member_id == "me"


def test_a_follower_syncs_and_is_assigned() -> None:
    who = member()
    step = settle(who, A0, A1)
    assert step == Assigned(frozenset({A0, A1}), frozenset(), frozenset({A0, A1}), rejoin=False)
    assert who.state is MemberState.STABLE
    assert not who.wants_to_join
    assert who.heartbeat_request().generation_id == 1


def test_the_leader_assigns_everybody() -> None:
    who = member("range", "roundrobin")
    who.join_request()
    subscription = encode_subscription(MemberSubscription(("a",)))
    response = joined(who, leader="me")
    response.members = [JoinGroupResponseMember(member_id=name, metadata=subscription) for name in ("me", "you")]
    assert who.on_join(response) == Lead(frozenset({"a"}))
    step = who.lead({"a": 3})
    assert isinstance(step, SendSync)
    shares = {a.member_id: decode_assignment(a.assignment) for a in step.request.assignments}
    assert shares == {"me": [A0, A1], "you": [A2]}


def test_eager_gives_everything_up_before_joining() -> None:
    who = member("range", "cooperative-sticky")  # one eager assignor makes the protocol eager
    settle(who, A0, A1)
    assert who.on_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS) == JoinAgain()
    assert who.wants_to_join
    assert who.revoke_before_join() == {A0, A1}


def test_cooperative_keeps_what_it_has_and_joins_again_after_giving_up() -> None:
    who = member("cooperative-sticky")
    settle(who, A0, A1)
    who.on_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert who.revoke_before_join() == frozenset()
    request = who.join_request()
    told = decode_subscription(request.protocols[0].metadata)
    assert (told.owned, told.generation) == ((A0, A1), 1)
    assert isinstance(who.on_join(joined(who, generation=2, protocol="cooperative-sticky")), SendSync)
    step = who.on_sync(SyncGroupResponse(assignment=encode_assignment([A0])))
    assert step == Assigned(frozenset({A0}), frozenset({A1}), frozenset(), rejoin=True)
    assert who.wants_to_join
    step = settle(who, A0, generation=3)
    assert step == Assigned(frozenset({A0}), frozenset(), frozenset(), rejoin=False)


def test_cooperative_gives_up_topics_that_are_no_longer_wanted() -> None:
    who = member("cooperative-sticky")
    settle(who, A0)
    who.on_topics(["b"])
    assert who.wants_to_join
    assert who.revoke_before_join() == {A0}


def test_sticky_remembers_what_it_had_after_an_eager_revoke() -> None:
    who = member("sticky")
    settle(who, A0, A2, generation=4)
    who.owned = frozenset()
    metadata = who.join_request().protocols[0].metadata
    told = decode_subscription(metadata)
    assert told.owned == ()
    assert told.user_data == CLASSIC_ASSIGNORS["sticky"].user_data([A0, A2], 4)


def test_errors_and_what_they_mean() -> None:
    who = member()
    settle(who, A0)
    assert who.on_heartbeat(ErrorCode.NONE) is None
    assert who.on_heartbeat(ErrorCode.NOT_COORDINATOR) == JoinAgain(wait=True, find_coordinator=True)
    settle(who, A0)
    assert who.on_heartbeat(ErrorCode.ILLEGAL_GENERATION) == JoinAgain(lost=True)
    assert who.member_id == "me"
    settle(who, A0)
    assert who.on_heartbeat(ErrorCode.UNKNOWN_MEMBER_ID) == JoinAgain(lost=True)
    assert who.member_id == ""
    fenced = member(instance="i").on_heartbeat(ErrorCode.FENCED_INSTANCE_ID)
    assert isinstance(fenced, MembershipFailed)
    assert "group.instance.id 'i'" in str(fenced.error)
    mixed = member().on_join(JoinGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    assert isinstance(mixed, MembershipFailed)
    assert "partition.assignment.strategy" in str(mixed.error)
    assert isinstance(
        member().on_join(JoinGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)), MembershipFailed
    )


def test_a_subscription_that_changes_while_joining_is_joined_for_again() -> None:
    who = member()
    who.join_request()
    who.on_topics(["a", "b"])
    who.on_join(joined(who))
    who.on_sync(SyncGroupResponse(assignment=encode_assignment([A0])))
    assert who.wants_to_join


def test_the_bytes_are_those_of_the_java_consumer() -> None:
    subscription = MemberSubscription(("a",), (A1,), generation=5, rack="r", user_data=b"u")
    data = encode_subscription(subscription)
    assert data.hex() == "000300000001000161000000017500000001000161000000010000000100000005000172"
    assert decode_subscription(data) == subscription
    old = bytes.fromhex("000000000001000161ffffffff")
    assert decode_subscription(old) == MemberSubscription(("a",))
    assert encode_assignment([A1, A0]).hex() == "000000000001000161000000020000000000000001ffffffff"
    assert decode_assignment(b"") == []
