"""Table: the coordinator's answer to each request of a producer, by the state and the age of the producer's epoch.

The rules are those of Kafka's TransactionCoordinator. `tests/unit/server/coordination/kafka_transaction_cells.py` has
the same cells as they are in Apache Kafka 4.3.1, each with the method that decides it; a test compares the two, and
lists the cells that differ on purpose.

The rows are the states of the transactional id; `none` is an id that the coordinator does not know. The columns compare
the producer id and epoch of the request with those that the coordinator has (`EpochAge`). The cells are an `Answer`.

In the rows Prepare..., the answer to a request that the producer repeats is CONCURRENT_TRANSACTIONS, with any epoch:
the state is about to change, and the next state decides whether the producer is fenced. For this reason Kafka compares
its pending state before it compares epochs. With version 2 a producer gets its next epoch from EndTxn while the markers
are still being written, so its next request often arrives in these rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from barnabas.core.errors import ErrorCode
from barnabas.server.coordination.transaction.state import BY_LABEL, TxnState

EPOCH_BUMPS_SINCE: Final = 2
"""The first transaction version in which EndTxn increments the epoch (KIP-890)."""


class EpochAge(Enum):
    """How the producer id and epoch of a request compare with the current ones."""

    NEW = "new"
    """InitProducerId without a producer id: a new incarnation of the producer."""
    OTHER = "other"
    """The producer id belongs to another producer, or to an earlier time of this one."""
    OLDER = "older"
    LAST = "last"
    """The epoch before the current one, from a producer that may not know its current epoch: the response was lost."""
    CURRENT = "current"
    NEWER = "newer"
    """An epoch that the coordinator has not handed out."""


class Answer(Enum):
    """What the coordinator does. The first four are errors for the producer."""

    CONCURRENT = "concurrent"
    FENCED = "fenced"
    MAPPING = "mapping"
    INVALID = "invalid"
    EPOCH = "epoch"
    """InitProducerId gives the next epoch, or a new producer id if there is no next epoch."""
    SAME = "same"
    """InitProducerId gives the current epoch again."""
    FENCE = "fence"
    """InitProducerId aborts the open transaction, and is answered CONCURRENT_TRANSACTIONS."""
    ADD = "add"
    """The partitions are added. The transaction begins if none is open."""
    CHECK = "check"
    """Each partition is confirmed that is in the open transaction."""
    PREPARE = "prepare"
    """EndTxn writes its decision. The transaction has no partitions if none is open."""
    DONE = "done"
    """The transaction has ended in this way before."""


ERRORS: Final[Mapping[Answer, ErrorCode]] = {
    Answer.CONCURRENT: ErrorCode.CONCURRENT_TRANSACTIONS,
    Answer.FENCED: ErrorCode.PRODUCER_FENCED,
    Answer.MAPPING: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    Answer.INVALID: ErrorCode.INVALID_TXN_STATE,
}

Grid = Mapping[TxnState | None, Mapping[EpochAge, Answer]]


def _grid(text: str) -> Grid:
    """Read a grid: a line of columns, then a line for each state."""
    header, *lines = (line.split() for line in text.strip().splitlines())
    ages = [EpochAge(word) for word in header]
    rows = {
        None if name == "none" else BY_LABEL[name]: dict(zip(ages, map(Answer, cells), strict=True))
        for name, *cells in lines
    }
    assert len(rows) == len(lines) == 7, "a grid has each state once"
    return rows


INIT_PRODUCER_ID: Final = _grid("""
                     new
    none             epoch
    Empty            epoch
    Ongoing          fence
    PrepareCommit    concurrent
    PrepareAbort     concurrent
    CompleteCommit   epoch
    CompleteAbort    epoch
""")
"""InitProducerId of a new incarnation."""

RECOVER: Final = _grid("""
                     other       older       last        current     newer
    none             epoch       epoch       epoch       epoch       epoch
    Empty            fenced      fenced      same        epoch       fenced
    Ongoing          fenced      fenced      fenced      fence       fenced
    PrepareCommit    concurrent  concurrent  concurrent  concurrent  concurrent
    PrepareAbort     concurrent  concurrent  concurrent  concurrent  concurrent
    CompleteCommit   fenced      fenced      same        epoch       fenced
    CompleteAbort    fenced      fenced      same        epoch       fenced
