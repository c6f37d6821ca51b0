"""The long form: members and the broker come, go, sleep and die at random, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.interop.java_rebalance.conftest import Server
from tests.interop.java_rebalance.members import PROTOCOLS, Group, Member, Protocol

STEPS = 24
MEMBERS_MAX, PARTITIONS_MAX = 4, 14


class Churn:
    """A group that is disturbed step by step; after each step it must come to rest with everything read."""

    def __init__(self, group: Group, server: Server, topic: str, rng: random.Random) -> None:
        self.group = group
        self.server = server
        self.topic = topic
        self.rng = rng
        self.names = iter("abcdefghijklmnopqrstuvwxyz")
        self.partitions = 5

    def run(self) -> list[str]:
        """The steps that were taken, in order."""
        self.group.create(self.topic, self.partitions)
        self.join()
        self.group.wait_settled(produce=40)
        taken = []
        for _ in range(STEPS):
            step = self.rng.choice(self.possible())
            taken.append(step.__name__)
            self.group.produce(40)  # there is something to read while it happens
            step()
            self.group.wait_settled(produce=40)
        return taken

    def possible(self) -> list[Callable[[], None]]:
        alive = len(self.alive())
        steps: list[Callable[[], None]] = [self.kill_broker, self.join_and_leave]
        if alive < MEMBERS_MAX:
            steps += [self.join] * 3
        if alive > 1:
            steps += [self.leave, self.kill, self.kill, self.sleep]
        if self.partitions < PARTITIONS_MAX:
            steps.append(self.grow)
        return steps

    def alive(self) -> list[Member]:
        return [member for member in self.group.members if member.alive]

    def join(self) -> None:
        self.group.prepare(next(self.names), f"topics={self.topic}").join()

    def leave(self) -> None:
        self.rng.choice(self.alive()).close()

    def kill(self) -> None:
        self.rng.choice(self.alive()).kill()

    def join_and_leave(self) -> None:
        """Both at once."""
        leaver = self.rng.choice(self.alive())
        self.join()
        leaver.close()

    def sleep(self) -> None:
        """Longer than its session: the others take over, and it comes back."""
        sleeper = self.rng.choice(self.alive())
        sleeper.pause()
        sleeper.alive = False
        self.group.wait_settled(produce=40)
        sleeper.resume()
        sleeper.alive = True

    def grow(self) -> None:
        self.partitions += self.rng.randint(1, 3)
        self.group.grow(self.topic, self.partitions)

    def kill_broker(self) -> None:
        self.server.kill()
        self.server.start()


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("protocol", [pytest.param(p, id=p.name) for p in PROTOCOLS])
def test_members_and_the_broker_come_and_go_at_random(
    new_group: Callable[[Protocol], Group], server: Server, protocol: Protocol, seed: int
) -> None:
    group = new_group(protocol)
    churn = Churn(group, server, f"churn-{protocol.name}-{seed}", random.Random(f"{protocol.name}-{seed}"))
    taken = churn.run()
    assert len(taken) == STEPS
    assert {m.process.poll() for m in churn.alive()} == {None}, "whoever was not ended goes on"
