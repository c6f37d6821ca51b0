"""The recovery point never passes epochs that a full disk kept out of the leader epoch checkpoint."""

from __future__ import annotations

import pytest

from barnabas.server.storage.errors import DiskFullError
from tests.configs import log_config
from tests.unit.server.storage.logs import LogHarness, batch
from tests.unit.server.storage.memory_disk import MemoryDisk


def test_flush_fails_while_the_epochs_cannot_be_written() -> None:
    disk = MemoryDisk()
    logs = LogHarness(disk=disk, config=log_config())
    logs.append(batch(), epoch=1)
    logs.log.flush()
    logs.append(batch(), epoch=1)
    disk.capacity = disk.used
    logs.log.assign_epoch(2, logs.log.log_end_offset)
    with pytest.raises(DiskFullError, match="leader epochs"):
        logs.log.flush_job()
    assert logs.log.recovery_point == 1
    assert not logs.failures
    disk.capacity = 1 << 40
    logs.append(batch(), epoch=2)
    logs.log.flush()
    disk.sync_dir("/")
    disk.sync_dir("/data")
    point = logs.log.recovery_point
    disk.lose_power()
    logs.open(recovery_point=point)
    assert [(e.epoch, e.start_offset) for e in logs.log.epoch_entries] == [(1, 0), (2, 2)]
