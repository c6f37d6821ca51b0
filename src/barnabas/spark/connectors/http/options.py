"""Codec: the options of `format("barnabas.http")` -> HttpOptions.

Names that Aiven's HTTP sink connector has (`http.url`, `batching.enabled`, `max.retries`, ...) mean the same here.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from enum import Enum
from typing import Final
from urllib.parse import urlsplit

import msgspec

from barnabas.core.reprs import repr_without
from barnabas.spark import option_parsers as parse_as
from barnabas.spark.connectors.option_rows import ConnectorOption, ConnectorOptions
from barnabas.spark.connectors.sinking.options import ROW_OPTIONS, ROW_PREFIXES, RowOptions, parse_row_options
from barnabas.spark.errors import OptionError


class HttpMethod(Enum):
    """`http.method`."""

    POST = "post"
    PUT = "put"
    PATCH = "patch"


class Authorization(Enum):
    """`http.authorization.type`: the header Authorization is absent, or as given, or made of a user and a password."""

    NONE = "none"
    STATIC = "static"
    BASIC = "basic"


class BatchFormat(Enum):
    """`batch.format`: the records of a request as a JSON array, or each on a line of its own."""

    JSON_ARRAY = "json-array"
    LINES = "lines"


def _retries(name: str, text: str) -> int:
    """A number of repetitions, 0 for none."""
    return 0 if text.strip() == "0" else parse_as.positive(name, text)


HTTP_OPTIONS: Final[tuple[ConnectorOption, ...]] = (
    ConnectorOption("http.url", "The address: http://host:port/path or https://..."),
    ConnectorOption("http.method", "post, put or patch.", parse_as.one_of(HttpMethod), HttpMethod.POST),
    ConnectorOption(
        "http.authorization.type",
        "none; static: the header Authorization is http.headers.authorization; basic: of http.username, http.password.",
        parse_as.one_of(Authorization),
        Authorization.NONE,
    ),
    ConnectorOption("http.headers.authorization", "The value of the header Authorization, such as Bearer abc."),
    ConnectorOption("http.username", "The user for http.authorization.type=basic.", parse_as.name),
    ConnectorOption("http.password", "The password for http.authorization.type=basic.", default=""),
    ConnectorOption("http.headers.content.type", "The type of the bodies.", parse_as.name, "application/json"),
    ConnectorOption("http.headers.additional", "More headers: name:value,name:value.", parse_as.name_list, ()),
    ConnectorOption(
        "http.headers.idempotency.key",
        "The header with the key of a request, which is the same if the request is sent again.",
        parse_as.name,
        "Idempotency-Key",
    ),
    ConnectorOption("http.timeout", "Seconds that an answer may take.", parse_as.positive, 30),
    ConnectorOption("batching.enabled", "true: several records in a request.", parse_as.boolean, False),
    ConnectorOption("batch.max.size", "The largest number of records in a request.", parse_as.positive, 500),
    ConnectorOption("batch.bytes.max", "The most bytes in a body of several records.", parse_as.size, 1024 * 1024),
    ConnectorOption(
        "batch.format",
        "json-array: a JSON array of the records; lines: a record on each line.",
        parse_as.one_of(BatchFormat),
        BatchFormat.JSON_ARRAY,
    ),
    ConnectorOption("max.retries", "How often a request is sent again, before it is an error.", _retries, 10),
    ConnectorOption(
        "retry.backoff.ms", "The time before the first repetition; it doubles each time.", parse_as.duration_ms, 1000
    ),
    ConnectorOption("retry.backoff.max.ms", "The longest time between two attempts.", parse_as.duration_ms, 60_000),
)
_OF_TABLES: Final = (
    "dbtable", "table.name.format", "insert.mode", "pk.mode", "pk.fields", "delete.enabled", "fields.whitelist",
    "unavailable.value.placeholder", "stagingLocation", "fields.include",
)  # fmt: skip
"""Options of sinks that write tables."""
_REFUSED: Final = {
    "oauth2.*": "get the token elsewhere, and set http.authorization.type=static and http.headers.authorization",
    "batch.prefix": "set batch.format=json-array or lines",
    "batch.suffix": "set batch.format=json-array or lines",
    "batch.separator": "set batch.format=json-array or lines",
}


class HttpOptions(msgspec.Struct, frozen=True):
    """All options of one query. `batch_records` is 1 without batching."""

    url: str
    rows: RowOptions
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = ()
    key_header: str = "Idempotency-Key"
    timeout_s: int = 30
    batch_records: int = 1
    batch_bytes: int = 1024 * 1024
    batch_format: BatchFormat | None = None
    retries_max: int = 10
    backoff_ms: int = 1000
    backoff_max_ms: int = 60_000

    __repr__ = repr_without("headers")


def parse_http_options(texts: Mapping[str, str]) -> HttpOptions:
    """Raises OptionError for a missing, unknown or invalid option."""
    shared = tuple(row for row in ROW_OPTIONS if row.name not in _OF_TABLES)
    given = ConnectorOptions(texts, (*HTTP_OPTIONS, *shared), prefixes=ROW_PREFIXES, refused=_REFUSED)
    given.check_names()
    url = str(given.require("http.url", "the address of the web service, such as https://example.com/hook")).strip()
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise OptionError(f"http.url must be an address such as https://example.com/hook, got {url!r}")
    if parts.username is not None:
        raise OptionError("http.url has a user: set http.authorization.type=basic, http.username and http.password")
    batching = given.get("batching.enabled")
    return HttpOptions(
        url,
        parse_row_options(ConnectorOptions(texts, ROW_OPTIONS), texts, keyed=False),
        given.get("http.method").value.upper(),
        _headers(given),
        given.get("http.headers.idempotency.key"),
        given.get("http.timeout"),
        given.get("batch.max.size") if batching else 1,
        given.get("batch.bytes.max"),
        given.get("batch.format") if batching else None,
        given.get("max.retries"),
        given.get("retry.backoff.ms"),
        given.get("retry.backoff.max.ms"),
    )


def _headers(given: ConnectorOptions) -> tuple[tuple[str, str], ...]:
    headers = [("Content-Type", str(given.get("http.headers.content.type")))]
    for text in given.get("http.headers.additional"):
        name, colon, value = text.partition(":")
        if not colon or not name.strip():
            raise OptionError(f"http.headers.additional must be name:value,name:value; got {text!r}")
        headers.append((name.strip(), value.strip()))
    kind = given.get("http.authorization.type")
    if kind is Authorization.STATIC:
        value = given.require("http.headers.authorization", "the header for http.authorization.type=static")
        headers.append(("Authorization", str(value)))
    elif "http.headers.authorization" in given:
        raise OptionError("http.headers.authorization has no effect: set http.authorization.type=static")
    if kind is Authorization.BASIC:
        user = given.require("http.username", "the user for http.authorization.type=basic")
        pair = base64.b64encode(f"{user}:{given.get('http.password')}".encode()).decode()
        headers.append(("Authorization", f"Basic {pair}"))
    for name, value in headers:
        if not name.isascii() or any(char in name + value for char in "\r\n\0"):
            raise OptionError(f"the header {name!r} has a character that HTTP does not allow")
    return tuple(headers)
