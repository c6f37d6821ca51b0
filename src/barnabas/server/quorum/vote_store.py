"""Shell: stores the election state in the file `quorum-state`; implements `QuorumStateStore` of the raft package.

The file has version 0, with the voters, in a quorum of kraft.version 0; version 1 from kraft.version 1 on (KIP-853).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Final

from barnabas.core.ids import uuid_from_text, uuid_to_text
from barnabas.server.quorum.quorum_state import (
    FILE_NAME,
    NO_VOTE,
    QuorumState,
    QuorumStateError,
    parse_quorum_state,
    render_quorum_state,
)
from barnabas.server.raft.machine.values import NO_DIRECTORY, ElectionState, ReplicaKey
from barnabas.server.storage.errors import FileMissingError
from barnabas.server.storage.fs import FileSystem, read_file, replace_file

_NO_STATE: Final = QuorumState()


class VoteStore:
    """The file `quorum-state` of one node. `voters` returns (current kraft.version, ids of the voters)."""

    def __init__(
        self, fs: FileSystem, path: str, executor: Executor, *, voters: Callable[[], tuple[int, tuple[int, ...]]],
        fsync: bool = True,
    ) -> None:  # fmt: skip
        self._fs = fs
        self._file = f"{path}/{FILE_NAME}"
        self._executor = executor
        self._voters = voters
        self._fsync = fsync
        self._saving: asyncio.Future[None] | None = None

    def state(self) -> QuorumState | None:
        """The contents of the file, None if it does not exist. Raises QuorumStateError if the file is damaged."""
        try:
            return parse_quorum_state(read_file(self._fs, self._file).decode("utf-8", "replace"))
        except FileMissingError:
            return None
        except QuorumStateError as error:
            raise QuorumStateError(f"{self._file}: {error}") from error

    # ---- QuorumStateStore

    def load(self) -> ElectionState:
        state = self.state() or _NO_STATE
        voted = None
        if state.voted_id != NO_VOTE:
            directory = uuid_from_text(state.voted_directory) if state.version else NO_DIRECTORY
            voted = ReplicaKey(state.voted_id, directory)
        return ElectionState(state.leader_epoch, state.leader_id, voted)

    async def save(self, election: ElectionState) -> None:
        kraft_version, voters = self._voters()
        voted = election.voted
        state = QuorumState(
            leader_id=election.leader_id,
            leader_epoch=election.epoch,
            voted_id=NO_VOTE if voted is None else voted.id,
            voters=voters if kraft_version == 0 else (),
            voted_directory=_NO_STATE.voted_directory if voted is None else uuid_to_text(voted.directory_id),
            version=min(kraft_version, 1),
        )
        write = partial(replace_file, self._fs, self._file, render_quorum_state(state).encode(), durable=self._fsync)
        if not self._fsync:
            write()
            return
        await self.settled()
        self._saving = asyncio.get_running_loop().run_in_executor(self._executor, write)
        self._saving.add_done_callback(self._on_saved)
        await asyncio.shield(self._saving)

    async def settled(self) -> None:
        """Wait until no write is running. A replica that was stopped may have started one."""
        while self._saving is not None:
            await asyncio.wait((self._saving,))

    def _on_saved(self, saving: asyncio.Future[None]) -> None:
        self._saving = None
        if not saving.cancelled():
            saving.exception()  # marks the exception as retrieved, in case the caller was cancelled
