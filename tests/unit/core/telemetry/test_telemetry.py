"""Metrics, their text, and the log."""

from __future__ import annotations

import io
import json
import logging

import pytest

from barnabas.core.telemetry import Metrics, get_logger, render
from barnabas.core.telemetry.log import configure_logging


def test_the_text_format() -> None:
    metrics = Metrics()
    metrics.counter("requests_total", "Requests.", api="Fetch").add(3)
    metrics.counter("requests_total", api='Odd"name').value += 1.5
    metrics.gauge("open", "Open things.", lambda: 7)
    histogram = metrics.histogram("latency_ms", "How long.", (1, 10))
    for value in (0.5, 1, 5, 100):
        histogram.observe(value)
    assert render(metrics) == (
        "# HELP latency_ms How long.\n# TYPE latency_ms histogram\n"
        'latency_ms_bucket{le="1"} 2\nlatency_ms_bucket{le="10"} 3\nlatency_ms_bucket{le="+Inf"} 4\n'
        "latency_ms_sum 106.5\nlatency_ms_count 4\n"
        "# HELP open Open things.\n# TYPE open gauge\nopen 7\n"
        "# HELP requests_total Requests.\n# TYPE requests_total counter\n"
        'requests_total{api="Fetch"} 3\nrequests_total{api="Odd\\"name"} 1.5\n'
    )


def test_one_metric_per_name_and_labels() -> None:
    metrics = Metrics()
    assert metrics.counter("a", topic="t") is metrics.counter("a", topic="t")
    assert metrics.counter("a", topic="t") is not metrics.counter("a", topic="u")
    with pytest.raises(TypeError, match="another name"):
        metrics.gauge("a", topic="t")
    metrics.forget(topic="t")
    assert 'topic="t"' not in render(metrics)
    assert 'topic="u"' in render(metrics)


def test_quantiles_are_bounds() -> None:
    histogram = Metrics().histogram("h", bounds=(1, 2, 4))
    for value in (0.1, 0.2, 1.5, 3):
        histogram.observe(value)
    assert [histogram.quantile(q) for q in (0.5, 0.75, 1.0)] == [1, 2, 4]
    histogram.observe(99)
    assert histogram.quantile(1.0) == float("inf")


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


def test_events_with_fields(stream: io.StringIO) -> None:
    configure_logging("info", stream=stream)
    try:
        log = get_logger("barnabas.test")
        log.info("it happened", topic="a b", count=3)
        log.debug("unseen")
        assert stream.getvalue().rstrip().endswith('INFO barnabas.test it happened topic="a b" count=3')
    finally:
        logging.getLogger("barnabas").handlers.clear()
        logging.getLogger("barnabas").propagate = True


def test_events_as_json(stream: io.StringIO) -> None:
    configure_logging("debug", as_json=True, stream=stream)
    try:
        get_logger("barnabas.test").warning("odd", topic="t")
        event = json.loads(stream.getvalue())
        assert {key: event[key] for key in ("level", "logger", "event", "topic")} == {
            "level": "WARNING",
            "logger": "barnabas.test",
            "event": "odd",
            "topic": "t",
        }
    finally:
        logging.getLogger("barnabas").handlers.clear()
        logging.getLogger("barnabas").propagate = True
