"""Change capture and Connect workers on Apache Kafka, while Spark, the databases, the broker and workers are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.apache_kafka import ApacheKafka
from tests.system.connectors import capture_faults, worker_takeover

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_200)]


@pytest.mark.slow
def test_the_topics_are_the_tables_after_everything_was_killed_once(tmp_path: Path) -> None:
    segments = f"log.segment.bytes={2 * capture_faults.RECORD_BYTES_MAX}"
    kafka = ApacheKafka(tmp_path, (*capture_faults.BROKER_SETTINGS, segments))
    faults = ("mariadb", "broker", "postgres", "driver", "starting driver")
    with kafka.running():
        capture_faults.run(tmp_path, kafka, kafka.bootstrap, faults, seed=1, large=1, pause_s=0.5, copies=True)


def test_a_killed_worker_is_replaced_and_every_record_is_copied_once(tmp_path: Path) -> None:
    settings = [f"{name}={value}" for name, value in worker_takeover.BROKER_SETTINGS.items()]
    kafka = ApacheKafka(tmp_path, settings)
    with kafka.running():
        worker_takeover.check_takeover(kafka.bootstrap, tmp_path)
