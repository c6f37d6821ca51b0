"""Codec: the metrics that clients push: OTLP's MetricsData in protobuf -> a list of values.

Only what a page of metrics needs is read. The fields, from opentelemetry/proto/metrics/v1/metrics.proto:

    MetricsData      1 resource_metrics
    ResourceMetrics  1 resource (1 attributes), 2 scope_metrics
    ScopeMetrics     2 metrics
    Metric           1 name, 5 gauge, 7 sum, 9 histogram
    Gauge            1 data_points
    Sum              1 data_points, 2 aggregation_temporality (1: delta), 3 is_monotonic
    Histogram        1 data_points, 2 aggregation_temporality
    NumberDataPoint     7 attributes, 4 as_double (fixed64), 6 as_int (sfixed64)
    HistogramDataPoint  9 attributes, 4 count (fixed64), 5 sum (double)
    KeyValue         1 key, 2 value (AnyValue: 1 string, 2 bool, 3 int, 4 double)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import islice
from typing import Final

from msgspec import Struct

from barnabas.core.buffers import Buffer
from barnabas.core.errors import BarnabasError

POINTS_MAX: Final = 2_000
"""More values in one push are ignored."""
FIELDS_MAX: Final = 100_000
"""A message with more fields is refused; reading so many takes about 0.1 s."""
_DELTA: Final = 1
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_double = struct.Struct("<d").unpack_from
_int64 = struct.Struct("<q").unpack_from


class OtlpError(BarnabasError):
    """The bytes are not a message of this kind."""


class MetricPoint(Struct, frozen=True):
    """One value of a metric. `is_delta` means that the value is to be added to the earlier ones."""

    name: str
    value: float
    attributes: tuple[tuple[str, str], ...] = ()
    is_delta: bool = False


Field = tuple[int, int, int, int]
"""The number of a field, its wire type, and where its value begins and ends. A varint is in place of the beginning."""


def read_metrics(data: Buffer) -> list[MetricPoint]:
    """The values in a MetricsData message. Raises OtlpError."""
    try:
        return list(islice(_Reader().points(memoryview(data)), POINTS_MAX))
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise OtlpError(f"The metrics of a client are not valid OTLP: {error}") from error


class _Reader:
    """Reads one message, and counts its fields."""

    def __init__(self) -> None:
        self._left = FIELDS_MAX

    def points(self, message: memoryview) -> Iterator[MetricPoint]:
        """The values in a MetricsData message."""
        for resource in self._messages(message, 1):
            for scope in self._messages(resource, 2):
                for metric in self._messages(scope, 2):
                    yield from self._points(metric)

    def _points(self, metric: memoryview) -> Iterator[MetricPoint]:
        name = ""
        for number, kind, start, end in self._fields(metric):
            if number == 1 and kind == _BYTES:
                name = str(metric[start:end], "utf-8")
        for number, kind, start, end in self._fields(metric):
            if kind != _BYTES:
                continue
            body = metric[start:end]
            if number == 5 or number == 7:
                is_delta = number == 7 and self._varint_field(body, 2) == _DELTA
                for point in self._messages(body, 1):
                    value = self._number(point)
                    if value is not None:
                        yield MetricPoint(name, value, self._attributes(point, 7), is_delta)
            elif number == 9:
                is_delta = self._varint_field(body, 2) == _DELTA
                for point in self._messages(body, 1):
                    yield from self._histogram(name, point, is_delta=is_delta)

    def _number(self, point: memoryview) -> float | None:
        for number, kind, start, _ in self._fields(point):
            if kind == _FIXED64 and number == 4:
                return float(_double(point, start)[0])
            if kind == _FIXED64 and number == 6:
                return float(_int64(point, start)[0])
        return None

    def _histogram(self, name: str, point: memoryview, *, is_delta: bool) -> Iterator[MetricPoint]:
        attributes = self._attributes(point, 9)
        for number, kind, start, _ in self._fields(point):
            if kind == _FIXED64 and number == 4:
                yield MetricPoint(f"{name}.count", float(_int64(point, start)[0]), attributes, is_delta)
            elif kind == _FIXED64 and number == 5:
                yield MetricPoint(f"{name}.sum", float(_double(point, start)[0]), attributes, is_delta)

    def _attributes(self, message: memoryview, wanted: int) -> tuple[tuple[str, str], ...]:
        found: list[tuple[str, str]] = []
        for pair in self._messages(message, wanted):
            key = value = ""
            for number, kind, start, end in self._fields(pair):
                if number == 1 and kind == _BYTES:
                    key = str(pair[start:end], "utf-8")
                elif number == 2 and kind == _BYTES:
                    value = self._any_value(pair[start:end])
            found.append((key, value))
        return tuple(sorted(found))

    def _any_value(self, value: memoryview) -> str:
        for number, kind, start, end in self._fields(value):
            if number == 1 and kind == _BYTES:
                return str(value[start:end], "utf-8")
            if kind == _VARINT and number == 2:
                return "true" if start else "false"
            if kind == _VARINT and number == 3:
                return str(start - (1 << 64) if start >> 63 else start)
            if kind == _FIXED64 and number == 4:
                return repr(_double(value, start)[0])
        return ""

    def _varint_field(self, message: memoryview, wanted: int) -> int:
        for number, kind, value, _ in self._fields(message):
            if number == wanted and kind == _VARINT:
                return value
        return 0

    def _messages(self, message: memoryview, wanted: int) -> Iterator[memoryview]:
        for number, kind, start, end in self._fields(message):
            if number == wanted and kind == _BYTES:
                yield message[start:end]

    def _fields(self, message: memoryview) -> Iterator[Field]:
        position, size = 0, len(message)
        while position < size:
            self._left -= 1
            if self._left < 0:
                raise OtlpError(f"The metrics of a client have more than {FIELDS_MAX} fields")
            tag, position = _varint(message, position)
            number, kind = tag >> 3, tag & 7
            if kind == _VARINT:
                value, position = _varint(message, position)
                yield number, kind, value, position
                continue
            if kind == _BYTES:
                length, position = _varint(message, position)
            elif kind in (_FIXED64, _FIXED32):
                length = 8 if kind == _FIXED64 else 4
            else:
                raise OtlpError(f"The metrics of a client are not valid OTLP: wire type {kind}")
            if length > size - position:
                raise OtlpError(f"The metrics of a client are not valid OTLP: {length} bytes of {size - position}")
            yield number, kind, position, position + length
            position += length


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position
        shift += 7
        if shift > 63:
            raise OtlpError("The metrics of a client are not valid OTLP: a number has too many bytes")
