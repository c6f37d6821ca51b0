"""Value: the transactional ids of a sink, by which its transactions are found again after a crash.

    <prefix>.<query id>.<run>.<turn>.<partition>.<attempt>     the transaction of a task attempt
    <prefix>.<query id>.ledger                                 the writer of the ledger: one at a time for each query

The first transaction of an attempt aborts whatever transaction its id has (InitProducerId). Therefore no id may be used
again while a decision names it. `run` names one start of a query (the first characters of Spark's run id), so that the
tasks of a restarted query, or of a second driver, have ids of their own. `turn` is the micro-batch modulo TURNS, so
that an attempt which Spark has given up, and which begins late, has ids of its own, too. Ids are used again after TURNS
micro-batches, because a coordinator keeps each id for days (transactional.id.expiration.ms).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

RUN_CHARACTERS: Final = 8
TURNS: Final = 8
JOB_PREFIX: Final = "job-"
"""What the query id of a batch write begins with; the rest is the write's own random id."""


@dataclass(frozen=True, slots=True)
class SinkName:
    """The names that belong to one query, or to one batch write."""

    prefix: str
    query_id: str

    @property
    def ledger_id(self) -> str:
        """The transactional id under which the ledger's record of this query is written."""
        return f"{self.prefix}.{self.query_id}.ledger"

    def transactional_id(self, run_id: str, batch_id: int, partition: int, attempt: int) -> str:
        """The transactional id of a task attempt."""
        run = run_id[:RUN_CHARACTERS]
        return f"{self.prefix}.{self.query_id}.{run}.{batch_id % TURNS}.{partition}.{attempt}"

    def is_attempt(self, transactional_id: str) -> bool:
        """Whether the id is that of a task attempt of this query."""
        return transactional_id.startswith(f"{self.prefix}.{self.query_id}.") and transactional_id != self.ledger_id

    def run_of(self, transactional_id: str) -> str:
        """The run in the id of a task attempt: the first characters of Spark's run id."""
        return transactional_id.removeprefix(f"{self.prefix}.{self.query_id}.").split(".", 1)[0]


def id_pattern(prefix: str) -> str:
    """The RE2 expression of all transactional ids that begin with `prefix`."""
    return re.escape(prefix) + ".*"


def job_of(prefix: str, transactional_id: str) -> str | None:
    """The query id in the transactional id of a batch write's task; None for any other id."""
    begin = f"{prefix}.{JOB_PREFIX}"
    if not transactional_id.startswith(begin):
        return None
    return JOB_PREFIX + transactional_id.removeprefix(begin).split(".", 1)[0]
