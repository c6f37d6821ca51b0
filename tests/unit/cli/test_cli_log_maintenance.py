"""`barnabas logs compact` and `logs enforce-retention`, on the data directory of a stopped broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from typer.testing import CliRunner

from barnabas.cli.logs.logs import app
from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.server.storage.directory.log_dir import LogDir
from barnabas.server.storage.fs import OsFileSystem
from tests.configs import log_config

COMPACT = ("-c", "cleanup.policy=compact")


def open_dir(path: Path) -> LogDir:
    return LogDir.open(OsFileSystem(), str(path), cluster_id="c", node_id=3, new_directory_id=UUID(int=1 << 100))


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A data directory with two partitions of 100 records with 4 keys each, closed cleanly."""
    directory = open_dir(tmp_path)
    for topic in ("prices", "clicks"):
        name = TopicPartition(topic, 0)
        log = directory.create_log(name, None, log_config(), now_ms=1000)
        for i in range(100):
            log.append_as_leader(build_batch([SimpleRecord(b"k%d" % (i % 4), b"v", 1000)]), leader_epoch=0, now_ms=1000)
        directory.checkpoint_high_watermarks({name: 100}, durable=True)
    directory.close()
    return tmp_path


def run(*arguments: object) -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    rows: list[dict[str, Any]] = json.loads(result.stdout)
    return rows


def test_compact_prints_why_a_log_was_not_compacted(data_dir: Path) -> None:
    rows = run("compact", data_dir)
    assert {r["outcome"] for r in rows} == {"cleanup.policy does not include compact"}
    (row,) = run("compact", data_dir, "-t", "prices", *COMPACT)
    assert row["outcome"].startswith("all dirty records lie in the active segment")
    assert row["records_removed"] == 0


def test_compact_removes_superseded_records(data_dir: Path) -> None:
    (dry,) = run("compact", data_dir, "-t", "prices", "--roll", "--force", "--dry-run", *COMPACT)
    assert dry["bytes_after"] == dry["bytes_before"]
    (row,) = run("compact", data_dir, "-t", "prices", "--roll", *COMPACT)
    assert (row["outcome"], row["records_removed"], row["cleaned_offset"]) == ("compacted", 96, 100)
    assert row["bytes_after"] < row["bytes_before"] / 10
    assert (data_dir / "cleaner-offset-checkpoint").read_text() == "0\n1\nprices 0 100\n"
    directory = open_dir(data_dir)
    assert directory.clean_shutdown, "left as a broker leaves it"
    assert directory.high_watermarks == {TopicPartition("clicks", 0): 100, TopicPartition("prices", 0): 100}
    directory.close()


def test_a_corrupt_log_becomes_a_failed_row(data_dir: Path) -> None:
    path = data_dir / "clicks-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    result = CliRunner().invoke(app, ["compact", str(data_dir), "--roll", "--json", *COMPACT])
    assert result.exit_code == 1
    clicks, prices = json.loads(result.stdout)
    assert clicks["outcome"].startswith("failed: CRC of the batch")
    assert prices["outcome"] == "compacted"


def test_enforce_retention_deletes_old_segments(data_dir: Path) -> None:
    clicks, prices = run("enforce-retention", data_dir, "-c", "retention.ms=-1")
    assert [r["segments_deleted"] for r in (clicks, prices)] == [0, 0]
    (clicks,) = run("enforce-retention", data_dir, "-t", "clicks", "-c", "retention.ms=1")
    assert (clicks["segments_deleted"], clicks["log_start_offset"], clicks["bytes_after"]) == (1, 100, 0)


def test_a_locked_directory_of_a_running_broker_is_not_changed(data_dir: Path) -> None:
    directory = open_dir(data_dir)
    result = CliRunner().invoke(app, ["compact", str(data_dir)])
    directory.close()
    assert result.exit_code == 1
    assert "is locked" in result.output


def test_a_directory_without_meta_properties_is_rejected(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["enforce-retention", str(tmp_path)])
    assert result.exit_code == 1
    assert "no meta.properties" in result.output
