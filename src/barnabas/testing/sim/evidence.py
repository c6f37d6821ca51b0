"""Shell: gathers the evidence at the end of a run: a separate client reads all records, partition bounds and committed
offsets."""

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
"""The process name, in the history, of the client that reads all records at the end."""
Bounds = dict[TopicPartition, tuple[int, int, int]]
"""The bounds of a partition: log start offset, last stable offset, high watermark."""


class FinalReader:
    """The final reader. It runs when all faults are healed and all producers have stopped."""

    def __init__(self, workload: Workload, within_s: float) -> None:
        self.tps = [TopicPartition(topic, index) for topic in TOPICS for index in range(workload.partitions)]
        self._workload = workload
        self._world = workload.world
        self._within_s = within_s

    async def bounds(self) -> Bounds:
        """The bounds of every partition, after every transaction has ended. Transactions of killed producers end by
        their time-out."""
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
        """Reads every partition from its start to its end with manual assignment and isolation level read_committed.
        With `who` the polls are recorded in the history under that process name."""
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
        """The committed offsets of the readers' group."""
        async with self._world.consumer(group_id=GROUP, default_api_timeout_ms=60_000) as consumer:
            found = await consumer.committed(self.tps)
        return {tp: answer.offset for tp, answer in found.items() if answer is not None}
