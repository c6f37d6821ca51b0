"""The Java client's groups: members join, leave, die and come back; topics grow; the broker is killed.

Every test ends with the invariants of `history`. `PEER=kafka` runs them against Apache Kafka, which they hold for, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest

from tests.interop.java_rebalance.conftest import Server
from tests.interop.java_rebalance.history import revoked_between
from tests.interop.java_rebalance.members import COOPERATIVE, EAGER, RANGE, UNIFORM, Group, Owners, Protocol

NewGroup = Callable[[Protocol], Group]


def each(*protocols: Protocol, long_form: tuple[Protocol, ...] = ()) -> pytest.MarkDecorator:
    """`long_form`: run with the slow tests only."""
    short = [pytest.param(p, id=p.name) for p in protocols]
    slow = [pytest.param(p, id=p.name, marks=pytest.mark.slow) for p in long_form]
    return pytest.mark.parametrize("protocol", [*short, *slow])


def ranges(topic: str, shares: dict[str, Sequence[int]]) -> Owners:
    return {name: frozenset(f"{topic}-{p}" for p in numbers) for name, numbers in shares.items()}


def moved(group: Group, before: Owners, after: Owners, since: int) -> None:
    """What members had to give up in a step: all of it, or no more than what somebody else has now."""
    taken = revoked_between(group.events, since)
    if not group.protocol.incremental:
        assert taken == sorted((name, p) for name in before if name in after for p in before[name])
        return
    given_up = sorted((name, p) for name in before if name in after for p in before[name] - after[name])
    assert taken == given_up


@each(EAGER, COOPERATIVE, UNIFORM, long_form=(RANGE,))
def test_members_come_and_go(new_group: NewGroup, protocol: Protocol) -> None:
    group = new_group(protocol)
    topic = f"come-and-go-{protocol.name}"
    group.create(topic, 6)
    a, b, c = (group.prepare(name, f"topics={topic}") for name in "abc")
    a.join()
    alone = group.wait_settled(produce=50)

    at = time.monotonic_ns()
    b.join()
    two = group.wait_settled(produce=50)
    moved(group, alone, two, at)

    at = time.monotonic_ns()
    c.join()
    three = group.wait_settled(produce=50)
    moved(group, two, three, at)

    at = time.monotonic_ns()
    b.close()
    left = group.wait_settled(produce=50)
    at_b = [(name, p) for name, p in revoked_between(group.events, at) if name == "b1"]
    assert at_b == sorted(("b1", p) for p in three["b1"])
    if protocol in (COOPERATIVE, UNIFORM):
        assert revoked_between(group.events, at) == at_b

    c.kill()
    group.wait_settled(produce=50)

    group.grow(topic, 8)
    at = time.monotonic_ns()
    grown = group.wait_settled(produce=50)
    if protocol.incremental:
        assert revoked_between(group.events, at) == []

    a.close()
    if protocol is EAGER:
        assert (alone, two, three, left, grown) == (
            ranges(topic, {"a1": range(6)}),
            ranges(topic, {"a1": (0, 1, 2), "b1": (3, 4, 5)}),
            ranges(topic, {"a1": (0, 1), "b1": (2, 3), "c1": (4, 5)}),
            ranges(topic, {"a1": (0, 1, 2), "c1": (3, 4, 5)}),
            ranges(topic, {"a1": range(8)}),
        )


@each(EAGER, COOPERATIVE, UNIFORM, long_form=(RANGE,))
def test_the_group_goes_on_when_the_broker_is_killed(new_group: NewGroup, server: Server, protocol: Protocol) -> None:
    group = new_group(protocol)
    topic = f"killed-{protocol.name}"
    group.create(topic, 6)
    group.set_session_timeout(60_000)  # longer than a broker may take to come back
    # A client that forgets its topics while no broker answers has its group rebalance when it learns them again.
    group.config["metadata.recovery.strategy"] = "none"
    a, b = (group.prepare(name, f"topics={topic}") for name in "ab")
    a.join()
    group.wait_settled()
    b.join()
    before = group.wait_settled(produce=50)
    at = time.monotonic_ns()
    group.produce(50)  # it dies in the middle of the reading
    server.kill()
    server.start()
    assert group.wait_settled(produce=50) == before
    assert revoked_between(group.events, at) == []
    b.close()
    group.wait_settled(produce=50)


@each(EAGER, COOPERATIVE, UNIFORM, long_form=(RANGE,))
def test_a_static_member_restarts_without_a_rebalance(new_group: NewGroup, protocol: Protocol) -> None:
    group = new_group(protocol)
    topic = f"static-{protocol.name}"
    group.create(topic, 4)
    group.set_session_timeout(20_000)
    a = group.prepare("a", f"topics={topic}", group_instance_id="instance-a")
    b = group.prepare("b", f"topics={topic}", group_instance_id="instance-b")
    again = group.prepare("b", f"topics={topic}", group_instance_id="instance-b")
    a.join()
    group.wait_settled()
    b.join()
    before = group.wait_settled(produce=50)

    at = time.monotonic_ns()
    b.close()
    again.join()
    after = group.wait_settled(produce=50)
    assert after == {"a1": before["a1"], "b2": before["b1"]}
    assert [e for e in group.events if e.at >= at and e.member == "a1" and e.event in ("assigned", "revoked")] == []

    if protocol.is_classic:  # it can be killed, too: who comes back with the name is taken for the same
        generations = {e.generation for e in group.events if e.at >= at and e.event == "assigned"}
        assert generations == {max(e.generation for e in group.events if e.member == "a1")}
        third = group.prepare("b", f"topics={topic}", group_instance_id="instance-b")
        again.kill()
        third.join()
        assert group.wait_settled(produce=50) == {"a1": before["a1"], "b3": before["b1"]}
        assert [e for e in group.events if e.at >= at and e.member == "a1" and e.event in ("assigned", "revoked")] == []


@each(EAGER, COOPERATIVE)
def test_a_twin_fences_a_static_member_of_a_classic_group(new_group: NewGroup, protocol: Protocol) -> None:
    group = new_group(protocol)
    topic = f"twin-{protocol.name}"
    group.create(topic, 4)
    a, twin = (group.prepare("a", f"topics={topic}", group_instance_id="instance") for _ in range(2))
    a.join()
    group.wait_settled(produce=50)
    twin.join()
    a.wait_failed("FencedInstanceIdException")
    assert group.wait_settled(produce=50) == ranges(topic, {"a2": range(4)})


@each(UNIFORM, RANGE)
def test_a_twin_of_a_static_member_of_a_consumer_group_is_refused(new_group: NewGroup, protocol: Protocol) -> None:
    group = new_group(protocol)
    topic = f"twin-{protocol.name}"
    group.create(topic, 4)
    a, twin = (group.prepare("a", f"topics={topic}", group_instance_id="instance") for _ in range(2))
    a.join()
    group.wait_settled(produce=50)
    twin.join()
    twin.wait_failed("UnreleasedInstanceIdException")
    assert group.wait_settled(produce=50) == ranges(topic, {"a1": range(4)})


@each(EAGER, COOPERATIVE, UNIFORM)
def test_a_pattern_catches_a_new_topic(new_group: NewGroup, protocol: Protocol) -> None:
    _catch(new_group(protocol), f"pattern=caught-{protocol.name}-.*")


@pytest.mark.slow  # the broker looks again at most every ten seconds
@each(UNIFORM, RANGE)
def test_a_pattern_of_the_broker_catches_a_new_topic(new_group: NewGroup, protocol: Protocol) -> None:
    _catch(new_group(protocol), f"re2j=caught-re2j-{protocol.name}-.*", prefix="caught-re2j")


def _catch(group: Group, subscription: str, prefix: str = "caught") -> None:
    topics = [f"{prefix}-{group.protocol.name}-{number}" for number in (1, 2)]
    group.create(topics[0], 4)
    a, b = (group.prepare(name, subscription) for name in "ab")
    a.join()
    group.wait_settled()
    b.join()
    before = group.wait_settled(produce=50)
    at = time.monotonic_ns()
    group.create(topics[1], 2)
    after = group.wait_settled(produce=50)
    moved(group, before, after, at)
    assert {p for share in after.values() for p in share} == set(group.produced)


@each(EAGER, COOPERATIVE, UNIFORM)
def test_a_member_that_sleeps_past_its_session_is_told_that_all_is_lost(
    new_group: NewGroup, protocol: Protocol
) -> None:
    group = new_group(protocol)
    topic = f"sleeper-{protocol.name}"
    group.create(topic, 4)
    a, b = (group.prepare(name, f"topics={topic}") for name in "ab")
    a.join()
    group.wait_settled()
    b.join()
    before = group.wait_settled(produce=50)
    b.pause()
    b.alive = False
    assert group.wait_settled(produce=50) == ranges(topic, {"a1": range(4)})
    b.resume()
    b.alive = True
    group.wait(lambda: group.saw(b, "lost"), "the sleeper is told")
    lost = {p for e in group.events if e.member == "b1" and e.event == "lost" for p in e.partitions}
    assert lost == before["b1"]
    assert {name: len(share) for name, share in group.wait_settled(produce=50).items()} == {"a1": 2, "b1": 2}
