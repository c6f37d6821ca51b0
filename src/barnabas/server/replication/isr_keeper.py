"""Shell: maintains the ISRs of the partitions that this broker leads (Kafka's `AlterPartitionManager`).

Every half replica.lag.time.max.ms the followers are checked for lag: `Partition.shrink_isr` calls
`LeaderRole.shrink_isr`, and `rules/isr.py` (`try_shrink`) decides. A proposal returns by `LeaderRole`, `Partition` and
`Replication` to `IsrKeeper.propose`; `PeerChannel.alter_partition` sends it (`peers/replication.py`). The
proposals of all partitions go to the controller in one AlterPartition request, one request at a time. A proposal
without a response is sent again with the broker epoch of that time, unless an image has settled the proposal meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from barnabas.core.backoff import Backoff
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.rng import Rng
from barnabas.core.telemetry import get_logger
from barnabas.server.replication.context import ReplicationContext
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.ports import IsrAnswer, PartitionKey, PeerChannel
from barnabas.server.replication.rules.isr import Next
from barnabas.server.replication.rules.leader import IsrProposal

log = get_logger("barnabas.server.replication")

_BATCH_MAX: Final = 5_000
"""The maximum number of partitions in one AlterPartition request."""
_YIELD_EVERY: Final = 256
"""The number of partitions that are checked before other tasks get a turn on the event loop."""
_LAG_CHECKS: Final = 2
"""The follower lag is checked this many times in each replica.lag.time.max.ms."""


class IsrKeeper:
    """Sends ISR proposals. `propose` may be called before `run`."""

    def __init__(self, channel: PeerChannel, context: ReplicationContext, rng: Rng) -> None:
        self._context = context
        self._channel = channel
        self._rng = rng
        self._backoff = Backoff(50, 1_000)
        self._failures = 0
        self._waiting: dict[PartitionKey, tuple[Partition, IsrProposal]] = {}
        """At most one proposal per partition: the rules make no second proposal before the first is settled."""
        self._wake = asyncio.Event()

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        self._waiting[partition.topic_id, partition.name.partition] = (partition, proposal)
        self._wake.set()

    async def run(self, partitions: Iterable[Partition]) -> None:
        """Send proposals, and check the followers of `partitions` for lag, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._check_lag(partitions), name="isr lag")
            tasks.create_task(self._send(), name="isr proposals")

    async def _check_lag(self, partitions: Iterable[Partition]) -> None:
        while True:
            await asyncio.sleep(self._context.replica_lag_time_max_ms / _LAG_CHECKS / 1000)
            for count, partition in enumerate(list(partitions)):
                partition.shrink_isr()
                if count % _YIELD_EVERY == _YIELD_EVERY - 1:
                    await asyncio.sleep(0)

    async def _send(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while batch := self._next_batch():
                if await self._send_batch(batch):
                    self._failures = 0
                else:
                    await asyncio.sleep(self._backoff.delay_ms(self._failures, self._rng) / 1000)
                    self._failures += 1

    def _next_batch(self) -> list[tuple[PartitionKey, Partition, IsrProposal]]:
        """The proposals for the next request. Settled proposals are removed."""
        batch: list[tuple[PartitionKey, Partition, IsrProposal]] = []
        for key, (partition, proposal) in list(self._waiting.items()):
            if partition.leader is None or partition.leader.inflight != proposal:
                del self._waiting[key]
            elif len(batch) < _BATCH_MAX:
                batch.append((key, partition, proposal))
        return batch

    async def _send_batch(self, batch: list[tuple[PartitionKey, Partition, IsrProposal]]) -> bool:
        """Send one request and apply the responses. Returns False if a proposal has to be sent again."""
        try:
            answers = await self._channel.alter_partition([(key, proposal) for key, _, proposal in batch])
        except KafkaError as error:
            log.info("AlterPartition failed; it is sent again", partitions=len(batch), reason=str(error))
            answers = [IsrAnswer(ErrorCode.REQUEST_TIMED_OUT)] * len(batch)
        settled = True
        for (key, partition, proposal), answer in zip(batch, answers, strict=True):
            todo = partition.on_isr_outcome(proposal, answer.error, answer.committed)
            if todo is Next.RETRY:
                settled = False
                continue
            waiting = self._waiting.get(key)
            if waiting is not None and waiting[1] is proposal:  # the partition may have a newer proposal by now
                del self._waiting[key]
            log.info(
                "ISR proposal answered",
                partition=str(partition.name),
                proposed=sorted(proposal.members),
                outcome=answer.error.name if answer.error is not ErrorCode.NONE else "committed",
            )
        return settled
