"""Machine and codec: the identity of a micro-batch, by which a ledger tells a repeated micro-batch from another one
that has the same number.

Spark numbers the micro-batches of a query. If the driver dies before Spark has logged the commit, Spark repeats the
micro-batch with the same offsets, and nothing of it may be written again. In a checkpoint that was restored from a
backup, copied, or that stayed behind, the same number stands for other rows, which would be lost if they were skipped.
The identity of a micro-batch is therefore the id of its query, the ids of the queries from whose checkpoints that one
was forked (its parents), and the SHA-256 of the entry that the checkpoint's `offsets` has for the micro-batch. Spark
writes the entry before the micro-batch begins, and never changes it. A changed program keeps its identity.

A ledger stores a `LedgerEntry` in the transaction that makes the rows visible:

    {"batch":17,"sha256":"9f2c…","parents":["6f1e…"],"offsets":"eNpz…","marks":{"table":"0d5b…"}}

`offsets` is the entry of `offsets` itself (zlib, base64), from which `barnabas pipelines repair` continues; an entry
that is too long is left out. A ledger of an earlier release has the number only. Then, and wherever the checkpoint
cannot be read, numbers are compared as before.

Beside the checkpoint, the newest micro-batch is noted that each target has confirmed. A ledger that is behind the note
belongs to a target that was restored from a backup, rolled back or replaced: rows that the query has written are not
there any more.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Final, Protocol

from msgspec import Struct

from barnabas.spark.errors import BatchConflictError

NOTHING_PUBLISHED: Final = -1
"""The number in the ledger of a query that has published nothing."""
OFFSETS_CHARACTERS_MAX: Final = 65_536
"""The longest text of offsets that a ledger stores."""
_SHOWN: Final = 300
_DIGITS: Final = 12


class Standing(Enum):
    """What is to be done with a micro-batch."""

    PUBLISH = "publish"
    PUBLISHED = "published"
    """The ledger has this very micro-batch: nothing of it is written again."""
    CONFLICT = "conflict"
    """The ledger and the checkpoint do not belong together."""


class LedgerEntry(Struct, frozen=True):
    """What a ledger has of the newest micro-batch of a query. `digest` is None if only the number is known. The number
    is NOTHING_PUBLISHED in the conflict of a ledger that has nothing of the query.
    """

    batch_id: int
    digest: str | None = None
    parents: tuple[str, ...] = ()
    offsets: str | None = None
    """The entry of the checkpoint's `offsets`; None if it is not known or too long."""
    marks: Mapping[str, str] = {}
    """What the ledger belongs to (`identities.py`), where a replaced table keeps the ledger of the one before."""


_NOTHING: Final = LedgerEntry(NOTHING_PUBLISHED)


class BatchConflict(Struct, frozen=True):
    """The question that a BatchConflictError asks: the ledger of `target` has `stored`, and the micro-batch `batch_id`
    of the query is to be written. `alone` is false if the query writes to several tables with a ledger each."""

    target: str
    query_id: str
    batch_id: int
    stored: LedgerEntry
    alone: bool = True


class BatchHistory(Protocol):
    """The checkpoint of a query, as far as identities need it (`checkpoints.py`)."""

    @property
    def place(self) -> str:
        """Where the checkpoint is, for messages."""

    @property
    def parents(self) -> tuple[str, ...]:
        """The ids of the queries from whose checkpoints this one was forked, the nearest first."""

    def offsets(self, batch_id: int) -> str | None:
        """The entry of a micro-batch; None if there is none any more, or if it cannot be read."""

    def published(self, target: str) -> LedgerEntry | None:
        """The newest micro-batch that the target has confirmed; None if none is noted."""

    def judged(self, target: str, batch_id: int) -> None:
        """The micro-batch is in the target as soon as what is done now has succeeded, so that it can be noted."""

    def applies_again(self, target: str, stored: LedgerEntry) -> bool:
        """Whether the user has chosen to write the checkpoint's micro-batches although the ledger has this entry."""


def digest_of(offsets: str) -> str:
    """The SHA-256 of an entry of `offsets`; how its lines end does not matter."""
    return hashlib.sha256("\n".join(offsets.splitlines()).encode()).hexdigest()


def entry_of(batch_id: int, history: BatchHistory | None, marks: Mapping[str, str] | None = None) -> LedgerEntry:
    """What the ledger, which has these marks, stores of a micro-batch that is published now."""
    offsets = None if history is None else history.offsets(batch_id)
    if history is None or offsets is None:
        return LedgerEntry(batch_id, marks=marks or {})
    return LedgerEntry(batch_id, digest_of(offsets), history.parents, offsets, marks or {})


def encode_entry(entry: LedgerEntry) -> str:
    """The text of an entry, in ASCII."""
    document: dict[str, object] = {"batch": entry.batch_id}
    if entry.digest is not None:
        document["sha256"] = entry.digest
        if entry.parents:
            document["parents"] = list(entry.parents)
    if entry.marks:
        document["marks"] = dict(entry.marks)
    if entry.offsets is not None:
        packed = base64.b64encode(zlib.compress(entry.offsets.encode(), 9)).decode()
        if len(packed) <= OFFSETS_CHARACTERS_MAX:
            document["offsets"] = packed
    return json.dumps(document, separators=(",", ":"))


def decode_entry(text: str | None, batch_id: int | None) -> LedgerEntry | None:
    """The inverse of `encode_entry`. `batch_id` is the number that the ledger stores beside the text, None if it has
    nothing of the query. A text for another number is that of an earlier release's predecessor, and does not count.
    """
    if batch_id is None or batch_id <= NOTHING_PUBLISHED:
        return None
    try:
        document = json.loads(text or "{}")
        if document.get("batch") != batch_id:
            return LedgerEntry(batch_id)
        packed = document.get("offsets")
        offsets = None if packed is None else zlib.decompress(base64.b64decode(packed)).decode()
        parents, marks = tuple(document.get("parents", ())), dict(document.get("marks", {}))
        return LedgerEntry(batch_id, document.get("sha256"), parents, offsets, marks)
    except (ValueError, AttributeError, TypeError, zlib.error):
        return LedgerEntry(batch_id)


