"""Value: what the replicas of a broker have appended, read and replicated, counted for each topic.

The code that appends or reads adds to these numbers directly, without a call: a broker counts every request. The page
of metrics reads them. The numbers of a deleted topic are kept in the sums of the broker, which never decrease.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class TopicTraffic(Struct):
    """The numbers of one topic, since the broker started."""

    appends: int = 0
    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_rejected: int = 0
    failed_appends: int = 0
    reads: int = 0
    failed_reads: int = 0
    replication_bytes_in: int = 0
    replication_bytes_out: int = 0


FIELDS: Final = TopicTraffic.__struct_fields__


class Traffic:
    """The numbers of all topics of one broker, and the changes of its ISRs."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicTraffic] = {}
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.failed_isr_updates = 0
        self.disk_reads = 0
        """Reads of records that were not in the page cache."""
        self.waiting_produces = 0
        """Produce requests that wait for the high watermark now, one for each partition."""
        self.waiting_fetches = 0
        """Fetch requests that wait for records now."""
        self._deleted = TopicTraffic()

    def of(self, topic: str) -> TopicTraffic:
        """The numbers of a topic that this broker has replicas of."""
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = TopicTraffic()
        return found

    def forget(self, topic: str) -> None:
        """The topic is deleted."""
        gone = self.topics.pop(topic, None)
        if gone is not None:
            self._deleted = _sum([self._deleted, gone])

    def all_topics(self) -> TopicTraffic:
        """The sums over all topics, deleted ones included."""
        return _sum([self._deleted, *self.topics.values()])


def _sum(parts: list[TopicTraffic]) -> TopicTraffic:
    return TopicTraffic(*(sum(getattr(part, field) for part in parts) for field in FIELDS))
