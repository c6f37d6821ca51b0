"""Shell: what is there at the end of a run: read by a client of its own, bounds and committed offsets asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.testing.histories import OperationKind, PollAction
from barnabas.testing.sim.errors import LivenessError
from barnabas.testing.sim.workload import GROUP, TOPICS, decode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.testing.sim.invariants import Rows
    from barnabas.testing.sim.workload import Workload

LAST_READER: Final = "last"
"""What the history calls the client that reads everything at the end."""
Bounds = dict[TopicPartition, tuple[int, int, int]]
"""log start offset, last stable offset, high watermark"""


class LastLook:
    """Everything is well again, and nobody writes."""

    def __init__(self, workload: Workload, within_s: float) -> None:
        self.tps = [TopicPartition(topic, index) for topic in TOPICS for index in range(workload.partitions)]
        self._workload = workload
        self._world = workload.world
        self._within_s = within_s

    async def bounds(self) -> Bounds:
        """When every transaction has ended: those of dead producers by their time-out."""
        found: Bounds = {}
        tps = self.tps

        async def settled() -> bool:
            try:
                async with (
                    self._world.consumer(isolation_level="read_uncommitted") as reader,
                    self._world.consumer(isolation_level="read_committed") as committed,
                ):
                    starts, ends = await reader.beginning_offsets(tps), await reader.end_offsets(tps)
                    stable = await committed.end_offsets(tps)
            except KafkaError as error:
                if error.retriable:
                    return False
                raise
            found.update({tp: (starts[tp], stable[tp], ends[tp]) for tp in tps})
            return stable == ends

        await self._world.until(settled, self._within_s, "no transaction is open any more")
        return found

    async def read_all(
        self, who: str | None, bounds: Mapping[TopicPartition, tuple[int, int, int]]
    ) -> dict[TopicPartition, Rows]:
        """Every partition from its start to its end, by hand, read_committed; into the history as `who`."""
        world, recorder = self._world, self._workload.facts.recorder
        rows: dict[TopicPartition, list[tuple[int, bytes | None]]] = {tp: [] for tp in self.tps}
        async with world.consumer(isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
            consumer.assign(self.tps)
            if who is not None:
                recorder.note(who, OperationKind.ASSIGN, [str(tp) for tp in self.tps], self._workload.now())
            deadline = world.loop.time() + self._within_s
            while True:
                positions = {tp: await consumer.position(tp) for tp in self.tps}
                if all(positions[tp] >= bounds[tp][1] for tp in self.tps):
                    break
                if world.loop.time() > deadline:
                    raise LivenessError(f"The last reader does not get to the end: it is at {positions} of {bounds}.")
                records = await consumer.poll(500)
                for record in records:
                    rows[TopicPartition(record.topic, record.partition)].append((record.offset, record.value))
                if who is not None:
                    operation = recorder.invoke(who, OperationKind.POLL, (), self._workload.now())
                    polls = [PollAction(f"{r.topic}-{r.partition}", decode(r.value), r.offset) for r in records]
                    recorder.ok(operation, polls, self._workload.now())
        return {tp: tuple(found) for tp, found in rows.items()}

    async def committed(self) -> dict[TopicPartition, int]:
        """What the readers' group has committed."""
        async with self._world.consumer(group_id=GROUP, default_api_timeout_ms=60_000) as consumer:
            found = await consumer.committed(self.tps)
        return {tp: answer.offset for tp, answer in found.items() if answer is not None}
