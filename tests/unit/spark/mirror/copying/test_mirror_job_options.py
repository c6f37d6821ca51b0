"""The options of a copy plan."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.protocol.records.compression import CompressionType
from barnabas.spark.mirror.copying.job_options import copy_job, pair_id, parse_job_options
from barnabas.spark.mirror.copying.planner import StartAt
from barnabas.spark.mirror.copying.values import Provenance
from barnabas.spark.mirror.errors import MirrorConfigError
from barnabas.spark.mirror.ports import CopyPlan


def plan(**more: Any) -> CopyPlan:
    servers = {"bootstrap.servers": "b:9092"}
    return CopyPlan(**{"source_alias": "A", "target_alias": "B", "source_settings": servers,
                       "target_settings": servers, "topics": {"t": "A.t"}, **more})  # fmt: skip


def test_defaults() -> None:
    options = parse_job_options(plan())
    assert (options.start_at, options.trigger_interval_ms, options.tasks_max) == (StartAt.EARLIEST, 100, None)
    assert options.name.ledger_id == "barnabas-mirror.A->B.ledger"
    job = copy_job(plan(), options, "0a0b0c0d", 4)
    assert (job.bytes_max, job.codec, job.provenance) == (64 * 1024 * 1024, None, None)


def test_given_options() -> None:
    given = plan(
        source_settings={"bootstrap.servers": "b:9092", "auto.offset.reset": "latest", "group.id": "g"},
        target_settings={"bootstrap.servers": "b:9092", "compression.type": "zstd", "transactional.id": "x"},
        options={"trigger.interval.ms": "7", "max.bytes.per.trigger": "1000", "tasks.max": "3", "delivery.ledger": "l"},
        provenance_header="origin",
    )
    options = parse_job_options(given)
    assert (options.start_at, options.trigger_interval_ms, options.tasks_max) == (StartAt.LATEST, 7, 3)
    assert options.ledger == "l"
    job = copy_job(given, options, "0a0b0c0d", 4)
    assert (job.bytes_max, job.codec) == (250, CompressionType.ZSTD)
    assert job.provenance == Provenance("origin", "A", "B")
    assert "transactional.id" not in job.target_settings
    assert "group.id" not in job.source_settings


@pytest.mark.parametrize(("transactional", "isolation"), [(True, "read_committed"), (False, "read_uncommitted")])
def test_exactly_once_reads_committed_records_unless_it_is_told_otherwise(transactional: bool, isolation: str) -> None:
    given = plan(transactional=transactional)
    options = parse_job_options(given)
    assert copy_job(given, options, "r", 1).source_settings["isolation.level"] == isolation
    servers = {"bootstrap.servers": "b:9092", "isolation.level": "read_uncommitted"}
    told = plan(source_settings=servers)
    assert copy_job(told, options, "r", 1).source_settings["isolation.level"] == "read_uncommitted"


def test_an_alias_with_dots_has_ids_that_no_other_pair_begins_with() -> None:
    assert pair_id(plan(target_alias="B.x")) == "A->B%2Ex"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"options": {"maxBytes": "1"}}, "there is no option maxBytes of copying; the options are trigger.interval.ms"),
        ({"options": {"tasks.max": "0"}}, "tasks.max=0 is not possible; give a whole number above 0"),
        ({"options": {"tasks.max": "many"}}, "tasks.max=many"),
    ],
)
def test_wrong_options_are_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(MirrorConfigError, match=message):
        parse_job_options(plan(**more))


def test_an_unknown_codec_is_refused() -> None:
    given = plan(target_settings={"bootstrap.servers": "b:9092", "compression.type": "brotli"})
    with pytest.raises(MirrorConfigError, match=r"compression.type of the target cluster: 'brotli' is none of"):
        copy_job(given, parse_job_options(given), "r", 1)
