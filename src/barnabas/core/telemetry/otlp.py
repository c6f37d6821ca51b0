"""Codec: a page of metrics -> the messages in which OpenTelemetry's protocol (OTLP) carries metrics, in protobuf.

The fields, from opentelemetry/proto/metrics/v1/metrics.proto and its neighbours:

    ExportMetricsServiceRequest  1 resource_metrics
    ResourceMetrics  1 resource (1 attributes), 2 scope_metrics
    ScopeMetrics     1 scope (1 name), 2 metrics
    Metric           1 name, 2 description, 5 gauge, 7 sum, 9 histogram
    Gauge            1 data_points
    Sum              1 data_points, 2 aggregation_temporality (2: cumulative), 3 is_monotonic
    Histogram        1 data_points, 2 aggregation_temporality
    NumberDataPoint     7 attributes, 2 start_time, 3 time, 4 as_double (fixed64)
    HistogramDataPoint  9 attributes, 2 start_time, 3 time, 4 count, 5 sum, 6 bucket_counts, 7 explicit_bounds
    KeyValue         1 key, 2 value (1 string_value)

The samples are read from the lines of the page, so that a metric is the same in both. A page may have 80,000 lines, and
encoding them takes a few hundred milliseconds: `encode_page` is a generator that yields after each piece.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from typing import Final

from barnabas.core.telemetry.exposition import Exposition, Family

POINTS_AT_ONCE: Final = 250
"""Samples of one Metric message: about a millisecond of work."""
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\(.)")
_CUMULATIVE: Final = b"\x10\x02"
_MONOTONIC: Final = b"\x18\x01"
_times: Final = struct.Struct("<BQBQ").pack
_double: Final = struct.Struct("<Bd").pack
_count: Final = struct.Struct("<BQ").pack


class Times:
    """The times of the samples of one page, in nanoseconds since 1970: when counters began at 0, and now."""

    __slots__ = ("encoded",)

    def __init__(self, started_ns: int, now_ns: int) -> None:
        self.encoded = _times(2 << 3 | 1, started_ns, 3 << 3 | 1, now_ns)


def encode_request(resource: Mapping[str, str], metrics: list[bytes]) -> bytes:
    """One request to a receiver of OTLP. `resource` describes the node, `metrics` comes from `encode_page`."""
    attributes = b"".join(_attribute(1, key, value) for key, value in resource.items())
    scope = _message(1, _message(1, b"barnabas"))
    return _message(1, _message(1, attributes) + _message(2, scope + b"".join(metrics)))


def encode_page(page: Exposition, times: Times) -> Iterator[bytes]:
    """The Metric messages of a page, each with up to POINTS_AT_ONCE samples."""
    attributes_of = _Attributes()
    for family in page.families():
        head = _message(1, family.name.encode()) + _message(2, family.help.encode())
        if family.kind == "histogram":
            for points in _some(_histogram_points(family, times)):
                yield _message(2, head + _message(9, points + _CUMULATIVE))
            continue
        points_of = _some(_number_points(family, times, attributes_of))
        if family.kind == "counter":
            for points in points_of:
                yield _message(2, head + _message(7, points + _CUMULATIVE + _MONOTONIC))
        else:
            for points in points_of:
                yield _message(2, head + _message(5, points))


class _Attributes:
    """The encoded attributes of labels. The same labels return with every metric of a partition."""

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}

    def number(self, labels: str) -> bytes:
        """The attributes of a NumberDataPoint."""
        found = self._known.get(labels)
        if found is None:
            found = self._known[labels] = b"".join(_attribute(7, key, value) for key, value in read_labels(labels))
        return found


def read_labels(labels: str) -> list[tuple[str, str]]:
    """The names and values in the labels of a sample, for example `{topic="t"}`."""
    return [(key, _ESCAPED.sub(_unescaped, value)) for key, value in _LABEL.findall(labels)]


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


def _number_points(family: Family, times: Times, attributes_of: _Attributes) -> Iterator[bytes]:
    start = len(family.name)
    for line in family.lines:
        sample, _, value = line.rpartition(" ")
        yield _message(1, attributes_of.number(sample[start:]) + times.encoded + _double(4 << 3 | 1, float(value)))


def _histogram_points(family: Family, times: Times) -> Iterator[bytes]:
    """The lines of a histogram are its buckets, in order, its sum and its count."""
    bounds: list[float] = []
    counts: list[int] = []
    total = 0.0
    for line in family.lines:
        sample, _space, value = line.rpartition(" ")
        name, _brace, labels = sample.partition("{")
        if name.endswith("_bucket"):
            bounds.append(float(dict(_LABEL.findall(labels))["le"]))
            counts.append(int(value))
        elif name.endswith("_sum"):
            total = float(value)
        else:
            attributes = b"".join(_attribute(9, key, text) for key, text in read_labels(labels))
            single = [count - before for count, before in zip(counts, [0, *counts], strict=False)]
            body = (
                attributes + times.encoded + _count(4 << 3 | 1, int(value)) + _double(5 << 3 | 1, total)
                + _message(6, struct.pack(f"<{len(single)}Q", *single))
                + _message(7, struct.pack(f"<{len(bounds) - 1}d", *bounds[:-1]))
            )  # fmt: skip
            yield _message(1, body)
            bounds, counts = [], []


def _some(points: Iterator[bytes]) -> Iterator[bytes]:
    """The points, POINTS_AT_ONCE at a time."""
    batch: list[bytes] = []
    for point in points:
        batch.append(point)
        if len(batch) == POINTS_AT_ONCE:
            yield b"".join(batch)
            batch = []
    if batch:
        yield b"".join(batch)


def _attribute(field: int, key: str, value: str) -> bytes:
    return _message(field, _message(1, key.encode()) + _message(2, _message(1, value.encode())))


def _message(field: int, body: bytes) -> bytes:
    """A field with a length. All fields here have numbers below 16."""
    size = len(body)
    if size < 0x80:
        return bytes((field << 3 | 2, size)) + body
    out = bytearray((field << 3 | 2,))
    while size > 0x7F:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    return bytes(out) + body
