"""Shell: the metrics of topics: what was appended, read and replicated, the changes of ISRs, requests that wait, and
reads of the disk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from barnabas.core.telemetry.exposition import Exposition, escape_label
from barnabas.server.monitoring.limits import PARTITIONS_AT_ONCE, TOPICS_MAX, LeftOut
from barnabas.server.replication.traffic import TopicTraffic, Traffic

_PREFIX: Final = "kafka_server_brokertopicmetrics_"
_BY_TOPIC: Final = (
    ("messagesin_total", "messages_in"),
    ("bytesin_total", "bytes_in"),
    ("bytesout_total", "bytes_out"),
    ("bytesrejected_total", "bytes_rejected"),
    ("failedproducerequests_total", "failed_appends"),
    ("totalfetchrequests_total", "reads"),
    ("failedfetchrequests_total", "failed_reads"),
)


class TopicMonitor:
    """Reads the traffic of one broker."""

    def __init__(self, traffic: Traffic, left_out: LeftOut) -> None:
        self._traffic = traffic
        self._left_out = left_out

    def collect(self, page: Exposition) -> Iterator[None]:
        """Add the samples of all topics, and the sums without a topic."""
        traffic = self._traffic
        total = traffic.all_topics()
        _add(page, total, "")
        page.family(_PREFIX + "replicationbytesin_total").add(total.replication_bytes_in)
        page.family(_PREFIX + "replicationbytesout_total").add(total.replication_bytes_out)
        manager = "kafka_server_replicamanager_"
        page.family(manager + "isrshrinks_total").add(traffic.isr_shrinks)
        page.family(manager + "isrexpands_total").add(traffic.isr_expands)
        page.family(manager + "failedisrupdates_total").add(traffic.failed_isr_updates)
        purgatory = page.family("kafka_server_delayedoperationpurgatory_purgatorysize")
        purgatory.add(traffic.waiting_produces, '{delayedOperation="Produce"}')
        purgatory.add(traffic.waiting_fetches, '{delayedOperation="Fetch"}')
        page.family("barnabas_log_disk_reads_total").add(traffic.disk_reads)
        yield
        topics = list(traffic.topics.items())
        for count, (topic, numbers) in enumerate(topics[:TOPICS_MAX], 1):
            _add(page, numbers, f'{{topic="{escape_label(topic)}"}}')
            if count % PARTITIONS_AT_ONCE == 0:
                yield
        self._left_out.set("topic", max(len(topics) - TOPICS_MAX, 0))
        yield


def _add(page: Exposition, numbers: TopicTraffic, labels: str) -> None:
    for name, field in _BY_TOPIC:
        page.family(_PREFIX + name).add(getattr(numbers, field), labels)
    page.family(_PREFIX + "totalproducerequests_total").add(numbers.appends + numbers.failed_appends, labels)
