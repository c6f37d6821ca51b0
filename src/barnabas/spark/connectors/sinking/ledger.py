"""Machine: whether a micro-batch is published, from the number that the target stores for the query.

A target stores, in the transaction that makes a micro-batch visible, the query's id and the number of the micro-batch.
If the driver dies before Spark has logged the commit, Spark repeats the micro-batch, possibly with other rows in each
task. Its number is then equal to the stored number, and nothing of the repeated micro-batch is written.
"""

from __future__ import annotations

from enum import Enum

from barnabas.spark.connectors.sinking.ports import BatchId
from barnabas.spark.errors import DeliveryError


class Standing(Enum):
    """What is to be done with a micro-batch."""

    PUBLISH = "publish"
    PUBLISHED = "published"


NOTHING_PUBLISHED = -1
"""The number in the ledger of a query that has published nothing."""


def judge(stored: int | None, batch: BatchId) -> Standing:
    """Compare a micro-batch with the newest number of its query in the ledger. Raises DeliveryError if the ledger is
    ahead: a checkpoint that was restored from a backup plans other micro-batches with the same numbers, so that
    skipping them would lose rows."""
    if stored is None or stored < batch.batch_id:
        return Standing.PUBLISH
    if stored == batch.batch_id:
        return Standing.PUBLISHED
    raise DeliveryError(
        f"micro-batch {batch.batch_id} of {batch.query_id} is not written: the ledger of the target says that"
        f" micro-batch {stored} was. The checkpoint is older than the rows in the target, for example restored from a"
        " backup. Continue with the newest checkpoint, or begin a new one, which is a new query"
    )
