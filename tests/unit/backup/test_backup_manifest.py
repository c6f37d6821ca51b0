"""The manifests of runs, and the names of objects."""

from __future__ import annotations

import pytest

from barnabas.backup.errors import BackupError, DamagedBackupError
from barnabas.backup.manifest import decode_run, encode_run, manifest_name, run_of_manifest, writer_of
from tests.unit.backup.batches import RUN, partition, run_of, stored

NAME = manifest_name(RUN)


def test_a_manifest_is_read_as_it_was_written() -> None:
    run = run_of(partition(3, 10, stored(3, 10, b"bytes")))
    assert decode_run(encode_run(run), NAME) == run


@pytest.mark.parametrize("position", [40, 150, -5])
def test_a_changed_byte_is_detected(position: int) -> None:
    data = bytearray(encode_run(run_of(partition(3, 10, stored(3, 10)))))
    data[position] ^= 1
    with pytest.raises(DamagedBackupError):
        decode_run(bytes(data), NAME)


def test_half_a_manifest_is_damaged() -> None:
    data = encode_run(run_of(partition(0, 0)))
    with pytest.raises(DamagedBackupError, match="Use another run"):
        decode_run(data[: len(data) // 2], NAME)


def test_a_later_format_is_refused() -> None:
    data = encode_run(run_of()).replace(b'"format":1', b'"format":9')
    with pytest.raises(BackupError, match="format 9"):
        decode_run(data, NAME)


def test_names_say_which_run_they_belong_to() -> None:
    assert run_of_manifest(NAME) == run_of_manifest(manifest_name(RUN, complete=False)) == RUN
    assert run_of_manifest("runs/notes.json") is None
    assert writer_of(stored(0, 1).name) == RUN
    assert writer_of(stored(0, 1).name + ".upload") == RUN
    assert writer_of("data/orders/0/something") is None
