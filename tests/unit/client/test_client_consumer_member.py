"""The member of the new protocol (KIP-848): what it sends when, and what it makes of the answers."""

from __future__ import annotations

from uuid import UUID

from barnabas.client.membership.classic import MembershipConfig, MembershipFailed
from barnabas.client.membership.consumer_protocol import ConsumerMember, PartitionsLost, Phase, Wait
from barnabas.core.errors import ErrorCode
from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

A, B = UUID(int=1), UUID(int=2)
NAMES = {A: "a", B: "b"}
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def member(instance: str | None = None) -> ConsumerMember:
    made = ConsumerMember(MembershipConfig("g", instance, rack="r"), "me", assignor="uniform")
    made.subscribe(["a"])
    return made


def answer(epoch: int, assigned: dict[UUID, list[int]] | None = None) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if assigned is not None:
        assignment = Assignment(
            topic_partitions=[TopicPartitions(topic_id=t, partitions=p) for t, p in assigned.items()]
        )
    return ConsumerGroupHeartbeatResponse(
        member_id="me", member_epoch=epoch, heartbeat_interval_ms=5_000, assignment=assignment
    )


def refusal(code: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message="because.")


def settle(who: ConsumerMember, epoch: int, assigned: dict[UUID, list[int]]) -> None:
    """Heartbeat, reconcile, acknowledge."""
    who.heartbeat()
    assert who.on_heartbeat(answer(epoch, assigned)) is None
    step = who.reconcile(NAMES)
    assert step is not None
    who.on_revoked(step)
    who.on_assigned(step)
    who.on_reconciled()
    who.heartbeat()
    assert who.on_heartbeat(answer(epoch)) is None
    assert who.phase is Phase.STABLE


def test_the_first_heartbeat_tells_everything_and_later_ones_what_has_changed() -> None:
    who = member("i")
    assert who.is_urgent
    assert who.heartbeat() == ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="me",
        member_epoch=0,
        instance_id="i",
        rack_id="r",
        rebalance_timeout_ms=300_000,
        subscribed_topic_names=["a"],
        server_assignor="uniform",
        topic_partitions=[],
    )
    assert who.on_heartbeat(answer(1)) is None
    assert not who.is_urgent
    plain = ConsumerGroupHeartbeatRequest(group_id="g", member_id="me", member_epoch=1, instance_id="i")
    assert who.heartbeat() == plain
    who.on_heartbeat(answer(1))
    who.subscribe(["b", "a"])
    assert who.is_urgent
    assert who.heartbeat().subscribed_topic_names == ["a", "b"]
    who.on_heartbeat(answer(2))
    who.subscribe([], "x.*")
    request = who.heartbeat()
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == ([], "x.*")
    who.on_heartbeat(answer(3))
    who.subscribe(["a"])
    request = who.heartbeat()
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (["a"], "")


def test_a_lost_answer_makes_the_next_heartbeat_tell_everything() -> None:
    who = member()
    settle(who, 1, {A: [0, 1]})
    who.heartbeat()
    who.on_unanswered()
    request = who.heartbeat()
    assert request.subscribed_topic_names == ["a"]
    assert request.topic_partitions == [TopicPartitions(topic_id=A, partitions=[0, 1])]
    assert request.member_epoch == 1


def test_what_is_no_longer_ours_goes_first_and_is_acknowledged() -> None:
    who = member()
    settle(who, 1, {A: [0, 1]})
    assert who.partitions == {A0, A1}
    who.heartbeat()
    who.on_heartbeat(answer(2, {A: [0], B: [0]}))
    step = who.reconcile(NAMES)
    assert step is not None
    assert (step.revoked, step.added) == ({A1}, {B0})
    assert who.heartbeat().topic_partitions is None, "nothing is told while the listener is busy"
    who.on_heartbeat(answer(2))
    who.on_revoked(step)
    assert who.partitions == {A0}
    who.on_assigned(step)
    who.on_reconciled()
    assert who.is_urgent
    assert who.heartbeat().topic_partitions == [
        TopicPartitions(topic_id=A, partitions=[0]),
        TopicPartitions(topic_id=B, partitions=[0]),
    ]


