"""Several `member` processes over one ensemble, and what they say."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import sys
from typing import Any

from barnabas.core.child_processes import death_signal

PATIENCE_S = 60.0
SESSION_MS = 2_000


class MemberProcess:
    """One of them: `ask` it, wait for what it says of the leader, stop it, kill it."""

    _ids = itertools.count(1)

    def __init__(self, connect: str, node_id: int) -> None:
        self.node_id = node_id
        self.leader = (-1, 0)
        """What it said last of the active controller and its epoch."""
        self.said = asyncio.Condition()
        self.paused = False
        self._connect = connect
        self._process: asyncio.subprocess.Process | None = None
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._hearing: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        return self._process is not None and not self.paused

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.interop.zookeeper.member", self._connect, str(self.node_id), str(SESSION_MS),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, preexec_fn=death_signal(),
        )  # fmt: skip
        self._hearing = asyncio.create_task(self._hear(self._process))

    async def ask(self, do: str, **words: Any) -> dict[str, Any]:
        """Its answer; {"error": "GONE"} when it ends before."""
        if self._process is None:
            return {"error": "GONE"}
        assert self._process.stdin is not None
        number = next(self._ids)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self._process.stdin.write(json.dumps({"id": number, "do": do, **words}).encode() + b"\n")
        return await answer

    async def wait_leader(self, *, other_than: int = -1) -> int:
        """Until it knows an active controller that is not `other_than`."""
        async with asyncio.timeout(PATIENCE_S), self.said:
            await self.said.wait_for(lambda: self.leader[0] not in (-1, other_than))
        return self.leader[0]

    def pause(self) -> None:
        assert self._process is not None
        self.paused = True
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
        self.paused = False

    async def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            await process.wait()
        if self._hearing is not None:
            await self._hearing

    async def stop(self) -> int:
        """In order: it resigns."""
        process, self._process = self._process, None
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        code = await process.wait()
        if self._hearing is not None:
            await self._hearing
        return code

    async def _hear(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            words = json.loads(line)
            if "leader" in words:
                async with self.said:
                    self.leader = (words["leader"], words["epoch"])
                    self.said.notify_all()
            else:
                self._answers.pop(words.pop("id")).set_result(words)
        for answer in self._answers.values():
            answer.set_result({"error": "GONE"})
        self._answers.clear()
