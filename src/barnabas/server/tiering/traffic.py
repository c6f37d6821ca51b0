"""Value: what a broker has copied to the object store, read from it and deleted there, counted for each topic.

The names are those of Kafka's BrokerTopicMetrics. The numbers of a deleted topic are kept in the sums of the broker.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class RemoteTopicTraffic(Struct):
    """The numbers of one topic, since the broker started."""

    remote_copy_bytes: int = 0
    remote_copy_requests: int = 0
    remote_copy_errors: int = 0
    remote_fetch_bytes: int = 0
    remote_fetch_requests: int = 0
    remote_fetch_errors: int = 0
    remote_delete_requests: int = 0
    remote_delete_errors: int = 0


FIELDS: Final = RemoteTopicTraffic.__struct_fields__


class RemoteTraffic:
    """The numbers of all topics of one broker."""

    def __init__(self) -> None:
        self.topics: dict[str, RemoteTopicTraffic] = {}
        self._deleted = RemoteTopicTraffic()

    def of(self, topic: str) -> RemoteTopicTraffic:
        """The numbers of a topic."""
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = RemoteTopicTraffic()
        return found

    def forget(self, topic: str) -> None:
        """The topic is deleted."""
        gone = self.topics.pop(topic, None)
        if gone is not None:
            self._deleted = _sum([self._deleted, gone])

    def all_topics(self) -> RemoteTopicTraffic:
        """The sums over all topics, deleted ones included."""
        return _sum([self._deleted, *self.topics.values()])


def _sum(parts: list[RemoteTopicTraffic]) -> RemoteTopicTraffic:
    return RemoteTopicTraffic(*(sum(getattr(part, field) for part in parts) for field in FIELDS))
