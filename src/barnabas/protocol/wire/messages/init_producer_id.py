"""Table: InitProducerId (key 22).

Assigns a producer id and epoch, and aborts the open transaction of an earlier producer with the same transactional id.
"""

from __future__ import annotations

from barnabas.protocol.wire.schema import Request, Response, boolean, int16, int32, int64, string


class InitProducerIdRequest(Request, key=22, versions="0-6", flexible="2+", unstable=True):
    transactional_id: str | None = string(null="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    enable_2pc: bool = boolean("6+")
    keep_prepared_txn: bool = boolean("6+")


class InitProducerIdResponse(Response, key=22, versions="0-6", flexible="2+"):
    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)
