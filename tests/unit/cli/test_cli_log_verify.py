"""`barnabas logs verify` finds every kind of damage; `barnabas logs repair` cuts it, and keeps what it cuts."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest
from typer.testing import CliRunner, Result

from barnabas.cli.logs.logs import app
from barnabas.core.ids import TopicPartition
from barnabas.server.storage.directory.log_dir import LogDir
from barnabas.server.storage.errors import DamagedLogError
from barnabas.server.storage.fs import OsFileSystem
from tests.configs import log_config
from tests.unit.server.storage.logs import batch

TP = TopicPartition("orders", 0)
SIZE = len(batch())
CONFIG = log_config(internal_segment_bytes=20 * SIZE, index_interval_bytes=SIZE)


def open_dir(path: Path) -> LogDir:
    return LogDir.open(OsFileSystem(), str(path), cluster_id="c", node_id=1, new_directory_id=UUID(int=7))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    home = open_dir(tmp_path)
    log = home.create_log(TP, UUID(int=9), CONFIG, now_ms=0)
    for epoch in (0, 0, 1, 1):
        for _ in range(15):
            log.append_as_leader(batch(), leader_epoch=epoch, now_ms=0)
    home.close()
    return tmp_path


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 8
    path.write_bytes(content)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def found(data: Path) -> list[dict[str, object]]:
    result = run("verify", data, "--json")
    findings: list[dict[str, object]] = json.loads(result.stdout)
    assert result.exit_code == (1 if findings else 0)
    return findings


def test_undamaged_directory_has_no_findings(data: Path) -> None:
    assert found(data) == []


@pytest.mark.parametrize(
    ("name", "position", "state"),
    [
        (f"orders-0/{0:020d}.log", 5 * SIZE + 70, "damaged"),
        (f"orders-0/{0:020d}.log", 5 * SIZE + 15, "damaged"),  # the leader epoch, outside the CRC
        (f"orders-0/{0:020d}.index", 19, "rebuilt"),
        (f"orders-0/{0:020d}.timeindex", 7, "rebuilt"),
        ("orders-0/leader-epoch-checkpoint", 0, "rebuilt"),
        ("orders-0/partition.metadata", 3, "damaged"),
        (f"orders-0/{60:020d}.snapshot", 3, "rebuilt"),
        ("recovery-point-offset-checkpoint", 0, "rebuilt"),
        ("meta.properties", 3, "damaged"),
    ],
)
def test_flipped_bit_is_found_in_every_kind_of_file(data: Path, name: str, position: int, state: str) -> None:
    flip(data / name, position)
    [finding] = found(data)
    assert (finding["file"], finding["state"]) == (f"{data}/{name}", state)


def test_repair_cuts_a_damaged_log_and_keeps_what_it_cut(data: Path) -> None:
    segment = data / "orders-0" / f"{20:020d}.log"
    whole = segment.read_bytes()
    flip(segment, 3 * SIZE + 70)
    assert run("repair", "--dry-run", data).exit_code == 0
    assert segment.stat().st_size == len(whole)
    home = open_dir(data)
    home._state.clean_shutdown = False
    [entry] = home.scan()
    home._state._recovery_points[TP] = 0
    with pytest.raises(DamagedLogError):
        home.open_log(entry, CONFIG, now_ms=0)
    assert "is locked" in run("repair", "--yes", data).output
    home.close(clean=False)
    result = run("repair", "--yes", data)
    assert result.exit_code == 0, result.output
    assert segment.stat().st_size == 3 * SIZE
    kept = sorted(path.name for path in (data / "orders-0").iterdir() if path.name.startswith("damaged-"))
    assert kept == [f"damaged-{20:020d}.log", f"damaged-{40:020d}.log"]
    assert len((data / "orders-0" / kept[0]).read_bytes()) == len(whole) - 3 * SIZE
    home = open_dir(data)
    log = home.open_log(home.scan()[0], CONFIG, now_ms=0)
    assert log.log_end_offset == 23
    home.close()
    assert found(data) == []
