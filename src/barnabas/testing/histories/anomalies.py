"""Table: the anomalies a history of a log may show, and which of them a correct broker may show.

The names are those of Jepsen's Kafka workload (`jepsen.tests.kafka`), so that results can be compared; `phantom` and
the two about processing are ours.
"""

from __future__ import annotations

from enum import Enum


class Anomaly(Enum):
    """One kind of anomaly. `legal` ones are what Kafka's own promises allow; they are counted, not held against it."""

    def __init__(self, title: str, meaning: str, legal: bool = False) -> None:
        self.title = title
        self.meaning = meaning
        self.legal = legal

    INCONSISTENT_OFFSETS = "inconsistent-offsets", "one offset has shown two values"
    DUPLICATE = "duplicate", "one value stands at two offsets"
    PHANTOM = "phantom", "a value was polled that nobody sent"
    ABORTED_READ = "G1a", "a write that definitely failed was polled"
    LOST_WRITE = "lost-write", "a write was acknowledged, something behind it was polled, and nobody ever polled it"
    UNSEEN = "unseen", "a write was acknowledged, and not polled by the end, when everything had healed"
    PRECOMMITTED_READ = "precommitted-read", "a transaction polled what it had itself written, before it committed"
    INT_POLL_SKIP = "int-poll-skip", "within one operation, a consumer passed over what others polled"
    INT_NONMONOTONIC_POLL = "int-nonmonotonic-poll", "within one operation, a consumer's offsets went back"
    POLL_SKIP = "poll-skip", "from one operation to the next, an assigned consumer passed over what others polled"
    NONMONOTONIC_POLL = "nonmonotonic-poll", "from one operation to the next, an assigned consumer's offsets went back"
    INT_NONMONOTONIC_SEND = "int-nonmonotonic-send", "within one operation, a later send got a lower offset"
    NONMONOTONIC_SEND = "nonmonotonic-send", "a later operation of one producer got lower offsets"
    INFORMATION_CYCLE = "G1c", "operations read each other's writes in a circle"
    PROCESSED_TWICE = "processed-twice", "two transactions that happened took the same record for one group"
    NOT_PROCESSED = "not-processed", "a group's transactions went on behind a record that none of them took"

    SUBSCRIBED_POLL_SKIP = "poll-skip (subscribed)", "a group member passed over records: others had them", True
    SUBSCRIBED_NONMONOTONIC_POLL = "nonmonotonic-poll (subscribed)", "a group member read again after a rebalance", True
    INT_SEND_SKIP = "int-send-skip", "another writer's records stand between those of one operation", True
    WRITE_CYCLE = "G1c (with write order)", "a circle of reads and of the order of writes", True
