"""Table: the states of a mirror partition, and which event leads from which state to which (KIP-1279).

    LOG_ALIGNMENT ──► EPOCH_FENCING ◄──► MIRRORING ──► PAUSING ──► PAUSED        RESUME: back to EPOCH_FENCING
         ▲                  ▲               │                                    (LOG_ALIGNMENT if not yet aligned)
         │                  └─ ULE_RECOVERY ◄┘ the source lost records by an unclean leader election
         │
         └── STOPPED ◄── STOPPING ◄── STOP, from every other state, also from FAILED: the source may be gone
             (writable)

    FAILED is entered from every state that needs the source, and left by RETRY (after a jittered back-off), PAUSE, STOP

The numbers are written to the log of the links' coordinator and must not change.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum, auto
from typing import Final


class MirrorState(IntEnum):
    """The state of one mirror partition."""

    LOG_ALIGNMENT = 1
    """The local log may differ from the source's: it is compared, and what the source does not have is cut off."""
    EPOCH_FENCING = 2
    """The local leader epoch must become at least the source's before anything is appended."""
    MIRRORING = 3
    PAUSING = 4
    PAUSED = 5
    STOPPING = 6
    """Nothing is fetched any more; open transactions are aborted, and fresh producer ids kept above mirrored ones."""
    STOPPED = 7
    """The partition is an ordinary one. The topic takes writes when all its partitions are STOPPED."""
    ULE_RECOVERY = 8
    """After an unclean leader election on the source: what the source lost is cut off here, too."""
    FAILED = 9


class MirrorEvent(Enum):
    """What happens to a mirror partition."""

    ALIGNED = auto()
    """The log of every replica is a prefix of the source's."""
    FENCED = auto()
    """The local leader epoch is at least the source's."""
    EPOCH_BEHIND = auto()
    """The source has a later leader epoch than the local one."""
    DIVERGED = auto()
    """The source no longer has records that are in the local log."""
    PAUSE = auto()
    DRAINED = auto()
    """No fetch is under way any more."""
    RESUME = auto()
    """An operator resumes an aligned mirror, a new leader continues it, or the back-off after a failure has passed."""
    REALIGN = auto()
    """As RESUME, for a log that is not aligned, or no longer: a stopped mirror becomes one again."""
    RECOVER = auto()
    """As RESUME, for a recovery from an unclean leader election that was interrupted."""
    STOP = auto()
    CUT_OVER = auto()
    """Nothing of the source is left open: the partition can take writes."""
    FAIL = auto()


_S = MirrorState
_E = MirrorEvent
_LEAVE: Final = {_E.PAUSE: _S.PAUSING, _E.STOP: _S.STOPPING, _E.FAIL: _S.FAILED}
_CONTINUE: Final = {_E.RESUME: _S.EPOCH_FENCING, _E.REALIGN: _S.LOG_ALIGNMENT, _E.RECOVER: _S.ULE_RECOVERY}

NEXT: Final[Mapping[MirrorState, Mapping[MirrorEvent, MirrorState]]] = {
    _S.LOG_ALIGNMENT: {_E.ALIGNED: _S.EPOCH_FENCING, **_LEAVE},
    _S.EPOCH_FENCING: {_E.FENCED: _S.MIRRORING, **_LEAVE},
    _S.MIRRORING: {
        _E.EPOCH_BEHIND: _S.EPOCH_FENCING,
        _E.RESUME: _S.EPOCH_FENCING,
        _E.DIVERGED: _S.ULE_RECOVERY,
        **_LEAVE,
    },
    _S.ULE_RECOVERY: {_E.ALIGNED: _S.EPOCH_FENCING, **_LEAVE},
    _S.PAUSING: {_E.DRAINED: _S.PAUSED, **_CONTINUE, _E.STOP: _S.STOPPING},
    _S.PAUSED: {**_CONTINUE, _E.STOP: _S.STOPPING},
    _S.FAILED: {**_CONTINUE, _E.PAUSE: _S.PAUSING, _E.STOP: _S.STOPPING},
    _S.STOPPING: {_E.CUT_OVER: _S.STOPPED},
    _S.STOPPED: {_E.REALIGN: _S.LOG_ALIGNMENT},
}
"""An event that a state does not list cannot happen in that state."""
