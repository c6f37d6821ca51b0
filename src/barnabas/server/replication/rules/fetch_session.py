"""Machine: a follower's side of an incremental fetch session (KIP-227, `FetchSessionHandler`).

build: session 0, epoch 0  everything, and ask for a session ─── reply with an id ──► session n, epoch 1
       session n, epoch e  what has changed since the last    ── reply ─────────────► session n, epoch e + 1
       a lost answer, or an error of the session: everything again; the old session is closed by its id
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

NO_SESSION: Final = 0
FULL: Final = 0
_EPOCH_MAX: Final = (1 << 31) - 1


class Ask(NamedTuple, Generic[K, V]):
    """What one request carries."""

    session_id: int
    epoch: int
    wanted: list[tuple[K, V]]
    forgotten: list[K]


class FetchSessionHandler(Generic[K, V]):
    """What the leader has been asked for. One request at a time."""

    def __init__(self) -> None:
        self.asked: dict[K, V] = {}
        """In the order in which a request without a session names them."""
        self._session_id = NO_SESSION
        self._epoch = FULL

    def build(self, changes: Mapping[K, V | None]) -> Ask[K, V]:
        """The next request, after `changes`: a partition is asked for anew, or (None) no more."""
        asked = self.asked
        wanted: list[tuple[K, V]] = []
        forgotten: list[K] = []
        for key, want in changes.items():
            if want is None:
                if asked.pop(key, None) is not None:
                    forgotten.append(key)
            elif asked.get(key) != want:
                asked[key] = want
                wanted.append((key, want))
        if self._epoch == FULL:
            return Ask(self._session_id, FULL, list(asked.items()), [])
        return Ask(self._session_id, self._epoch, wanted, forgotten)

    def on_reply(self, session_id: int) -> None:
        """The request was answered without an error of its own."""
        if self._epoch != FULL:
            self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1
        elif session_id != NO_SESSION:
            self._session_id, self._epoch = session_id, 1
        else:
            self._session_id = NO_SESSION  # no slot at the leader: everything again

    def to_back(self, key: K) -> None:
        """It has got bytes: others come first next time (the leader does the same in its session)."""
        want = self.asked.pop(key, None)
        if want is not None:
            self.asked[key] = want

    def reset(self) -> None:
        """Nobody knows what the leader took in: the next request says everything."""
        self._epoch = FULL
