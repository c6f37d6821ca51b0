"""Producer ids: from blocks of the controller, each once, whatever becomes of the questions."""

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
    """One log of grants behind however many controllers; `lost` answers are granted all the same."""

    granted: int = 0
    lost: int = 0
    refusals: list[ErrorCode] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    length: int = BLOCK

    async def call(self, request: Message, version: int, ctx: RequestContext | None = None) -> Message:
        assert isinstance(request, AllocateProducerIdsRequest)
        self.asked.append(request.broker_epoch)
        await asyncio.sleep(0)
        if self.refusals:
            return AllocateProducerIdsResponse(error_code=self.refusals.pop(0))
        start = self.granted
        self.granted += self.length
        if self.lost:
            self.lost -= 1
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        return AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=self.length)


async def code_of(ids: ProducerIds) -> ErrorCode:
    with pytest.raises(KafkaError) as refusal:
        await ids.next()
    return refusal.value.code


def test_many_ask_at_once_and_each_id_is_given_once() -> None:
    async def main() -> tuple[list[int], list[int]]:
        controllers = Controllers()
        first, second = ProducerIds(controllers, 1), ProducerIds(controllers, 2)
        first.broker_epoch, second.broker_epoch = 7, 9
        given = await asyncio.gather(*(ids.next() for _ in range(10) for ids in (first, second)))
        return given, controllers.asked

    given, asked = asyncio.run(main())
    assert sorted(given) == sorted(set(given))
    assert (asked.count(7), asked.count(9)) == (4, 4), "nobody asks for a block that another is waiting for"


def test_a_block_whose_answer_was_lost_is_never_used() -> None:
    async def main() -> list[int]:
        ids = ProducerIds(Controllers(lost=1), 1)
        assert await code_of(ids) is ErrorCode.NOT_CONTROLLER
        return [await ids.next() for _ in range(4)]

    assert asyncio.run(main()) == [3, 4, 5, 6]


def test_refusals_are_told_and_forgotten() -> None:
    async def main() -> None:
        ids = ProducerIds(Controllers(refusals=[ErrorCode.STALE_BROKER_EPOCH]), 1)
        assert await code_of(ids) is ErrorCode.STALE_BROKER_EPOCH
        assert await ids.next() == 0
        assert await code_of(ProducerIds(Controllers(length=0), 1)) is ErrorCode.UNKNOWN_SERVER_ERROR

    asyncio.run(main())
