"""A controller behind a ZooKeeper server that has lost its leader, and answers reads until it notices."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.interop.zookeeper.ensemble import Ensemble, why_not
from tests.interop.zookeeper.members import PATIENCE_S, MemberProcess

pytestmark = pytest.mark.skipif(why_not() is not None, reason=f"needs ZooKeeper: {why_not()}")


def test_lease_ends_before_the_disconnected_server_notices(tmp_path: Path) -> None:
    asyncio.run(asyncio.wait_for(_cut_off(tmp_path), 120))


async def _cut_off(folder: Path) -> None:
    """The server notices after syncLimit, 5 s; the session has 2 s, and the lease two thirds of it."""
    ensemble = Ensemble(folder)
    ensemble.start()
    leader = ensemble.leader()
    follower, other = ((leader + 1) % 3, (leader + 2) % 3)
    member = MemberProcess(f"{ensemble.address(follower)}/barnabas", 1)
    try:
        await member.start()
        await member.wait_leader()
        while "epoch" not in await member.ask("register", broker=1):  # afterwards there is nothing more to write
            await member.wait_leader()
        for server in (leader, other):
            ensemble.pause(server)
        async with asyncio.timeout(PATIENCE_S), member.said:
            await member.said.wait_for(lambda: member.leader[0] == -1)
        assert ensemble.mode(follower) == "follower", "the server has noticed before the controller"
        for server in (leader, other):
            ensemble.resume(server)
        await member.wait_leader()
    finally:
        await member.kill()
        ensemble.stop()
