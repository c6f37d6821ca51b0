"""Machine: AllocateProducerIds, blocks of producer ids for brokers (KIP-730, `ProducerIdControlManager`)."""

from __future__ import annotations

from typing import Final

from barnabas.core.decision import Decision
from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from barnabas.server.metadata.controller.settings import DecideContext
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.metadata.records.other import ProducerIdsRecord

BLOCK_SIZE: Final = 1000
_LONG_MAX: Final = 2**63 - 1


def decide_allocate_producer_ids(
    image: ClusterImage, request: AllocateProducerIdsRequest, ctx: DecideContext
) -> Decision[MetadataRecord, AllocateProducerIdsResponse]:
    """Allocate the next block to a broker that is registered with the epoch in the request."""
    broker = image.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        return Decision(AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    first = image.producer_ids.next_producer_id
    if first > _LONG_MAX - BLOCK_SIZE:
        return Decision(AllocateProducerIdsResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))
    record = ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=first + BLOCK_SIZE
    )
    return Decision(AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE), (record,))