def compare(stored: LedgerEntry | None, batch_id: int, history: BatchHistory | None, target: str) -> Standing:
    """Compare a micro-batch with the newest entry of its query in the ledger of `target`.

    The checkpoint must have the ledger's micro-batch as the ledger knows it, also if the number is a later one: the
    micro-batches of a wrong checkpoint may have had no rows until then.
    """
    if history is not None:
        history.judged(target, batch_id)
    known = stored or _NOTHING
    if is_behind(known, history, target) or batch_id < known.batch_id or _is_same(known, history) is False:
        again = history is not None and history.applies_again(target, known)
        return Standing.PUBLISH if again else Standing.CONFLICT
    return Standing.PUBLISHED if batch_id == known.batch_id else Standing.PUBLISH


def is_behind(stored: LedgerEntry, history: BatchHistory | None, target: str) -> bool:
    """Whether the target has confirmed a later micro-batch than its ledger has now."""
    noted = None if history is None else history.published(target)
    return noted is not None and stored.batch_id < noted.batch_id


def compare_with_parent(stored: LedgerEntry | None, batch_id: int, history: BatchHistory) -> Standing:
    """Compare the micro-batch of a forked checkpoint, whose query the ledger does not know, with the newest entry of
    its parent. A micro-batch that the parent has published is not written again; a fork may go on in another way.
    """
    same = stored is not None and stored.batch_id == batch_id and _is_same(stored, history, parents=False)
    return Standing.PUBLISHED if same else Standing.PUBLISH


def standing_of(
    lookup: Callable[[str], LedgerEntry | None],
    query_id: str,
    batch_id: int,
    history: BatchHistory | None,
    target: str,
    *,
    alone: bool = True,
) -> Standing:
    """What is to be done with a micro-batch. `lookup` reads the newest entry of a query in the ledger of `target`.
    Raises BatchConflictError if ledger and checkpoint do not belong together."""
    stored = lookup(query_id)
    if stored is None and history is not None:
        for parent in history.parents:
            known = lookup(parent)
            if known is not None and history.published(target) is None:
                return compare_with_parent(known, batch_id, history)
    standing = compare(stored, batch_id, history, target)
    if standing is Standing.CONFLICT:
        raise conflict_error(BatchConflict(target, query_id, batch_id, stored or _NOTHING, alone), history)
    return standing


def conflict_error(conflict: BatchConflict, history: BatchHistory | None) -> BatchConflictError:
    """The error that names what is in question."""
    batch_id, stored = conflict.batch_id, conflict.stored
    if history is not None and is_behind(stored, history, conflict.target):
        return _behind_error(conflict, history)
    where = "its checkpoint" if history is None else f"the checkpoint {history.place}"
    planned = None if history is None else history.offsets(stored.batch_id)
    text = (
        f"micro-batch {batch_id} of {conflict.query_id} is not written to {conflict.target}, whose ledger has"
        f" micro-batch {stored.batch_id} ({_shown(stored.offsets, stored.digest)})."
    )
    if batch_id >= stored.batch_id and planned is not None:
        text += f" In {where}, micro-batch {stored.batch_id} is another one ({_shown(planned, digest_of(planned))})."
    choice = (
        "Continue with the newest checkpoint, or begin a new one, which is a new query"
        if history is None
        else "Continue with the newest checkpoint, or choose between the two with: barnabas pipelines repair"
        f" --checkpoint '{history.place}'"
    )
    return BatchConflictError(
        f"{text} The checkpoint is not the one from which the rows in the target were written: it was restored from a"
        f" backup, copied or changed. Nothing is written. {choice}",
        conflict,
    )


def _behind_error(conflict: BatchConflict, history: BatchHistory) -> BatchConflictError:
    stored, noted = conflict.stored, history.published(conflict.target)
    assert noted is not None
    has = "nothing of the query" if stored == _NOTHING else f"micro-batch {stored.batch_id}"
    return BatchConflictError(
        f"micro-batch {conflict.batch_id} of {conflict.query_id} is not written to {conflict.target}, whose ledger has"
        f" {has}, although it confirmed micro-batch {noted.batch_id} before: the target was restored from a backup,"
        " rolled back or replaced, and rows that the query has written are not there any more. Nothing is written."
        " Restore the target, or choose whether to read from there again, or to go on without these rows, with:"
        f" barnabas pipelines repair --checkpoint '{history.place}'",
        conflict,
    )


def source_lines(offsets: str) -> Sequence[str]:
    """The offset of each source in an entry of `offsets`: the lines after the version and Spark's metadata."""
    return offsets.splitlines()[2:]


def _is_same(stored: LedgerEntry, history: BatchHistory | None, *, parents: bool = True) -> bool | None:
    """Whether the checkpoint has the ledger's micro-batch; None if that is not known."""
    if stored.digest is None or history is None:
        return None
    offsets = history.offsets(stored.batch_id)
    if offsets is None:
        return None
    return digest_of(offsets) == stored.digest and (not parents or stored.parents == history.parents)


def _shown(offsets: str | None, digest: str | None) -> str:
    identity = "its identity is not known" if digest is None else f"SHA-256 {digest[:_DIGITS]}"
    if offsets is None:
        return identity
    text = "; ".join(source_lines(offsets))
    return f"up to {text if len(text) <= _SHOWN else text[:_SHOWN] + '…'}, {identity}"
