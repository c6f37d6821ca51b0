"""Table: broker configs of transactions.

Names, types, defaults, ranges and update modes are those of Apache Kafka 4.3; the descriptions are our own.
"""

from __future__ import annotations

from typing import Final

from barnabas.core.config import ConfigKey, InRange
from barnabas.server.metadata.configs.rows import CLUSTER, HIGH, LOW, boolean, int_, short

TRANSACTIONS_KEYS: Final[tuple[ConfigKey, ...]] = (
    int_(
        "add.partitions.to.txn.retry.backoff.max.ms",
        100,
        "How long the server retries to add a partition to a transaction.",
        InRange(0),
        importance=HIGH,
    ),
    int_(
        "add.partitions.to.txn.retry.backoff.ms",
        20,
        "The pause before the server retries to add a partition to a transaction.",
        InRange(1),
        importance=HIGH,
    ),
    int_(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        "How often transactions are checked for a timeout, after which they are aborted.",
        InRange(1),
        importance=LOW,
    ),
    int_(
        "transaction.max.timeout.ms",
        900_000,
        "The maximum transaction timeout that a producer may request.",
        InRange(1),
        importance=HIGH,
    ),
    boolean(
        "transaction.partition.verification.enable",
        True,
        "Whether a leader verifies with the coordinator that a partition is in the transaction before an append.",
        importance=LOW,
        update_mode=CLUSTER,
    ),
    int_(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        "How often transactional ids are checked for expiry.",
        InRange(1),
        importance=LOW,
    ),
    int_(
        "transaction.state.log.load.buffer.size",
        5_242_880,
        "How many bytes are read at a time when transaction state is loaded.",
        InRange(1),
        importance=HIGH,
    ),
    int_(
        "transaction.state.log.min.isr",
        2,
        "The min.insync.replicas of __transaction_state.",
        InRange(1),
        importance=HIGH,
    ),
    int_(
        "transaction.state.log.num.partitions",
        50,
        "The number of partitions of __transaction_state; do not change it once the topic exists.",
        InRange(1),
        importance=HIGH,
    ),
    short(
        "transaction.state.log.replication.factor",
        3,
        "The replication factor of __transaction_state; it cannot be created with fewer brokers.",
        InRange(1),
        importance=HIGH,
    ),
    int_(
        "transaction.state.log.segment.bytes",
        104_857_600,
        "The segment size of __transaction_state.",
        InRange(1),
        importance=HIGH,
    ),
    boolean(
        "transaction.two.phase.commit.enable",
        False,
        "Whether transactions may take part in a two-phase commit of another system.",
        importance=LOW,
    ),
    int_(
        "transactional.id.expiration.ms",
        604_800_000,
        "How long the state of an idle transactional id is kept.",
        InRange(1),
        importance=HIGH,
    ),
)
