"""Producer ids: each is allocated once, from the blocks of the controller, even if responses are lost."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from barnabas.protocol.wire.schema import Message
from barnabas.server.broker.producer_ids import ProducerIds
from barnabas.server.broker.request_context import RequestContext

BLOCK = 3


@dataclass
class Controllers:
    """The controllers of one cluster. `lost` responses are not delivered, but their blocks are granted."""

    granted: int = 0
    lost: int = 0
    errors: list[ErrorCode] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)
    length: int = BLOCK

    async def call(self, request: Message, version: int, ctx: RequestContext | None = None) -> Message:
        assert isinstance(request, AllocateProducerIdsRequest)
        self.requests.append(request.broker_epoch)
        await asyncio.sleep(0)
        if self.errors:
            return AllocateProducerIdsResponse(error_code=self.errors.pop(0))
        start = self.granted
        self.granted += self.length
        if self.lost:
            self.lost -= 1
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        return AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=self.length)


async def code_of(ids: ProducerIds) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        await ids.next()
    return error.value.code


def test_concurrent_callers_get_distinct_ids() -> None:
    async def main() -> tuple[list[int], list[int]]:
        controllers = Controllers()
        first, second = ProducerIds(controllers, 1), ProducerIds(controllers, 2)
        first.broker_epoch, second.broker_epoch = 7, 9
        allocated = await asyncio.gather(*(ids.next() for _ in range(10) for ids in (first, second)))
        return allocated, controllers.requests

    allocated, requests = asyncio.run(main())
    assert sorted(allocated) == sorted(set(allocated))
    assert (requests.count(7), requests.count(9)) == (4, 4), "one request for a block at a time"


def test_block_whose_response_was_lost_is_never_used() -> None:
    async def main() -> list[int]:
        ids = ProducerIds(Controllers(lost=1), 1)
        assert await code_of(ids) is ErrorCode.NOT_CONTROLLER
        return [await ids.next() for _ in range(4)]

    assert asyncio.run(main()) == [3, 4, 5, 6]


def test_error_of_the_controller_fails_one_call_only() -> None:
    async def main() -> None:
        ids = ProducerIds(Controllers(errors=[ErrorCode.STALE_BROKER_EPOCH]), 1)
        assert await code_of(ids) is ErrorCode.STALE_BROKER_EPOCH
        assert await ids.next() == 0
        assert await code_of(ProducerIds(Controllers(length=0), 1)) is ErrorCode.UNKNOWN_SERVER_ERROR

    asyncio.run(main())
