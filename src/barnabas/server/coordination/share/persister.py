"""Shell: the client of the share coordinators (Kafka's PersisterStateManager).

`Persister` implements the group coordinator's port `group.share.ports.ShareStates`, and the partition leaders' port
`replication.share.ports.SharePersister`. Error codes in responses are raised as `KafkaError`. Requests are retried
while the coordinator of a share partition moves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from barnabas.core.backoff import Backoff
from barnabas.core.errors import ErrorCode, KafkaError, error_code
from barnabas.core.ids import TopicId
from barnabas.core.rng import Rng
from barnabas.core.work import for_each
from barnabas.protocol.wire.messages import delete_share_group_state as deleting
from barnabas.protocol.wire.messages import initialize_share_group_state as initializing
from barnabas.protocol.wire.messages import read_share_group_state as reading
from barnabas.protocol.wire.messages import read_share_group_state_summary as summing
from barnabas.protocol.wire.messages import write_share_group_state as writing
from barnabas.protocol.wire.schema import Request
from barnabas.server.coordination.share.ports import ShareChannel
from barnabas.server.coordination.share.state import ShareKey, ShareState

_MOVING: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
ATTEMPTS_MAX: Final = 6
"""The number of attempts, as in PersisterStateManager. After the last one the error is raised."""
_BACKOFF: Final = Backoff(100, 1_000)

Persisted = tuple[int, int, list[tuple[int, int, int, int]]]
"""State epoch, start offset, batches of (first, last, state, delivery count)."""


class Persister:
    """Reads and writes the state of share partitions. Every method raises KafkaError."""

    def __init__(self, channel: ShareChannel, rng: Rng) -> None:
        self._channel = channel
        self._rng = rng

    # -- for the leader of a partition ---------------------------------------------------------------------------

    async def read(self, group_id: str, topic_id: TopicId, partition: int, leader_epoch: int) -> Persisted:
        request = reading.ReadShareGroupStateRequest(
            group_id=group_id,
            topics=[
                reading.ReadStateData(
                    topic_id=topic_id,
                    partitions=[reading.PartitionData(partition=partition, leader_epoch=leader_epoch)],
                )
            ],
        )
        result = await self._send(ShareKey(group_id, topic_id, partition), request)
        batches = [(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in result.state_batches]
        return result.state_epoch, result.start_offset, batches

    async def write(
        self,
        group_id: str,
        topic_id: TopicId,
        partition: int,
        *,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        complete_count: int,
        batches: Iterable[tuple[int, int, int, int]],
    ) -> None:
        data = writing.PartitionData(
            partition=partition,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=complete_count,
            state_batches=[
                writing.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
                for first, last, state, count in batches
            ],
        )
        request = writing.WriteShareGroupStateRequest(
            group_id=group_id, topics=[writing.WriteStateData(topic_id=topic_id, partitions=[data])]
        )
        await self._send(ShareKey(group_id, topic_id, partition), request)

    # -- for the group coordinator -------------------------------------------------------------------------------

    async def initialize(
        self, group_id: str, state_epoch: int, starts: Mapping[TopicId, Mapping[int, int]]
    ) -> dict[tuple[TopicId, int], KafkaError | None]:
        """Initialize each share partition with its start offset; -1: the partition leader selects it. Returns one
        result for each share partition."""

        def build(key: ShareKey) -> Request:
            data = initializing.PartitionData(
                partition=key.partition, state_epoch=state_epoch, start_offset=starts[key.topic_id][key.partition]
            )
            return initializing.InitializeShareGroupStateRequest(
                group_id=group_id,
                topics=[initializing.InitializeStateData(topic_id=key.topic_id, partitions=[data])],
            )

        found = await self._send_each(group_id, starts, build)
        return {key: answer if isinstance(answer, KafkaError) else None for key, answer in found.items()}

    async def delete(
        self, group_id: str, partitions: Mapping[TopicId, Iterable[int]]
    ) -> dict[tuple[TopicId, int], KafkaError | None]:
        def build(key: ShareKey) -> Request:
            data = deleting.DeleteStateData(
                topic_id=key.topic_id, partitions=[deleting.PartitionData(partition=key.partition)]
            )
            return deleting.DeleteShareGroupStateRequest(group_id=group_id, topics=[data])

        found = await self._send_each(group_id, partitions, build)
        return {key: answer if isinstance(answer, KafkaError) else None for key, answer in found.items()}

    async def summaries(
        self, group_id: str, partitions: Mapping[TopicId, Iterable[int]]
    ) -> dict[tuple[TopicId, int], ShareState | KafkaError]:
        """The epochs, start offset and delivery-complete count of each share partition, without its batches."""

        def build(key: ShareKey) -> Request:
            data = summing.ReadStateSummaryData(
                topic_id=key.topic_id, partitions=[summing.PartitionData(partition=key.partition, leader_epoch=-1)]
            )
            return summing.ReadShareGroupStateSummaryRequest(group_id=group_id, topics=[data])

        found = await self._send_each(group_id, partitions, build)
        return {
            key: answer
            if isinstance(answer, KafkaError)
            else ShareState(
                state_epoch=answer.state_epoch,
                leader_epoch=answer.leader_epoch,
                start_offset=answer.start_offset,
                complete_count=answer.delivery_complete_count,
            )
            for key, answer in found.items()
        }

    # ------------------------------------------------------------------------------------------------------------

    async def _send_each(
        self, group_id: str, partitions: Mapping[TopicId, Iterable[int]], build: Callable[[ShareKey], Request]
    ) -> dict[tuple[TopicId, int], Any]:
        """Send a request for each share partition. When all are answered, those whose coordinator moves are sent
        again."""
        keys = [
            ShareKey(group_id, topic_id, partition)
            for topic_id in sorted(partitions)
            for partition in sorted(set(partitions[topic_id]))
        ]

        async def attempt_one(key: ShareKey) -> Any:
            return await self._try(key, build(key))

        found: dict[ShareKey, Any] = {}
        unanswered = keys
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                await self._back_off(attempt)
            found.update(zip(unanswered, await for_each(attempt_one, unanswered), strict=True))
            unanswered = [key for key in unanswered if _is_moving(found[key])]
            if not unanswered:
                break
        return {(key.topic_id, key.partition): found[key] for key in keys}

    async def _send(self, key: ShareKey, request: Request) -> Any:
        """Send a request for one share partition and return its result. Retries while the coordinator moves. Raises
        KafkaError."""
        answer = await self._try(key, request)
        for attempt in range(1, ATTEMPTS_MAX):
            if not _is_moving(answer):
                break
            await self._back_off(attempt)
            answer = await self._try(key, request)
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    async def _back_off(self, attempt: int) -> None:
        """Wait before attempt number `attempt`; the first attempt has number 0."""
        await asyncio.sleep(_BACKOFF.delay_ms(attempt - 1, self._rng) / 1000)

    async def _try(self, key: ShareKey, request: Request) -> Any:
        """Send a request for one share partition once. Returns the result, or the error."""
        try:
            response = await self._channel.send(key.coordinator_key, request)
        except KafkaError as error:
            return error
        result = response.results[0].partitions[0]
        if result.error_code:
            return KafkaError(error_code(result.error_code), result.error_message or "")
        return result


def _is_moving(answer: Any) -> bool:
    """Whether the answer is an error after which the request is sent again."""
    return isinstance(answer, KafkaError) and answer.code in _MOVING
