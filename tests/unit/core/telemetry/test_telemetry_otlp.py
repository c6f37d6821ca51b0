"""A page of metrics in OpenTelemetry's protocol, read back."""

from __future__ import annotations

from barnabas.core.telemetry import Metrics
from barnabas.core.telemetry.exposition import Exposition, building
from barnabas.core.telemetry.otlp import POINTS_AT_ONCE, Times, encode_page, encode_request, read_labels
from barnabas.server.broker.client_metrics.otlp import MetricPoint, read_metrics

LEADERS = "kafka_server_replicamanager_leadercount"
BYTES_IN = "kafka_server_brokertopicmetrics_bytesin_total"
HELD = "barnabas_loop_held_ms"


def read_back(metrics: Metrics) -> list[MetricPoint]:
    page = Exposition()
    for _ in building(metrics, page):
        pass
    return read_metrics(encode_request({"service.name": "barnabas"}, list(encode_page(page, Times(1, 2)))))


def test_gauges_counters_and_histograms() -> None:
    metrics = Metrics()
    metrics.gauge(LEADERS).set(2)
    metrics.counter(BYTES_IN, topic='a"b\\c\n').add(300)
    held = metrics.histogram(HELD, bounds=(1, 10), by="Fetch")
    for value in (0.5, 0.75, 5, 100):
        held.observe(value)
    assert read_back(metrics) == [
        MetricPoint(f"{HELD}.count", 4, (("by", "Fetch"),)),
        MetricPoint(f"{HELD}.sum", 106.25, (("by", "Fetch"),)),
        MetricPoint(BYTES_IN, 300, (("topic", 'a"b\\c\n'),)),
        MetricPoint(LEADERS, 2),
    ]


def test_a_metric_with_many_samples_is_divided() -> None:
    metrics = Metrics()
    for number in range(POINTS_AT_ONCE + 1):
        metrics.counter(BYTES_IN, topic=f"t{number:04}").add(number)
    page = Exposition()
    for _ in building(metrics, page):
        pass
    assert len(list(encode_page(page, Times(1, 2)))) == 2
    assert [point.value for point in read_back(metrics)] == list(range(POINTS_AT_ONCE + 1))


def test_labels_are_read_as_prometheus_reads_them() -> None:
    assert read_labels(r'{topic="a\\n\"b\n",partition="0"}') == [("topic", 'a\\n"b\n'), ("partition", "0")]
    assert read_labels("") == []
