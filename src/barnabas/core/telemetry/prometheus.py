"""Codec: a `Metrics` registry -> the Prometheus text exposition format, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.core.telemetry.metrics import Counter, Gauge, Histogram, Labels, Metric, Metrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render(metrics: Metrics) -> str:
    """The whole registry as text, families in order of name."""
    lines: list[str] = []
    for name, help_text, members in metrics.families():
        if not members:
            continue
        if help_text:
            lines.append(f"# HELP {name} {_escape_help(help_text)}")
        lines.append(f"# TYPE {name} {_kind(next(iter(members.values())))}")
        for labels, metric in sorted(members.items()):
            lines.extend(_samples(name, labels, metric))
    return "\n".join(lines) + "\n" if lines else ""


def _kind(metric: Metric) -> str:
    match metric:
        case Counter():
            return "counter"
        case Gauge():
            return "gauge"
        case Histogram():
            return "histogram"


def _samples(name: str, labels: Labels, metric: Metric) -> Iterator[str]:
    if not isinstance(metric, Histogram):
        yield f"{name}{_labels(labels)} {_number(metric.value)}"
        return
    cumulative = 0
    for bound, count in zip((*metric.bounds, float("inf")), metric.counts, strict=True):
        cumulative += count
        yield f"{name}_bucket{_labels((*labels, ('le', _number(bound))))} {cumulative}"
    yield f"{name}_sum{_labels(labels)} {_number(metric.sum)}"
    yield f"{name}_count{_labels(labels)} {cumulative}"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{_escape_label(value)}"' for key, value in labels) + "}"


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if value == int(value) else repr(value)


def _escape_label(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
