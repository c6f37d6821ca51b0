"""Table: the anomalies that a history of a log may show, and which of them a correct broker may show.

The names are those of Jepsen's Kafka workload (`jepsen.tests.kafka`), so that results can be compared. `phantom`,
`processed-twice` and `not-processed` are additions of this package.
"""

from __future__ import annotations

from enum import Enum


class Anomaly(Enum):
    """One kind of anomaly. Kafka's guarantees allow the `legal` ones; a report counts them but does not forbid them."""

    def __init__(self, title: str, meaning: str, legal: bool = False) -> None:
        self.title = title
        self.meaning = meaning
        self.legal = legal

    INCONSISTENT_OFFSETS = "inconsistent-offsets", "one offset has shown two values"
    DUPLICATE = "duplicate", "one value is at two offsets"
    PHANTOM = "phantom", "a value was polled that no operation sent"
    ABORTED_READ = "G1a", "a write that definitely failed was polled"
    LOST_WRITE = "lost-write", "an acknowledged write was never polled, although a later offset was"
    UNSEEN = "unseen", "an acknowledged write was not polled by the end of a healed run"
    PRECOMMITTED_READ = "precommitted-read", "a transaction polled its own write before it committed"
    INT_POLL_SKIP = "int-poll-skip", "within one operation, a consumer skipped records that others polled"
    INT_NONMONOTONIC_POLL = "int-nonmonotonic-poll", "within one operation, a consumer's offsets decreased"
    POLL_SKIP = "poll-skip", "between two operations, an assigned consumer skipped records that others polled"
    NONMONOTONIC_POLL = "nonmonotonic-poll", "between two operations, an assigned consumer's offsets decreased"
    INT_NONMONOTONIC_SEND = "int-nonmonotonic-send", "within one operation, a later send got a lower offset"
    NONMONOTONIC_SEND = "nonmonotonic-send", "a later operation of one producer got lower offsets"
    INFORMATION_CYCLE = "G1c", "operations read each other's writes in a cycle"
    PROCESSED_TWICE = "processed-twice", "two committed transactions of one group processed the same record"
    NOT_PROCESSED = "not-processed", "a group's transactions continued after a record that none of them processed"

    SUBSCRIBED_POLL_SKIP = "poll-skip (subscribed)", "a group member skipped records that other members polled", True
    SUBSCRIBED_NONMONOTONIC_POLL = "nonmonotonic-poll (subscribed)", "a group member polled again after rebalance", True
    INT_SEND_SKIP = "int-send-skip", "another writer's records are between those of one operation", True
    WRITE_CYCLE = "G1c (with write order)", "a cycle of reads and of the order of writes", True
