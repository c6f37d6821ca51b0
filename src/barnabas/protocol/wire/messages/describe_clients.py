"""Table: DescribeClients (key 10011, not in Kafka): what the clients of one broker use per second."""

from __future__ import annotations

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
