"""`Timers` after the process was suspended. Sleeps take virtual time."""

from __future__ import annotations

import asyncio

from barnabas.server.coordination.operation import TimerKey
from barnabas.server.coordination.timers import GRACE_S, Timers
from tests.unit.server.coordination.kit import VirtualLoop, run_virtual


def test_timers_are_postponed_once_after_the_process_was_suspended() -> None:
    fired: list[tuple[TimerKey, float]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        timers = Timers(lambda key, retry: fired.append((key, loop.time())))
        for name, seconds in (("beats", 10), ("silent", 10), ("later", 30), ("in time", 3)):
            timers.schedule((name,), seconds * 1000)
        await asyncio.sleep(5)
        loop.now += 15  # the process continues at 20 s
        await asyncio.sleep(1)
        assert fired == [(("in time",), 3.0)]
        timers.schedule(("beats",), 10_000)
        await asyncio.sleep(40)

    run_virtual(main())
    assert fired == [(("in time",), 3.0), (("silent",), 20.0 + GRACE_S), (("later",), 30.0), (("beats",), 31.0)]
