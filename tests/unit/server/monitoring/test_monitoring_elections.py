"""`ClusterMonitor` counts elections, and tells those of leaders that were not in sync from the others."""

from __future__ import annotations

import pytest

from barnabas.server.metadata.image.cluster import LeaderRecoveryState, PartitionImage
from barnabas.server.monitoring.cluster import _is_unclean

RECOVERED, RECOVERING = LeaderRecoveryState.RECOVERED, LeaderRecoveryState.RECOVERING


def partition(leader: int, isr: tuple[int, ...], state: LeaderRecoveryState) -> PartitionImage:
    return PartitionImage(
        replicas=(1, 2), isr=isr, leader=leader, leader_epoch=3, partition_epoch=5, leader_recovery_state=state
    )


def eligible(broker: int) -> PartitionImage:
    """A partition whose last replica was stopped in order after an unclean election."""
    return PartitionImage(
        replicas=(1, 2), isr=(), leader=-1, leader_epoch=3, partition_epoch=5, elr=(broker,),
        leader_recovery_state=RECOVERING,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("was", "new", "unclean"),
    [
        (partition(-1, (2,), RECOVERED), partition(2, (2,), RECOVERED), False),
        (partition(-1, (), RECOVERED), partition(1, (1,), RECOVERING), True),
        # a node that was stopped in order leads again; the state lasts until the ISR changes
        (partition(-1, (1,), RECOVERING), partition(1, (1,), RECOVERING), False),
        (eligible(1), partition(1, (1,), RECOVERING), False),
        # killed once more before the ISR has changed
        (partition(-1, (), RECOVERING), partition(1, (1,), RECOVERING), True),
        (None, partition(1, (1,), RECOVERING), True),
    ],
)
def test_an_election_is_unclean_if_the_leader_was_not_in_sync(
    was: PartitionImage | None, new: PartitionImage, *, unclean: bool
) -> None:
    assert _is_unclean(was, new) is unclean
