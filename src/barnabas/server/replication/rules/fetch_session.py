"""Machine: a follower's side of an incremental fetch session (KIP-227, `FetchSessionHandler`).

session 0, epoch 0   full request that opens a session         ── response with a session id ──► session n, epoch 1
session n, epoch e   the changes since the previous request    ── response ───────────────────► session n, epoch e+1
a lost response or a session error                             ── the next request is full and closes session n
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

NO_SESSION: Final = 0
FULL: Final = 0
_EPOCH_MAX: Final = (1 << 31) - 1


class FetchSessionRequest(NamedTuple, Generic[K, V]):
    """The session fields of one Fetch request."""

    session_id: int
    epoch: int
    wanted: list[tuple[K, V]]
    """The partitions to add or to change in the session."""
    forgotten: list[K]
    """The partitions to remove from the session."""


class FetchSessionHandler(Generic[K, V]):
    """The partitions that the follower has requested from one leader. One request is in flight at a time."""

    def __init__(self) -> None:
        self.requested: dict[K, V] = {}
        """In the order in which a full request lists them."""
        self._session_id = NO_SESSION
        self._epoch = FULL

    def build(self, changes: Mapping[K, V | None]) -> FetchSessionRequest[K, V]:
        """The next request. `changes` maps a partition to its new fetch position, or to None to stop fetching it."""
        requested = self.requested
        wanted: list[tuple[K, V]] = []
        forgotten: list[K] = []
        for key, want in changes.items():
            if want is None:
                if requested.pop(key, None) is not None:
                    forgotten.append(key)
            elif requested.get(key) != want:
                requested[key] = want
                wanted.append((key, want))
        if self._epoch == FULL:
            return FetchSessionRequest(self._session_id, FULL, list(requested.items()), [])
        return FetchSessionRequest(self._session_id, self._epoch, wanted, forgotten)

    def on_reply(self, session_id: int) -> None:
        """The request got a response without a top-level error."""
        if self._epoch != FULL:
            self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1
        elif session_id != NO_SESSION:
            self._session_id, self._epoch = session_id, 1
        else:
            self._session_id = NO_SESSION  # the leader's session cache is full: the next request is full again

    def to_back(self, key: K) -> None:
        """Move a partition that returned records behind the others, as the leader does in its own session."""
        want = self.requested.pop(key, None)
        if want is not None:
            self.requested[key] = want

    def reset(self) -> None:
        """The leader's view of the session is unknown: the next request is full."""
        self._epoch = FULL
