"""Table: keys of Connect's framework and of Debezium's connectors that a configuration may have without effect.

They say how fast a Java connector works, how it recovers, or where it keeps its state. No record depends on them, so a
configuration that was written for Java is taken as it is. A key that would change records is refused instead.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from barnabas.spark import option_parsers as parse_as
from barnabas.spark.connectors.option_rows import ConnectorOption, milliseconds


class ReloadAction(StrEnum):
    """Connect's `config.action.reload`."""

    NONE = "none"
    RESTART = "restart"


class ExactlyOnceSupport(StrEnum):
    """Connect's `exactly.once.support` of a source."""

    REQUESTED = "requested"
    REQUIRED = "required"


class TransactionBoundary(StrEnum):
    """Connect's `transaction.boundary` of a source."""

    POLL = "poll"
    INTERVAL = "interval"
    CONNECTOR = "connector"


OF_CONNECT: Final[tuple[ConnectorOption, ...]] = (
    ConnectorOption(
        "tasks.max.enforce", "accepted for Connect's sake: a connector has one task", parse_as.boolean, True
    ),
    ConnectorOption(
        "config.action.reload",
        "accepted for Connect's sake: references to secrets are resolved when a query is started",
        parse_as.one_of(ReloadAction),
        ReloadAction.RESTART,
    ),
)
"""Those of every connector."""

OF_SOURCES: Final[tuple[ConnectorOption, ...]] = (
    ConnectorOption(
        "exactly.once.support",
        "accepted for Connect's sake: a topic is written exactly once, unless delivery=at-least-once is given",
        parse_as.one_of(ExactlyOnceSupport),
        ExactlyOnceSupport.REQUESTED,
    ),
    ConnectorOption(
        "transaction.boundary",
        "accepted for Connect's sake: a transaction is a micro-batch",
        parse_as.one_of(TransactionBoundary),
        TransactionBoundary.POLL,
    ),
    ConnectorOption(
        "transaction.boundary.interval.ms",
        "accepted for Connect's sake: trigger.interval.ms is the time from one transaction to the next",
        milliseconds,
    ),
    ConnectorOption("offsets.storage.topic", "accepted for Connect's sake: offsets are in the checkpoint"),
)
"""Those of every source."""

_BY_TRIGGER: Final = "accepted for Debezium's sake: maxBytesPerTrigger and trigger.interval.ms limit a micro-batch"
_AS_STREAM: Final = "accepted for Debezium's sake: rows are copied as a stream"
_STARTED_AGAIN: Final = "accepted for Debezium's sake: a query that an outage ended is always started again"

OF_DEBEZIUM: Final[tuple[ConnectorOption, ...]] = (
    ConnectorOption("max.batch.size", _BY_TRIGGER),
    ConnectorOption("max.queue.size", _BY_TRIGGER),
    ConnectorOption("max.queue.size.in.bytes", _BY_TRIGGER),
    ConnectorOption("poll.interval.ms", _BY_TRIGGER),
    ConnectorOption("snapshot.fetch.size", _AS_STREAM),
    ConnectorOption("query.fetch.size", _AS_STREAM),
    ConnectorOption("errors.max.retries", _STARTED_AGAIN),
    ConnectorOption("retriable.restart.connector.wait.ms", _STARTED_AGAIN),
)
"""Those of Debezium's sources."""

OF_POSTGRES: Final[tuple[ConnectorOption, ...]] = (
    *OF_DEBEZIUM,
    ConnectorOption(
        "status.update.interval.ms", "accepted for Debezium's sake: the slot is advanced behind each micro-batch"
    ),
)
"""Those of Debezium's source of PostgreSQL."""

OF_HISTORY: Final = ("schema.history.internal.",)
"""The start of keys that Debezium's sources of MySQL and MariaDB need. There is no history of schemas here, because
changes have the columns of their tables.
"""
