"""Codec: the records of the ledger topic.

    key    the query id, as text
    value  JSON: {"version": 1, "generation": 3, "batch": 17, "done": false,
                  "transactions": [["barnabas-spark.6f1e….0.0", 4000, 7], …],
                  "progress": [["barnabas-spark.6f1e….0.0", "…"], …],
                  "identity": "…", "previous_identity": "…"}       what identifies the micro-batches (`LedgerEntry`)

The newest record of a key is the state of the query. A tombstone removes a query. Other fields are ignored.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from barnabas.client.values import HandedOverTransaction
from barnabas.spark.delivery.identity import NOTHING_PUBLISHED, LedgerEntry, decode_entry
from barnabas.spark.errors import DeliveryError

VERSION: Final = 1
NO_BATCH: Final = NOTHING_PUBLISHED


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the records of one transaction of a micro-batch reach. Only the writer reads `text`. The progress counts
    as soon as the transaction is committed; with the id "" it is that of a task that has written no records."""

    transactional_id: str
    text: str


@dataclass(frozen=True, slots=True)
class DeliveryState:
    """What the ledger says of one query.

    `batch_id` is the newest micro-batch that was decided. Unless `done`, its `transactions` may still be open and must
    be committed. `generation` counts the drivers that have aborted the transactions of earlier ones: only a micro-batch
    that was planned in the current generation may be decided. `previous_batch_id` is the newest micro-batch before
    `batch_id` that was decided. `progress` is only used by writers that record in the target cluster how far they have
    read (mirroring).
    """

    query_id: str
    generation: int = 0
    batch_id: int = NO_BATCH
    done: bool = True
    transactions: tuple[HandedOverTransaction, ...] = ()
    previous_batch_id: int = NO_BATCH
    progress: tuple[Progress, ...] = ()
    identity: str | None = None
    """What identifies `batch_id` (`LedgerEntry`); None for a micro-batch that has only its number."""
    previous_identity: str | None = None
    """What identifies `previous_batch_id`, as long as the decision may be withdrawn."""

    @property
    def entry(self) -> LedgerEntry | None:
        """The newest micro-batch that was decided; None if there is none."""
        return decode_entry(self.identity, self.batch_id)


def encode_state(state: DeliveryState) -> tuple[bytes, bytes]:
    """The key and the value of the record."""
    document: dict[str, object] = {
        "version": VERSION,
        "generation": state.generation,
        "batch": state.batch_id,
        "previous_batch": state.previous_batch_id,
        "done": state.done,
        "transactions": [[t.transactional_id, t.producer_id, t.epoch] for t in state.transactions],
    }
    if state.progress:
        document["progress"] = [[p.transactional_id, p.text] for p in state.progress]
    identities = {"identity": state.identity, "previous_identity": state.previous_identity}
    document |= {name: text for name, text in identities.items() if text is not None}
    return state.query_id.encode(), json.dumps(document, separators=(",", ":")).encode()


def decode_state(key: bytes, value: bytes) -> DeliveryState:
    """The inverse of `encode_state`. Raises DeliveryError for a record of a newer version, or of something else."""
    try:
        document = json.loads(value)
        version = int(document["version"])
        if version > VERSION:
            raise DeliveryError(
                f"the ledger has a record of version {version} for {key!r}, and this release reads version {VERSION}:"
                " install a newer release of Barnabas where the driver runs"
            )
        return DeliveryState(
            query_id=key.decode(),
            generation=int(document["generation"]),
            batch_id=int(document["batch"]),
            done=bool(document["done"]),
            transactions=tuple(
                HandedOverTransaction(str(t[0]), int(t[1]), int(t[2])) for t in document["transactions"]
            ),
            previous_batch_id=int(document["previous_batch"]),
            progress=tuple(Progress(str(p[0]), str(p[1])) for p in document.get("progress", ())),
            identity=document.get("identity"),
            previous_identity=document.get("previous_identity"),
        )
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise DeliveryError(
            f"the record {value[:200]!r} with key {key!r} is no record of a delivery ledger ({error}): the option"
            " deliveryLedger must name a topic that nothing else writes to"
        ) from None
