"""The check of a stopped node's files makes of damage what the start of the broker makes of it."""

from __future__ import annotations

import pytest

from barnabas.server.repair.findings import ROT, TORN, check_partition
from barnabas.server.storage.errors import DamagedLogError
from tests.unit.server.storage.logs import PATH, TP, LogHarness, batch
from tests.unit.server.storage.memory_disk import MemoryDisk


@pytest.mark.parametrize(("leader_epoch", "state"), [(0, ROT), (5, TORN)])
def test_damage_where_a_leader_epoch_begins_may_be_a_lost_truncation(leader_epoch: int, state: str) -> None:
    disk = MemoryDisk()
    logs = LogHarness(disk=disk)
    logs.fill(4)
    position = len(disk.data(f"{PATH}/{0:020d}.log"))
    for _ in range(3):
        logs.append(batch(), epoch=leader_epoch)
    disk.flip_bit(f"{PATH}/{0:020d}.log", position + 70)
    found = [one.state for one in check_partition(disk, PATH, TP, 4, lambda size: None) if one.damage is not None]
    assert found == [state]
    if state == ROT:
        with pytest.raises(DamagedLogError):
            logs.kill(recovery_point=4)
    else:
        assert logs.kill(recovery_point=4).log_end_offset == 4