""")
"""InitProducerId with a producer id and epoch: a running producer recovers (KIP-360). Here `last` is the epoch with
which the producer requested the current one, or whose transaction was aborted for a time-out (version 2). There is none
after an InitProducerId of a new incarnation."""

ADD_PARTITIONS: Final = _grid("""
                     other       older       last        current     newer
    none             mapping     mapping     mapping     mapping     mapping
    Empty            mapping     fenced      fenced      add         fenced
    Ongoing          mapping     fenced      fenced      add         fenced
    PrepareCommit    concurrent  concurrent  concurrent  concurrent  concurrent
    PrepareAbort     concurrent  concurrent  concurrent  concurrent  concurrent
    CompleteCommit   mapping     fenced      fenced      add         fenced
    CompleteAbort    mapping     fenced      fenced      add         fenced
""")
"""AddPartitionsToTxn and AddOffsetsToTxn of a producer, and the AddPartitionsToTxn of a partition leader for a write of
version 2."""

VERIFY_PARTITIONS: Final = _grid("""
                     other       older       last        current     newer
    none             mapping     mapping     mapping     mapping     mapping
    Empty            mapping     fenced      fenced      check       fenced
    Ongoing          mapping     fenced      fenced      check       fenced
    PrepareCommit    mapping     fenced      fenced      concurrent  fenced
    PrepareAbort     mapping     fenced      fenced      concurrent  fenced
    CompleteCommit   mapping     fenced      fenced      check       fenced
    CompleteAbort    mapping     fenced      fenced      check       fenced
""")
"""AddPartitionsToTxn with VerifyOnly, of a partition leader for a write of version 1."""

COMMIT_V1: Final = _grid("""
                     other       older       last        current     newer
    none             mapping     mapping     mapping     mapping     mapping
    Empty            mapping     fenced      fenced      invalid     fenced
    Ongoing          mapping     fenced      fenced      prepare     fenced
    PrepareCommit    mapping     fenced      fenced      concurrent  fenced
    PrepareAbort     mapping     fenced      fenced      concurrent  fenced
    CompleteCommit   mapping     fenced      fenced      done        fenced
    CompleteAbort    mapping     fenced      fenced      invalid     fenced
""")
"""EndTxn that commits, before version 2: a repeated request has the current epoch."""

ABORT_V1: Final = _grid("""
                     other       older       last        current     newer
    none             mapping     mapping     mapping     mapping     mapping
    Empty            mapping     fenced      fenced      invalid     fenced
    Ongoing          mapping     fenced      fenced      prepare     fenced
    PrepareCommit    mapping     fenced      fenced      concurrent  fenced
    PrepareAbort     mapping     fenced      fenced      concurrent  fenced
    CompleteCommit   mapping     fenced      fenced      invalid     fenced
    CompleteAbort    mapping     fenced      fenced      done        fenced
""")
"""EndTxn that aborts, before version 2."""

COMMIT_V2: Final = _grid("""
                     other       older       last        current     newer
    none             mapping     mapping     mapping     mapping     mapping
    Empty            mapping     fenced      fenced      invalid     fenced
    Ongoing          mapping     fenced      fenced      prepare     fenced
    PrepareCommit    concurrent  concurrent  concurrent  concurrent  concurrent
    PrepareAbort     concurrent  concurrent  concurrent  concurrent  concurrent
    CompleteCommit   mapping     fenced      done        invalid     fenced
    CompleteAbort    mapping     fenced      invalid     invalid     fenced
""")
"""EndTxn that commits, version 2: a repeated request has the last epoch. A request with the current epoch ends the next
transaction, which is empty if its state is not Ongoing."""

ABORT_V2: Final = _grid("""
                     other       older       last        current     newer
    none             mapping     mapping     mapping     mapping     mapping
    Empty            mapping     fenced      fenced      prepare     fenced
    Ongoing          mapping     fenced      fenced      prepare     fenced
    PrepareCommit    concurrent  concurrent  concurrent  concurrent  concurrent
    PrepareAbort     concurrent  concurrent  concurrent  concurrent  concurrent
    CompleteCommit   mapping     fenced      invalid     prepare     fenced
    CompleteAbort    mapping     fenced      done        prepare     fenced
""")
"""EndTxn that aborts, version 2."""


def end_grid(version: int, *, commit: bool) -> Grid:
    """The grid for an EndTxn of this transaction version."""
    if version >= EPOCH_BUMPS_SINCE:
        return COMMIT_V2 if commit else ABORT_V2
    return COMMIT_V1 if commit else ABORT_V1