def test_an_assignment_that_comes_while_reconciling_is_next() -> None:
    who = member()
    settle(who, 1, {A: [0, 1]})
    who.heartbeat()
    who.on_heartbeat(answer(2, {A: [0]}))
    first = who.reconcile(NAMES)
    assert first is not None
    who.heartbeat()
    who.on_heartbeat(answer(3, {A: [0, 1]}))
    who.on_revoked(first)
    who.on_assigned(first)
    who.on_reconciled()
    who.heartbeat()
    assert who.phase is Phase.RECONCILING
    second = who.reconcile(NAMES)
    assert second is not None
    assert (second.revoked, second.added) == (frozenset(), {A1})


def test_topics_without_a_name_wait_and_the_others_do_not() -> None:
    who = member()
    who.heartbeat()
    who.on_heartbeat(answer(1, {A: [0], B: [0]}))
    assert who.unresolved == {A, B}
    step = who.reconcile({A: "a"})
    assert step is not None and step.added == {A0}
    who.on_assigned(step)
    who.on_reconciled()
    assert who.heartbeat().topic_partitions == [TopicPartitions(topic_id=A, partitions=[0])]
    who.on_heartbeat(answer(1))
    assert who.reconcile({A: "a"}) is None
    step = who.reconcile(NAMES)
    assert step is not None and step.added == {B0}


def test_a_topic_made_anew_is_given_up_and_taken_anew() -> None:
    who = member()
    settle(who, 1, {A: [0]})
    who.heartbeat()
    who.on_heartbeat(answer(2, {B: [0]}))
    step = who.reconcile({A: "a", B: "a"})
    assert step is not None
    assert (step.revoked, step.added) == ({A0}, {A0})


def test_fenced_members_begin_again_and_own_nothing() -> None:
    for code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
        who = member()
        settle(who, 5, {A: [0]})
        who.heartbeat()
        assert who.on_heartbeat(refusal(code)) == PartitionsLost()
        assert not who.heartbeats
        assert who.partitions == {A0}, "until the listener has been told"
        who.rejoin()
        request = who.heartbeat()
        assert (request.member_id, request.member_epoch, request.topic_partitions) == ("me", 0, [])


def test_fenced_while_the_listener_is_busy() -> None:
    who = member()
    who.heartbeat()
    who.on_heartbeat(answer(1, {A: [0]}))
    step = who.reconcile(NAMES)
    assert step is not None
    who.heartbeat()
    who.on_heartbeat(refusal(ErrorCode.FENCED_MEMBER_EPOCH))
    assert not who.is_current(step)


def test_errors_that_pass_and_errors_that_stay() -> None:
    who = member("i")
    who.heartbeat()
    assert who.on_heartbeat(refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)) == Wait()
    assert who.on_heartbeat(refusal(ErrorCode.NOT_COORDINATOR)) == Wait(find_coordinator=True)
    step = who.on_heartbeat(refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    assert isinstance(step, MembershipFailed) and who.phase is Phase.JOINING
    step = who.on_heartbeat(refusal(ErrorCode.UNRELEASED_INSTANCE_ID))
    assert isinstance(step, MembershipFailed)
    assert "group.instance.id" in str(step.error)
    assert who.phase is Phase.FATAL and not who.heartbeats
    assert who.leave() is None


def test_leaving() -> None:
    who = member()
    settle(who, 1, {A: [0]})
    request = who.leave()
    assert request is not None and request.member_epoch == -1
    static = member("i")
    settle(static, 1, {A: [0]})
    request = static.leave()
    assert request is not None and (request.member_epoch, request.instance_id) == (-2, "i")
    static.subscribe(["a"])
    request = static.leave(static_stays=False)
    assert request is not None and request.member_epoch == -1


def test_a_member_that_is_not_polled_leaves_and_keeps_what_it_must_tell() -> None:
    who = member()
    settle(who, 1, {A: [0]})
    request = who.stop_polling()
    assert request is not None and request.member_epoch == -1
    assert who.phase is Phase.STALE and who.partitions == {A0}
    who.rejoin()
    assert who.heartbeat().member_epoch == 0 and who.partitions == frozenset()
