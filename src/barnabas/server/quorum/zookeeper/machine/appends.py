"""Machine: the pending proposals of this node and their outcomes.

    queue      the proposals of the current epoch, in order; the first ones may have been sent
    unsettled  proposals of earlier epochs that were sent without an answer from ZooKeeper

When the leadership ends, proposals that were not sent are refused at once. An unsettled proposal is committed if it is
read in the log. It is refused when the log has been read up to a tail of a later epoch, because a transaction of an
earlier epoch can no longer succeed.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from msgspec import Struct

from barnabas.server.metadata.ports import CommittedBatch
from barnabas.server.quorum.zookeeper.machine.effects import Effect, ProposalOutcome, Settled

PROPOSALS_MAX: Final = 10_000
"""The limit for pending proposals; more are rejected."""


class Proposal(Struct):
    token: int
    batch: CommittedBatch
    data: bytes
    sent: bool = False


class Appends:
    """The pending proposals of one node."""

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
        """The first proposals of the queue that fit into `bytes_max` together; at least one."""
        group: list[Proposal] = []
        size = 0
        for proposal in self._queue:
            size += len(proposal.data)
            if group and size > bytes_max:
                break
            group.append(proposal)
        return group

    def on_committed(self, group: list[Proposal]) -> list[Effect]:
        """ZooKeeper has committed the proposals in `group`."""
        effects: list[Effect] = []
        for proposal in group:
            assert self._queue[0] is proposal
            effects.append(_settle(self._queue.popleft(), ProposalOutcome.COMMITTED))
        return effects

    def on_read(self, batch: CommittedBatch) -> list[Effect]:
        """`batch` was read in the log. Settle the proposal for it, if this node proposed it."""
        if self._queue and _same(self._queue[0], batch):
            return [_settle(self._queue.popleft(), ProposalOutcome.COMMITTED)]
        for proposal in self._unsettled:
            if _same(proposal, batch):
                self._unsettled.remove(proposal)
                return [_settle(proposal, ProposalOutcome.COMMITTED)]
        return []

    def on_snapshot(self, end_offset: int) -> list[Effect]:
        """A snapshot was loaded: for unsettled proposals before `end_offset`, the outcome cannot be determined."""
        over = [proposal for proposal in self._unsettled if proposal.batch.base_offset < end_offset]
        self._unsettled = [proposal for proposal in self._unsettled if proposal.batch.base_offset >= end_offset]
        return [_settle(proposal, ProposalOutcome.UNKNOWN) for proposal in over]

    def on_epoch(self, epoch: int) -> list[Effect]:
        """The log was read up to a `tail` znode that was written in `epoch`: refuse the unsettled proposals of earlier
        epochs."""
        over = [proposal for proposal in self._unsettled if proposal.batch.epoch < epoch]
        self._unsettled = [proposal for proposal in self._unsettled if proposal.batch.epoch >= epoch]
        return [_settle(proposal, ProposalOutcome.REFUSED) for proposal in over]

    def step_down(self) -> list[Effect]:
        """The leadership has ended: refuse the proposals that were not sent; those that were sent become unsettled."""
        self._unsettled += [proposal for proposal in self._queue if proposal.sent]
        refused = [proposal for proposal in self._queue if not proposal.sent]
        self._queue.clear()
        return [_settle(proposal, ProposalOutcome.REFUSED) for proposal in refused]


def _settle(proposal: Proposal, outcome: ProposalOutcome) -> Settled:
    return Settled(proposal.token, proposal.batch.last_offset, outcome)


def _same(proposal: Proposal, batch: CommittedBatch) -> bool:
    """Epoch and offset identify a batch, because an epoch has one writer, which uses each offset once."""
    return (proposal.batch.epoch, proposal.batch.base_offset) == (batch.epoch, batch.base_offset)
