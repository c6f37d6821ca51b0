"""The share consumer's machines: the member, the session, and which acknowledgements go together."""

from __future__ import annotations

from uuid import UUID

from barnabas.client.membership.classic import MembershipFailed
from barnabas.client.membership.consumer_protocol import PartitionsLost, Wait
from barnabas.client.membership.share_protocol import ShareMember
from barnabas.client.share.session import GAP, AcknowledgeType, ShareSession, runs
from barnabas.core.errors import ErrorCode
from barnabas.core.ids import TopicIdPartition
from barnabas.protocol.wire.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

TOPIC = UUID(int=1)
P0, P1 = TopicIdPartition(TOPIC, 0), TopicIdPartition(TOPIC, 1)
ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType


def test_runs_of_acknowledgements() -> None:
    assert runs({}) == []
    assert runs({5: ACCEPT, 6: ACCEPT, 7: ACCEPT}) == [(5, 7, [1])]
    assert runs({7: REJECT, 5: ACCEPT, 6: GAP}) == [(5, 7, [1, 0, 3])]
    assert runs({1: ACCEPT, 3: RELEASE, 4: RELEASE}) == [(1, 1, [1]), (3, 4, [2])]


def test_a_session_names_what_is_new_what_is_due_and_what_is_gone() -> None:
    session = ShareSession()
    plan = session.plan_fetch([P0, P1], {})
    assert plan.epoch == 0 and [p.partition_index for p in plan.topics[0].partitions] == [0, 1]
    session.on_success()
    plan = session.plan_fetch([P0, P1], {})
    assert (plan.epoch, plan.topics, plan.forgotten) == (1, [], [])
    session.on_success()
    plan = session.plan_fetch([P0], {P0: {3: ACCEPT}})
    assert plan.epoch == 2
    assert plan.topics[0].partitions[0].acknowledgement_batches[0].acknowledge_types == [1]
    assert plan.forgotten[0].partitions == [1]


def test_from_hand_to_due() -> None:
    session = ShareSession()
    session.in_hand = {P0: {1: None, 2: None, 3: None}}
    session.in_hand[P0][1] = RELEASE
    session.collect()
    assert session.take_due() == {P0: {1: RELEASE}}
    assert session.unacknowledged() == 2
    session.accept_everything()
    session.collect()
    assert session.take_due() == {P0: {2: ACCEPT, 3: ACCEPT}} and not session.in_hand


def test_a_lost_session_loses_what_was_in_hand() -> None:
    session = ShareSession()
    session.plan_fetch([P0], {})
    session.on_success()
    session.in_hand = {P0: {1: None}}
    session.due = {P1: {9: ACCEPT}}
    assert session.on_lost() == {P0: {1: GAP}, P1: {9: ACCEPT}}
    assert not session.is_open and not session.in_hand
    assert session.plan_fetch([P0], {}).topics, "everything is named again"


def answer(epoch: int, *partitions: int) -> ShareGroupHeartbeatResponse:
    assigned = Assignment(topic_partitions=[TopicPartitions(topic_id=TOPIC, partitions=list(partitions))])
    return ShareGroupHeartbeatResponse(member_epoch=epoch, heartbeat_interval_ms=5_000, assignment=assigned)


def test_the_member() -> None:
    who = ShareMember("g", "me", "r")
    assert not who.heartbeats
    who.subscribe(("b", "a"))
    assert who.is_urgent
    assert who.heartbeat() == ShareGroupHeartbeatRequest(
        group_id="g", member_id="me", member_epoch=0, rack_id="r", subscribed_topic_names=["a", "b"]
    )
    assert who.on_heartbeat(answer(1, 0, 1)) is None
    assert who.assigned == {P0, P1}
    assert who.heartbeat() == ShareGroupHeartbeatRequest(group_id="g", member_id="me", member_epoch=1)
    assert who.on_heartbeat(ShareGroupHeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)) == Wait(True)
    assert who.heartbeat().subscribed_topic_names == ["a", "b"], "everything again, to whoever it is now"
    assert who.on_heartbeat(ShareGroupHeartbeatResponse(error_code=ErrorCode.FENCED_MEMBER_EPOCH)) == PartitionsLost()
    assert (who.epoch, who.assigned) == (0, frozenset())
    who.heartbeat()
    who.on_heartbeat(answer(5, 0))
    left = who.leave()
    assert left is not None and left.member_epoch == -1
    assert who.leave() is None
    who.subscribe(("a",))
    assert isinstance(
        who.on_heartbeat(ShareGroupHeartbeatResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)), MembershipFailed
    )
    assert not who.heartbeats
