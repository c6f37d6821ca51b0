"""Controllers over three real ZooKeeper servers: servers killed, controllers stopped past their session and killed.

What is counted are blocks of producer ids: each change of the log gives one, and whoever has two of a kind, or lost one
that was acknowledged, has a log that is not one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.zookeeper.ensemble import Ensemble, why_not
from tests.interop.zookeeper.members import PATIENCE_S, MemberProcess

pytestmark = pytest.mark.skipif(why_not() is not None, reason=f"needs ZooKeeper: {why_not()}")

BLOCK = 1_000
_PATIENCE_S = 2.0


class Cluster:
    """Three members; `work` allocates one block after the other, from whoever leads."""

    def __init__(self, ensemble: Ensemble) -> None:
        self.ensemble = ensemble
        self.members = {node_id: MemberProcess(f"{ensemble.connect}/barnabas", node_id) for node_id in (1, 2, 3)}
        self.given: list[int] = []
        """Starts of the blocks that were acknowledged."""
        self.doubtful = 0
        """Requests whose outcome nobody told. NOT_CONTROLLER tells it only of what was never decided: a controller
        that loses its leadership answers so for all requests in flight (as Kafka's does), and the log continues."""
        self._progress = asyncio.Condition()

    def leader(self) -> MemberProcess:
        """As it is said of the latest epoch."""
        said = [member.leader for member in self.members.values() if member.alive]
        leader_id, _ = max(said, key=lambda leader: leader[1])
        return self.members.get(leader_id) or next(member for member in self.members.values() if member.alive)

    async def register(self) -> int:
        while True:
            leader = self.members[await self.members[1].wait_leader()]
            answer = await leader.ask("register", broker=1)
            if "epoch" in answer:
                return int(answer["epoch"])

    async def work(self, broker_epoch: int) -> None:
        while True:
            leader = self.leader()
            if not leader.alive or leader.node_id != leader.leader[0]:
                witness = next(member for member in self.members.values() if member.alive)
                async with witness.said:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(witness.said.wait(), 0.1)
                continue
            asking = asyncio.ensure_future(leader.ask("allocate", broker=1, epoch=broker_epoch))
            done, _ = await asyncio.wait((asking,), timeout=_PATIENCE_S)
            answer = asking.result() if done else {"error": "REQUEST_TIMED_OUT"}  # perhaps it was stopped
            if "start" in answer:
                async with self._progress:
                    self.given.append(answer["start"])
                    self._progress.notify_all()
            else:
                self.doubtful += 1

    async def wait_for_more(self, count: int) -> None:
        wanted = len(self.given) + count
        async with asyncio.timeout(PATIENCE_S), self._progress:
            await self._progress.wait_for(lambda: len(self.given) >= wanted)


@contextlib.asynccontextmanager
async def running_cluster(folder: Path) -> AsyncIterator[Cluster]:
    ensemble = Ensemble(folder)
    ensemble.start()
    cluster = Cluster(ensemble)
    try:
        for member in cluster.members.values():
            await member.start()
        yield cluster
    finally:
        for member in cluster.members.values():
            await member.kill()
        ensemble.stop()


async def _states(cluster: Cluster) -> list[dict[str, Any]]:
    """What each of them has read, once all have read equally far."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            states = [await member.ask("state") for member in cluster.members.values()]
            if len({state["offset"] for state in states}) == 1:
                return states


def _check(cluster: Cluster, blocks: list[int]) -> None:
    """`blocks` holds the end of each block in the order of the log."""
    assert blocks == [BLOCK * number for number in range(1, len(blocks) + 1)], "a block is missing, or there twice"
    assert sorted(set(cluster.given)) == sorted(cluster.given), "a block was given twice"
    in_log = {end - BLOCK for end in blocks}
    assert set(cluster.given) <= in_log, "an acknowledged block is lost"
    assert len(in_log - set(cluster.given)) <= cluster.doubtful, "a refused block is in the log"


def test_no_change_is_lost_or_doubled(tmp_path: Path) -> None:
    asyncio.run(asyncio.wait_for(_storm(tmp_path), 300))


async def _storm(folder: Path) -> None:
    async with running_cluster(folder) as cluster:
        broker_epoch = await cluster.register()
        worker = asyncio.create_task(cluster.work(broker_epoch))
        await cluster.wait_for_more(50)

        follower = next(index for index in range(3) if index != cluster.ensemble.leader())
        cluster.ensemble.kill(follower)
        await cluster.wait_for_more(50)
        cluster.ensemble.start_server(follower)
        cluster.ensemble.wait_for_leader()

        leader = cluster.ensemble.leader()
        cluster.ensemble.kill(leader)
        await cluster.wait_for_more(50)
        cluster.ensemble.start_server(leader)
        cluster.ensemble.wait_for_leader()
        await cluster.wait_for_more(10)

        zombie = cluster.leader()
        asked = [asyncio.create_task(zombie.ask("allocate", broker=1, epoch=broker_epoch)) for _ in range(20)]
        await asyncio.sleep(0)  # they are written
        zombie.pause()
        witness = next(member for member in cluster.members.values() if member.alive)
        asked += [asyncio.create_task(zombie.ask("allocate", broker=1, epoch=broker_epoch)) for _ in range(20)]
        await witness.wait_leader(other_than=zombie.node_id)
        await cluster.wait_for_more(20)
        zombie.resume()
        answers = await asyncio.wait_for(asyncio.gather(*asked), PATIENCE_S)
        late = answers[20:]
        assert [answer for answer in late if answer != {"error": "NOT_CONTROLLER"}] == [], "a zombie decided"
        cluster.given += [answer["start"] for answer in answers if "start" in answer]
        cluster.doubtful += sum("error" in answer for answer in answers[:20])
        await cluster.wait_for_more(20)

        killed = cluster.leader()
        await killed.kill()
        await cluster.wait_for_more(20)
        await killed.start()  # with its old session still there for a moment
        await killed.wait_leader()

        successor = cluster.leader()
        assert await successor.stop() == 0
        await cluster.wait_for_more(20)
        await successor.start()
        await successor.wait_leader()
        await cluster.wait_for_more(20)

        worker.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await worker
        cluster.doubtful += 1  # its last request
        states = await _states(cluster)
        longest = max((state["blocks"] for state in states), key=len)
        _check(cluster, longest)
        assert [state["blocks"] for state in states] == [longest] * 3
        assert sum(state["active"] for state in states) == 1
