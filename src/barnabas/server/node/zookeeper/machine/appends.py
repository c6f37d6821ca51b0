"""Machine: proposals on their way into the log, and what became of them.

    queue      of the epoch in which this node leads, in order; the first ones may have been sent already
    unsettled  of epochs that are over, sent, and ZooKeeper's answer never came: they are in the log, or never will be

What was not sent when the office ended is refused at once. Of the unsettled, the log itself tells: one that is read
there is committed; when the log's tail belongs to a later epoch and has been read up to, the others can never get in.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from msgspec import Struct

from barnabas.server.metadata.ports import CommittedBatch
from barnabas.server.node.zookeeper.machine.effects import Effect, Outcome, Settled

PROPOSALS_MAX: Final = 10_000
"""Beyond this many proposals that are not settled new ones are refused: ZooKeeper is not keeping up."""


class Proposal(Struct):
    token: int
    batch: CommittedBatch
    data: bytes
    sent: bool = False


class Appends:
    """The proposals of one node."""

    def __init__(self) -> None:
        self._queue: deque[Proposal] = deque()
        self._unsettled: list[Proposal] = []

    def __len__(self) -> int:
        return len(self._queue) + len(self._unsettled)

    @property
    def waiting(self) -> bool:
        return bool(self._queue)

    def add(self, proposal: Proposal) -> None:
        self._queue.append(proposal)

    def group(self, bytes_max: int) -> list[Proposal]:
        """The first proposals, as many as fit into one znode; at least one."""
        group: list[Proposal] = []
        size = 0
        for proposal in self._queue:
            size += len(proposal.data)
            if group and size > bytes_max:
                break
            group.append(proposal)
        return group

    def landed(self, group: list[Proposal]) -> list[Effect]:
        """ZooKeeper has taken them."""
        effects: list[Effect] = []
        for proposal in group:
            assert self._queue[0] is proposal
            effects.append(_settle(self._queue.popleft(), Outcome.COMMITTED))
        return effects

    def on_read(self, batch: CommittedBatch) -> list[Effect]:
        """This batch is in the log: perhaps it is one of ours whose answer was lost."""
        if self._queue and _same(self._queue[0], batch):
            return [_settle(self._queue.popleft(), Outcome.COMMITTED)]
        for proposal in self._unsettled:
            if _same(proposal, batch):
                self._unsettled.remove(proposal)
                return [_settle(proposal, Outcome.COMMITTED)]
        return []

    def on_snapshot(self, end_offset: int) -> list[Effect]:
        """Everything before `end_offset` is known only in sum: not who wrote it."""
        over = [proposal for proposal in self._unsettled if proposal.batch.base_offset < end_offset]
        self._unsettled = [proposal for proposal in self._unsettled if proposal.batch.base_offset >= end_offset]
        return [_settle(proposal, Outcome.UNKNOWN) for proposal in over]

    def on_epoch(self, epoch: int) -> list[Effect]:
        """All of the log is read, up to a tail of this epoch: nothing of an earlier one can come any more."""
        over = [proposal for proposal in self._unsettled if proposal.batch.epoch < epoch]
        self._unsettled = [proposal for proposal in self._unsettled if proposal.batch.epoch >= epoch]
        return [_settle(proposal, Outcome.REFUSED) for proposal in over]

    def step_down(self) -> list[Effect]:
        """The office is over."""
        self._unsettled += [proposal for proposal in self._queue if proposal.sent]
        refused = [proposal for proposal in self._queue if not proposal.sent]
        self._queue.clear()
        return [_settle(proposal, Outcome.REFUSED) for proposal in refused]


def _settle(proposal: Proposal, outcome: Outcome) -> Settled:
    return Settled(proposal.token, proposal.batch.last_offset, outcome)


def _same(proposal: Proposal, batch: CommittedBatch) -> bool:
    """One epoch has one writer, who gives an offset once."""
    return (proposal.batch.epoch, proposal.batch.base_offset) == (batch.epoch, batch.base_offset)
