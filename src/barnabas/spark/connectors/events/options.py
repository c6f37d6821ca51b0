"""Value: the options of change events, with Debezium's keys, values and defaults."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from barnabas.spark.connectors.events.masking import ColumnRule
from barnabas.spark.connectors.events.names import NameAdjustment


class DecimalHandling(StrEnum):
    """decimal.handling.mode: decimals as bytes with a scale, as floating-point numbers, or as text."""

    PRECISE = "precise"
    DOUBLE = "double"
    STRING = "string"


class TimePrecision(StrEnum):
    """time.precision.mode. ADAPTIVE follows the digits that a column keeps; CONNECT has milliseconds only."""

    ADAPTIVE = "adaptive"
    ADAPTIVE_TIME_MICROSECONDS = "adaptive_time_microseconds"
    CONNECT = "connect"
    MICROSECONDS = "microseconds"
    NANOSECONDS = "nanoseconds"


class BinaryHandling(StrEnum):
    """binary.handling.mode: columns of bytes as bytes, or as text."""

    BYTES = "bytes"
    BASE64 = "base64"
    BASE64_URL_SAFE = "base64-url-safe"
    HEX = "hex"


class EventOptions(Struct, frozen=True):
    """How changes become events. `topic_prefix` (topic.prefix) is the logical name of the source.

    `connector` and `version` are what the source block says: `postgresql` or `mysql`, and the version of the software.
    `unavailable_value` (unavailable.value.placeholder) replaces values that the server did not send.
    """

    topic_prefix: str
    connector: str
    version: str
    decimals: DecimalHandling = DecimalHandling.PRECISE
    unsigned: DecimalHandling | None = None
    """How BIGINT UNSIGNED, whose values are decimals in events, is handled, if not as other decimals."""
    times: TimePrecision = TimePrecision.ADAPTIVE
    binaries: BinaryHandling = BinaryHandling.BYTES
    tombstones_on_delete: bool = True
    transaction_metadata: bool = False
    unavailable_value: str = "__debezium_unavailable_value"
    task_id: str = "0"
    connector_name: str = ""
    schema_names: NameAdjustment = NameAdjustment.NONE
    field_names: NameAdjustment = NameAdjustment.NONE
    columns: tuple[ColumnRule, ...] = ()
    """Columns that are truncated or masked."""

    @property
    def context_headers(self) -> tuple[tuple[str, str], ...]:
        """The headers that every event has, the same for all."""
        return (
            ("__debezium.context.connectorLogicalName", self.topic_prefix),
            ("__debezium.context.taskId", self.task_id),
            ("__debezium.context.connectorName", self.connector_name or self.connector),
        )
