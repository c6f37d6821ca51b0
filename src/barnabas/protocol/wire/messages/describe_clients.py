"""Table: DescribeClients (key 10011, not in Kafka): what the clients of one broker use per second."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from barnabas.protocol.wire.schema import (
    MessageStruct,
    Request,
    Response,
    array,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
)


class ClientView(IntEnum):
    """What the rows of a response stand for: the field `view` of the request."""

    CLIENT_ID = 0
    ADDRESS = 1
    PRINCIPAL = 2
    PARTITION = 3
    """What all clients together write to each partition and read from it."""
    PARTITION_CLIENT = 4
    """What each client writes to each partition and reads from it."""


_BYTE_S: Final = 1e-8
"""One byte counts like this time when rows are compared: 100 MB/s like a whole event loop."""


def activity(seconds: float, bytes_in: float, bytes_out: float) -> float:
    """How much a row uses, as one number: rows are sorted by it, and a broker keeps the rows with the most."""
    return seconds + (bytes_in + bytes_out) * _BYTE_S


class DescribeClientsRequest(Request, key=10011, versions="0", flexible="0+"):
    view: int = int8()


class ClientRow(MessageStruct):
    """The names that the view does not have are null. In the row of all others (`is_others`) all names are null."""

    is_others: bool = boolean()
    client_id: str | None = string(null="0+", default=None)
    address: str | None = string(null="0+", default=None)
    principal: str | None = string(null="0+", default=None)
    topic: str | None = string(null="0+", default=None)
    partition: int = int32(default=-1)
    producer_id: int = int64(default=-1)
    bytes_in: float = float64()
    bytes_out: float = float64()
    requests: float = float64()
    seconds: float = float64()
    records_in: float = float64()


class DescribeClientsResponse(Response, key=10011, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    rows: list[ClientRow] = array(ClientRow)
