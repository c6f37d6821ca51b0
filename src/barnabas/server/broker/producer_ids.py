"""Shell: allocates producer ids from blocks that the controller grants (KIP-730).

A producer id is unique in the cluster, because the controller writes the end of a block to the metadata log before a
broker uses the block. The unused ids of a block are lost when the broker stops. If the response that grants a block is
lost, the ids of the block are lost too: the channel sends the request again, if need be to the next controller, and
gets another block.

Cluster links raise a floor below all producer ids that are handed out from then on, so that no fresh id equals one in
mirrored records (`docs/adr/0019-cluster-links.md`).
"""

from __future__ import annotations

import asyncio

from barnabas.core.errors import ErrorCode, KafkaError, error_code
from barnabas.protocol.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from barnabas.server.broker.forward import ControllerChannel
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import ClusterDelta


class ProducerIds:
    """The producer ids of this broker."""

    def __init__(self, controller: ControllerChannel, node_id: int) -> None:
        self._controller = controller
        self._node_id = node_id
        self.broker_epoch = -1
        self._next = 0
        self._end = 0
        self._floor = 0
        self._refill = asyncio.Lock()

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        """Drop the block in use if it is below the floor that a cluster link has set."""
        if delta.producer_id_floor is not None:
            self._floor = max(self._floor, delta.producer_id_floor)
            self._drop_below_floor()

    def _drop_below_floor(self) -> None:
        if self._next < self._floor:
            self._next = self._end = 0

    async def next(self) -> int:
        """A producer id that was never used before. Raises KafkaError if the controller grants no block."""
        while self._next >= self._end:
            async with self._refill:
                if self._next >= self._end:
                    await self._grant()
        self._next += 1
        return self._next - 1

    async def _grant(self) -> None:
        request = AllocateProducerIdsRequest(broker_id=self._node_id, broker_epoch=self.broker_epoch)
        response = await self._controller.call(request, 0)
        assert isinstance(response, AllocateProducerIdsResponse)
        if response.error_code:
            raise KafkaError(error_code(response.error_code))
        if response.producer_id_len <= 0:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                "The controller granted an empty block of producer ids. Retry the request.",
            )
        self._next = response.producer_id_start
        self._end = response.producer_id_start + response.producer_id_len
        self._drop_below_floor()  # the controller may have granted the block before it raised the floor
